"""R1 to R12: what is ratified, and what is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import (
    CommitConflict,
    InvalidContent,
    InvalidRequest,
    KeyNotFound,
    TableConflict,
)
from penstock.formats.delta.lake.calls import TableCommit, WriterReads
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.testing.threads import at_once
from tests.owner.orders import (
    SCHEMA,
    actions_in,
    add,
    check_commits,
    created,
    foreign_paths,
    left_unpublished,
    log_file,
    paths,
    published_versions,
    remove,
    root_of,
    rows,
    staged_names,
    unpublished,
)

STAGED = re.compile(
    r"_delta_log/_commits/(\d{20})\.([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.json"
)

BROKEN: dict[str, tuple[Any, str]] = {
    "a line that is no JSON": ("{no json", "line 1"),
    "an action of two kinds": ([{**add("a"), **remove("b")}], "line 1"),
    "the same file twice": ([add("a"), add("a")], "line 2"),
    "a file that is not there": ([remove("nothing")], "line 1"),
    "a partition that the table does not have": ([add("a", partitionValues={"day": "1"})], "line 1"),
    "a commitInfo that is not the first": ([add("a"), {"commitInfo": {}}], "line 2"),
    "a file elsewhere": ([add("../a")], "line 1"),
}


class RulesOfCommits:
    def test_r1_versions_are_ratified_one_after_the_other(self, table: Table) -> None:
        assert [table.commit(version, [add(f"{version}")]).version for version in (1, 2, 3)] == [1, 2, 3]
        assert table.append_actions([add("4")]).version == 4
        assert paths(table) == ["1", "2", "3", "4"]
        check_commits(table, table.get_commits())

    def test_r1_what_does_not_fit_is_refused_and_leaves_nothing(self, lake: Lake, table: Table) -> None:
        for number in (1, 2, 3):
            table.commit(number, [add(f"{number}")])
        before = (lake.branch().head, staged_names(table), published_versions(table))
        for version in (-1, 0, 1, 2, 3, 5, 7):
            with pytest.raises((TableConflict, InvalidRequest)):
                table.commit(version, [add("other")])
        assert (lake.branch().head, staged_names(table), published_versions(table)) == before
        assert table.commit(4, [add("4")]).version == 4

    def test_r2_a_version_that_exists_is_a_conflict(self, table: Table) -> None:
        for number in (1, 2):
            table.commit(number, [add(f"{number}")])
        for version in (1, 2):
            with pytest.raises(TableConflict) as caught:
                table.commit(version, [add("other")])
            assert caught.value.http_status == 409

    def test_r2_a_version_that_cannot_be_the_next_is_a_mistake(self, table: Table) -> None:
        for latest in (0, 1):
            for version in (-1, 0, latest + 2, 10**15):
                told = f"version {version} of '{table.key}' cannot be committed"
                with pytest.raises(InvalidRequest, match=told) as caught:
                    table.commit(version, [add("other")])
                assert caught.value.http_status == 400
            table.append_actions([add("next")])

    def test_r2_a_version_that_no_table_can_have_is_a_mistake_too(self, table: Table) -> None:
        for version in (2**63, 2**64, -(2**63) - 1):
            with pytest.raises(InvalidRequest):
                table.commit(version, [add("other")])

    def test_r3_of_many_who_commit_a_version_one_does(self, lake: Lake, table: Table) -> None:
        def commit(writer: int) -> str | None:
            try:
                lake.table(table.key).commit(1, [add(f"by-{writer}")])
            except TableConflict:
                return None
            return f"by-{writer}"

        told = at_once(*(partial(commit, writer) for writer in range(6)))
        (winner,) = [one for one in told if one is not None]
        assert paths(table) == [winner]
        table.backfill_to_version()
        assert foreign_paths(table) == [winner]

    def test_r3_several_tables_get_their_versions_together_or_none_does(
        self, lake: Lake, table: Table, tmp_path: Path
    ) -> None:
        other = created(lake, tmp_path / "returns", f"{table.key}_returns")
        other.append_actions([add("before")])

        def both(version: int) -> list[TableCommit]:
            line = json.dumps(add("both"))
            return [TableCommit(key=one.key, actions=line, version=version) for one in (table, other)]

        with pytest.raises(TableConflict):
            lake.delta.commit(both(1))
        assert (paths(table), paths(other)) == ([], ["before"])
        table.append_actions([add("before")])
        done = lake.delta.commit(both(2))
        assert [one.version for one in done.tables] == [2, 2]
        assert paths(table) == paths(other) == ["before", "both"]

    def test_r4_a_staged_file_is_whole_when_it_is_answered_and_never_written_again(
        self, table: Table
    ) -> None:
        attempt = uuid4()
        with unpublished(table):
            name = table.commit(1, [add("a")], attempt=attempt).tables[0].name
        staged = root_of(table) / name
        was = staged.stat()
        assert actions_in(staged.read_bytes())[1:] == [add("a")]
        table.commit(1, [add("a")], attempt=attempt)
        table.backfill_to_version()
        (now,) = (staged.stat(),)
        assert (now.st_ino, now.st_mtime_ns, now.st_size) == (was.st_ino, was.st_mtime_ns, was.st_size)

    def test_r5_a_staged_file_is_called_by_its_version_and_its_attempt(self, table: Table) -> None:
        attempt = uuid4()
        with unpublished(table):
            table.commit(1, [add("a")], attempt=attempt)
        for number in range(3):
            table.append_actions([add(f"{number}")])
        found = [STAGED.fullmatch(one.name) for one in table.get_commits(start=1).commits]
        names = [one.groups() for one in found if one is not None]
        assert [int(version) for version, _ in names] == [1, 2, 3, 4]
        assert names[0][1] == str(attempt)
        assert len({uuid for _, uuid in names}) == 4

    def test_r5_a_staged_file_that_was_not_ratified_proves_nothing(self, table: Table) -> None:
        table.commit(1, [add("a")])
        folder = root_of(table) / "_delta_log" / "_commits"
        for version in (1, 2, 3):
            (folder / f"{version:020}.{uuid4()}.json").write_text(json.dumps(add("stray")))
        assert table.get_commits().latest_version == 1
        assert paths(table) == ["a"]
        assert table.commit(2, [add("b")]).version == 2
        table.backfill_to_version()
        assert paths(table) == foreign_paths(table) == ["a", "b"]

    def test_r6_a_table_at_a_named_place_is_there_when_it_is_answered(self, table: Table) -> None:
        assert published_versions(table) == [0]
        assert table.get_commits().published == 0

    def test_r7_an_attempt_that_is_repeated_is_answered_as_before(self, lake: Lake, table: Table) -> None:
        attempt = uuid4()
        first = table.commit(1, [add("a")], attempt=attempt)
        head = lake.branch().head
        again = table.commit(1, [add("a")], attempt=attempt)
        assert (again.version, again.tables[0].timestamp_ms) == (1, first.tables[0].timestamp_ms)
        assert (first.tables[0].repeated, again.tables[0].repeated) == (False, True)
        assert (lake.branch().head, paths(table)) == (head, ["a"])
        with pytest.raises(TableConflict):
            table.commit(1, [add("a")])

    def test_r7_also_once_its_version_was_published_and_forgotten(self, table: Table, another: Lake) -> None:
        attempt = uuid4()
        first = table.commit(1, [add("a")], attempt=attempt)
        for number in range(3):
            table.append_actions([add(f"{number}")])
            table.backfill_to_version()
        assert table.get_commits().published > 1
        for one in (table, another.table(table.key)):
            again = one.commit(1, [add("a")], attempt=attempt)
            assert (again.version, again.tables[0].repeated) == (1, True)
            assert again.tables[0].timestamp_ms == first.tables[0].timestamp_ms
            with pytest.raises(TableConflict):
                one.commit(1, [add("a")], attempt=uuid4())
        assert table.get_commits().latest_version == 4

    def test_r7_of_many_who_send_one_attempt_all_are_answered_and_one_lands(
        self, lake: Lake, table: Table
    ) -> None:
        attempt = uuid4()
        made = at_once(*[lambda: lake.table(table.key).commit(1, [add("a")], attempt=attempt)] * 5)
        assert [one.version for one in made] == [1] * 5
        assert table.get_commits().latest_version == 1

    def test_r8_a_writer_that_lost_the_answer_can_find_out(self, table: Table) -> None:
        attempt = uuid4()
        with unpublished(table):
            table.commit(1, [add("a")], attempt=attempt)
        (by_name,) = table.get_commits(start=1).commits
        assert str(attempt) in by_name.name
        staged = (root_of(table) / by_name.name).read_bytes()
        table.backfill_to_version()
        assert log_file(table, 1).read_bytes() == staged
        assert table.snapshot().history()[0].info["txnId"] == str(attempt)

    def test_r9_what_the_lake_says_of_a_table_changes_with_the_version_that_changes_it(
        self, lake: Lake, table: Table
    ) -> None:
        was = table.get_commits()
        metadata = json.loads(was.metadata)
        metadata["metaData"]["configuration"]["delta.enableChangeDataFeed"] = "true"
        protocol = json.loads(was.protocol)
        protocol["protocol"]["writerFeatures"].append("changeDataFeed")
        before = lake.branch().head
        after = table.commit(1, [protocol, metadata]).commit.id
        for commit, version, value in ((before, 0, None), (after, 1, "true")):
            seen = lake.at(commit).table(table.key).get_commits()
            assert seen.latest_version == version
            configuration = json.loads(seen.metadata)["metaData"]["configuration"]
            assert configuration.get("delta.enableChangeDataFeed") == value
            assert ("changeDataFeed" in json.loads(seen.protocol)["protocol"]["writerFeatures"]) == bool(
                value
            )

    def test_r10_a_conflict_tells_the_commits_that_won_and_the_latest_version(self, table: Table) -> None:
        for number in (1, 2, 3):
            table.commit(number, [add(f"{number}")])
        with pytest.raises(TableConflict, match=f"'{table.key}' changed while you were writing") as caught:
            table.commit(2, [add("other")])
        winners = caught.value.details["winners"][str(table.key)]
        assert winners["latest_version"] == 3
        assert [one["version"] for one in winners["commits"]] == [2, 3]
        found = [actions_in(one["actions"].encode())[1:] for one in winners["commits"]]
        assert found == [[add("2")], [add("3")]]

    def test_r10_a_writer_whose_reading_was_overtaken_is_told_the_same(
        self, lake: Lake, table: Table
    ) -> None:
        table.append_actions([add("a")])
        table.commit(2, [remove("a"), add("b")])
        table.append_actions([add("c")])
        mine = TableCommit(
            key=table.key,
            actions=json.dumps(remove("a")),
            read_version=1,
            reads=WriterReads(whole_table=True),
        )
        with pytest.raises(TableConflict) as caught:
            lake.delta.commit([mine])
        winners = caught.value.details["winners"][str(table.key)]
        assert winners["latest_version"] == 3
        assert [one["version"] for one in winners["commits"]] == [2, 3]

    @pytest.mark.parametrize("name", BROKEN)
    def test_r11_a_commit_that_breaks_the_protocol_is_refused_with_the_line(
        self, lake: Lake, table: Table, name: str
    ) -> None:
        actions, line = BROKEN[name]
        before = (lake.branch().head, staged_names(table))
        for commit in (partial(table.commit, 1), table.append_actions):
            with pytest.raises(InvalidContent, match=f"'{table.key}'(.|\n)*{line}"):
                commit(actions)
        assert (lake.branch().head, staged_names(table)) == before

    def test_r12_a_table_that_was_dropped_takes_nothing(self, lake: Lake, table: Table) -> None:
        lake.branch().drop(table.key)
        with pytest.raises((KeyNotFound, CommitConflict)):
            table.commit(1, [add("a")])
        with pytest.raises((KeyNotFound, CommitConflict)):
            table.append_actions([add("a")])
        for ask in (table.get_commits, table.backfill_to_version):
            with pytest.raises(KeyNotFound):
                ask()

    def test_r12_rows_written_for_a_table_do_not_land_in_another_one_of_its_name(
        self, lake: Lake, table: Table, tmp_path: Path
    ) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            """Rows that come late: meanwhile the table is dropped, and its name given to another."""
            lake.branch().drop(table.key)
            lake.create_table(table.key, schema=SCHEMA, location=str(tmp_path / "another"))
            yield from rows(1, 2).to_batches()

        with pytest.raises(CommitConflict, match="created again"):
            table.append(pa.RecordBatchReader.from_batches(SCHEMA, batches()))
        assert table.get_commits().location == str(tmp_path / "another")
        assert paths(table) == []

    def test_r12_what_is_asked_of_one_table_is_not_answered_of_another(
        self, lake: Lake, table: Table, tmp_path: Path
    ) -> None:
        other = created(lake, tmp_path / "returns", f"{table.key}_returns")
        left_unpublished(table, 2)
        assert other.get_commits().latest_version == 0
        assert (other.backfill_to_version(), table.backfill_to_version()) == (0, 2)
