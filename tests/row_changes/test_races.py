"""Two changes of one file at the same moment: one lands, and the other is told, or is made again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import msgspec
import pytest

import penstock
from penstock.errors import TableConflict
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.kernel import edit
from penstock.lake.lake import Lake
from penstock.lake.row_changes import ChangedRows
from penstock.lake.table import Table
from penstock.model.conflicts import Conflict
from tests.remote.serving import serving
from tests.row_changes.statements import SCHEMA, as_table, counted

ROWS: list[dict[str, Any]] = [
    {"id": number, "day": "a", "amount": float(number), "name": f"n{number}"} for number in range(6)
]


def update(table: Table) -> ChangedRows:
    return table.update({"amount": "amount + 100"}, "id < 3")


def delete(table: Table) -> ChangedRows:
    return table.delete("id >= 2 and amount < 10")


def merge(table: Table) -> ChangedRows:
    source = as_table([{**ROWS[2], "id": number, "name": "merged"} for number in (2, 50)])
    return table.merge(source, on=["id"]).when_matched_update_all().when_not_matched_insert_all().commit()


def apply(statement: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if statement is update:
        return [{**row, "amount": row["amount"] + 100} if row["id"] < 3 else row for row in rows]
    if statement is delete:
        return [row for row in rows if row["id"] < 2 or row["amount"] >= 10]
    source = {number: {**ROWS[2], "id": number, "name": "merged"} for number in (2, 50)}
    ids = {row["id"] for row in rows}
    return [source.get(row["id"], row) for row in rows] + [source[number] for number in source.keys() - ids]


@pytest.mark.parametrize("vectors", ["false", "true"], ids=["rewritten", "deletion vectors"])
@pytest.mark.parametrize("pair", [(update, update), (update, delete), (merge, delete), (merge, merge)])
def test_of_two_changes_of_a_file_one_lands_and_the_other_changes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, pair: tuple[Any, Any], vectors: str
) -> None:
    properties = {"delta.enableDeletionVectors": vectors}
    table = lake.delta.create("t", schema=SCHEMA, properties=properties)
    table.append(as_table(ROWS))
    gate, commit = Barrier(2), DeltaJob.commit_actions

    def commit_together(self: DeltaJob, actions: Any, **options: Any) -> Any:
        gate.wait(30)
        return commit(self, actions, **options)

    monkeypatch.setattr(DeltaJob, "commit_actions", commit_together)
    with ThreadPoolExecutor(2) as threads:
        results = [threads.submit(statement, lake.table("t")) for statement in pair]
        problems = [result.exception() for result in results]
    monkeypatch.undo()
    assert [type(problem) for problem in problems if problem is not None] == [TableConflict]
    landed = pair[problems.index(None)]
    expected = apply(landed, ROWS)
    assert counted(table.to_arrow().to_pylist()) == counted(expected)
    refused = pair[1 - problems.index(None)]
    refused(table)  # as the message says: once more, on the table as it is now
    assert counted(table.to_arrow().to_pylist()) == counted(apply(refused, expected))


@contextmanager
def embedded(lake: Lake) -> Iterator[Lake]:
    yield lake


@contextmanager
def behind_a_server(lake: Lake) -> Iterator[Lake]:
    with serving(lake.catalogue) as served, penstock.open(served.url, author="remote") as remote:
        yield remote


def reword(*fields: Any, **more: Any) -> Conflict:
    return msgspec.structs.replace(Conflict(*fields, **more), found="another text")


@pytest.mark.parametrize("reached", [embedded, behind_a_server])
@pytest.mark.parametrize("is_row_changed", [False, True], ids=["compacted", "rows changed too"])
def test_a_change_is_made_again_by_the_version_that_won_whatever_the_text_of_the_conflict_says(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, reached: Any, is_row_changed: bool
) -> None:
    """A compaction of the same files came first, and a deletion elsewhere, which does not conflict."""
    table = lake.delta.create("t", schema=SCHEMA, partition_by=["day"])
    for part in (ROWS[:3], ROWS[3:], [{**row, "day": "b"} for row in ROWS]):
        table.append(as_table(part))
    commit, refusals = DeltaJob.commit_actions, list[Conflict]()

    def overtaken(self: DeltaJob, actions: Any, **options: Any) -> Any:
        monkeypatch.setattr(DeltaJob, "commit_actions", commit)
        table.delete("day = 'b' and id = 5")
        table.optimize(where="day = 'a'")
        if is_row_changed:
            table.update({"name": "'other'"}, "day = 'a' and id = 1")
        try:
            return commit(self, actions, **options)
        except TableConflict as conflict:
            refusals.extend(conflict.conflicts)
            raise

    monkeypatch.setattr(edit, "Conflict", reword)
    monkeypatch.setattr(DeltaJob, "commit_actions", overtaken)
    with reached(lake) as opened:
        changed = opened.table("t").update({"amount": "amount + 100"}, "day = 'a' and id < 3")
    assert changed.updated == 3
    assert [(refusal.found, refusal.found_version) for refusal in refusals] == [("another text", 5)]
    rows = [{**row, "amount": row["amount"] + 100} if row["id"] < 3 else row for row in ROWS]
    if is_row_changed:
        rows[1]["name"] = "other"
    rows += [{**row, "day": "b"} for row in ROWS[:5]]
    assert counted(table.to_arrow().to_pylist()) == counted(rows)
