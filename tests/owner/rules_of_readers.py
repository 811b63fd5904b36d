"""R13 to R17: what a reader gets to see."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from threading import Event
from uuid import uuid4

import pytest

from penstock.errors import InvalidRequest, LogGap
from penstock.formats.delta.lake.answers import TableVersions
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.testing.threads import at_once
from tests.owner.orders import (
    add,
    check_commits,
    foreign_paths,
    foreign_version,
    left_unpublished,
    log_file,
    paths,
    root_of,
    rows,
)

READS_MAX = 500


class RulesOfReaders:
    def test_r13_commits_are_told_from_one_version_to_another(
        self, lake: Lake, table: Table, dev: str
    ) -> None:
        table.append_actions([add("1")])
        table.backfill_to_version()
        lake.branch(dev).create()
        there = lake.table(table.key, dev)
        for number in range(2, 7):
            there.append_actions([add(f"{number}")])
        there.backfill_to_version()
        # Another branch knows what was published before it left; what is its own is not published.
        wanted: dict[tuple[int | None, int | None], list[int]] = {
            (None, None): [2, 3, 4, 5, 6],
            (4, None): [4, 5, 6],
            (3, 5): [3, 4, 5],
            (4, 4): [4],
            (None, 3): [2, 3],
            (0, 2): [2],
            (None, 99): [2, 3, 4, 5, 6],
            (7, None): [],
            (None, 0): [],
        }
        got = {asked: there.get_commits(*asked) for asked in wanted}
        assert {asked: [each.version for each in one.commits] for asked, one in got.items()} == wanted
        assert {(one.published, one.latest_version) for one in got.values()} == {(1, 6)}

    def test_r13_a_range_that_ends_before_it_begins_is_refused(self, table: Table) -> None:
        with pytest.raises(InvalidRequest, match=r"invalid range of versions .*: 3 to 2"):
            table.get_commits(3, 2)

    def test_r13_what_is_told_is_of_one_moment(self, lake: Lake, table: Table) -> None:
        left_unpublished(table, 3)
        then = lake.at()
        table.append_actions([add("later")])
        table.backfill_to_version()
        seen = then.table(table.key).get_commits()
        assert seen.latest_version == 3
        check_commits(table, seen)
        assert paths(then.table(table.key)) == ["of-1", "of-2", "of-3"]

    def test_r13_there_is_no_gap_while_others_commit_and_publish(self, lake: Lake, table: Table) -> None:
        over = Event()
        writers, each = 3, 4

        def write(writer: int) -> int:
            mine = lake.table(table.key)
            for number in range(each):
                mine.append_actions([add(f"{writer}-{number}")])
            return each

        def publish() -> int:
            while not over.is_set():
                lake.table(table.key).backfill_to_version()
            return 0

        def read() -> int:
            latest = -1
            try:
                for _ in range(READS_MAX):
                    got = lake.table(table.key).get_commits()
                    check_commits(table, got)
                    assert got.latest_version >= latest
                    latest = got.latest_version
                    if latest == writers * each:
                        break
            finally:
                over.set()
            return latest

        at_once(*(partial(write, writer) for writer in range(writers)), publish, read)
        assert table.backfill_to_version() == writers * each
        assert len(paths(table)) == writers * each

    def test_r14_the_latest_version_never_goes_back(self, table: Table, another: Lake) -> None:
        def latest(got: TableVersions) -> int:
            return got.latest_version

        told = [latest(table.get_commits())]
        table.commit(1, [add("a")])
        told.append(latest(table.get_commits()))
        left_unpublished(table, 2)
        told.append(latest(table.get_commits()))
        table.backfill_to_version()
        told.append(latest(table.get_commits()))
        told.append(latest(another.table(table.key).get_commits()))
        assert told == [0, 1, 3, 3, 3]

    def test_r15_a_reader_joins_what_is_published_with_what_the_owner_tells(self, table: Table) -> None:
        table.append_actions([add("of-1")])
        got = left_unpublished(table, 2)
        assert not log_file(table, 2).exists()
        assert [one.version for one in got.commits][-2:] == [2, 3]
        assert paths(table) == ["of-1", "of-2", "of-3"]
        table.backfill_to_version(2)
        assert paths(table) == ["of-1", "of-2", "of-3"]

    def test_r15_a_gap_that_stays_is_an_error(self, table: Table, another: Lake) -> None:
        for number in range(1, 5):
            table.append_actions([add(f"{number}")])
            table.backfill_to_version()
        assert table.get_commits().published >= 3
        log_file(table, 2).unlink()
        with pytest.raises(LogGap, match="2"):
            another.table(table.key).snapshot()

    def test_r17_a_reader_that_knows_no_owner_sees_what_is_published(
        self, lake: Lake, table: Table, dev: str
    ) -> None:
        table.append(rows(1))
        table.backfill_to_version()
        seen = foreign_paths(table)
        lake.branch(dev).create()
        lake.table(table.key, dev).append(rows(2))
        lake.table(table.key, dev).backfill_to_version()
        left_unpublished(table, 2)
        self.leave_a_staged_file(root_of(table), 2)
        assert (foreign_version(table), foreign_paths(table)) == (1, seen)
        table.backfill_to_version()
        assert (foreign_version(table), foreign_paths(table)) == (3, sorted([*seen, "of-2", "of-3"]))

    @staticmethod
    def leave_a_staged_file(root: Path, version: int) -> None:
        folder = root / "_delta_log" / "_commits"
        folder.mkdir(exist_ok=True)
        (folder / f"{version:020}.{uuid4()}.json").write_text(json.dumps(add("stray")))
