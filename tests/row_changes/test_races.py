"""Two changes of one file at the same moment: one lands, and the other is told, or is made again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from penstock.errors import TableConflict
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.lake.lake import Lake
from penstock.lake.row_changes import ChangedRows
from penstock.lake.table import Table
from tests.row_changes.statements import SCHEMA, as_table, counted

ROWS = [{"id": number, "day": "a", "amount": float(number), "name": f"n{number}"} for number in range(6)]


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
    gate, commit = Barrier(2), DeltaJob.commit

    def commit_together(self: DeltaJob, actions: Any, **options: Any) -> Any:
        gate.wait(30)
        return commit(self, actions, **options)

    monkeypatch.setattr(DeltaJob, "commit", commit_together)
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
