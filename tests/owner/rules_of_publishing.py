"""R18 to R23: how what is ratified gets into the table's own log."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import pytest

from penstock.errors import ForeignCommit, InvalidRequest, OutOfSync, Throttled
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.testing.threads import at_once
from tests.owner.orders import (
    add,
    aged,
    blocked,
    foreign_paths,
    foreign_version,
    left_unpublished,
    let_look,
    log_file,
    paths,
    published_versions,
    root_of,
    staged_names,
    unpublished,
)


class RulesOfPublishing:
    def test_r18_a_version_is_published_only_after_those_before_it(self, table: Table) -> None:
        left_unpublished(table, 5)
        with blocked(table, 3):
            for version in (2, 1, 2):
                assert table.backfill_to_version(version) == 2
            for beyond in (3, 4, None):
                with pytest.raises(ForeignCommit, match="version 3"):
                    table.backfill_to_version(beyond)
            assert published_versions(table) == [0, 1, 2, 3]
        assert (foreign_version(table), foreign_paths(table)) == (2, ["of-1", "of-2"])
        assert table.backfill_to_version() == foreign_version(table) == 5

    def test_r18_one_that_was_taken_away_is_there_again_before_the_next_one(
        self, table: Table, another: Lake
    ) -> None:
        left_unpublished(table, 3)
        table.backfill_to_version(2)
        log_file(table, 2).unlink()
        assert another.table(table.key).backfill_to_version() == 3
        assert published_versions(table) == [0, 1, 2, 3]

    def test_r19_what_is_published_is_what_was_ratified_byte_for_byte(self, table: Table) -> None:
        line = '{"add": {"path":"own-spelling", "partitionValues":{},"size":1 ,"modificationTime":0,'
        line += '"dataChange":true, "unknown":{"kept":[1, 2]}}}'
        with unpublished(table):
            table.append_actions(line)
        table.commit(2, [add("a")])
        root = root_of(table)
        ratified = {one.version: (root / one.name).read_bytes() for one in table.get_commits(1).commits}
        assert line.encode() in ratified[1].splitlines()
        table.backfill_to_version()
        assert {one: log_file(table, one).read_bytes() for one in (1, 2)} == ratified

    def test_r19_what_somebody_else_put_there_is_not_replaced(self, lake: Lake, table: Table) -> None:
        let_look(table)
        with blocked(table, 1) as foreign:
            was = foreign.read_bytes()
            table.append_actions([add("a")])
            with pytest.raises(ForeignCommit, match=foreign.name):
                table.backfill_to_version()
            (status,) = lake.delta.status(table.key)
            assert foreign.name in status.alarm
            with pytest.raises(OutOfSync, match=f"{foreign.name}(.|\n)*penstock resync {table.key}"):
                table.append_actions([add("b")])
            assert (status.latest_version, status.published, foreign.read_bytes()) == (1, 0, was)
            assert table.get_commits().latest_version == 1
        assert table.backfill_to_version() == 1
        assert foreign_paths(table) == ["a"]
        assert table.append_actions([add("b")]).version == 2

    def test_r19_a_merge_lands_once_what_somebody_else_put_there_is_gone(
        self, lake: Lake, table: Table, dev: str
    ) -> None:
        lake.branch(dev).create().table(table.key).append_actions([add("b")])
        with unpublished(table):
            table.append_actions([add("a")])
        lake.merge(dev)
        assert paths(table) == ["a", "b"]
        assert table.backfill_to_version() == 2

    def test_r20_what_is_not_published_stays_available(self, table: Table, another: Lake) -> None:
        left_unpublished(table, 20)
        assert [one.version for one in table.get_commits(1).commits] == list(range(1, 21))
        table.backfill_to_version(7)
        assert paths(another.table(table.key)) == sorted(f"of-{number}" for number in range(1, 21))

    @pytest.mark.parametrize("version", [-1, 3, 4])
    def test_r20_no_more_is_published_than_was_ratified(self, table: Table, version: int) -> None:
        left_unpublished(table, 2)
        with pytest.raises(InvalidRequest, match="the latest is 2"):
            table.backfill_to_version(version)
        assert published_versions(table) == [0]

    def test_r20_what_is_published_already_changes_nothing(self, table: Table) -> None:
        left_unpublished(table, 3)
        assert [table.backfill_to_version(version) for version in (3, 3, 2, 0)] == [3] * 4
        was = [log_file(table, version).stat().st_mtime_ns for version in range(4)]
        assert table.backfill_to_version() == 3
        assert [log_file(table, version).stat().st_mtime_ns for version in range(4)] == was

    def test_r21_when_publishing_is_answered_all_of_it_is_there(self, table: Table, another: Lake) -> None:
        left_unpublished(table, 12)
        other = another.table(table.key)
        asked = [3, 12, 7, 12, 5]

        def publish(one: Table, version: int) -> bool:
            told = one.backfill_to_version(version)
            there = published_versions(one)
            return told >= version and there[: version + 1] == list(range(version + 1))

        work = [partial(publish, one, version) for version in asked for one in (table, other)]
        assert all(at_once(*work))
        assert published_versions(table) == list(range(13))

    def test_r22_anybody_publishes_what_somebody_else_ratified(self, table: Table, another: Lake) -> None:
        left_unpublished(table, 3)
        assert another.table(table.key).backfill_to_version() == 3
        assert foreign_paths(table) == ["of-1", "of-2", "of-3"]

    def test_r22_who_repeats_an_attempt_elsewhere_has_it_published(self, table: Table, another: Lake) -> None:
        attempt = uuid4()
        with unpublished(table):
            table.commit(1, [add("a")], attempt=attempt)
        assert another.table(table.key).commit(1, [add("a")], attempt=attempt).tables[0].repeated
        assert foreign_paths(table) == ["a"]

    def test_r22_what_waits_to_be_published_is_bounded(self, table: Table, narrow: Lake) -> None:
        mine = narrow.table(table.key)
        with unpublished(mine):
            mine.append_actions([add("0")])
        for number in (1, 2):
            mine.append_actions([add(f"{number}")])
        with pytest.raises(Throttled, match="3 versions"):
            mine.append_actions([add("too-many")])
        with pytest.raises(Throttled, match="3 versions"):
            mine.commit(4, [add("too-many")])
        assert mine.get_commits().latest_version == 3
        assert published_versions(mine) == [0]
        assert mine.backfill_to_version() == 3
        assert mine.append_actions([add("3")]).version == 4
        assert paths(table) == ["0", "1", "2", "3"]

    def test_r23_staged_files_go_once_their_version_is_published_and_they_are_old(
        self, lake: Lake, table: Table
    ) -> None:
        table.commit(1, [add("a")])
        table.commit(2, [add("b")])
        table.backfill_to_version()
        folder = root_of(table) / "_delta_log" / "_commits"
        old = [folder / f"{version:020}.{uuid4()}.json" for version in (1, 2, 3, 9)]
        for one in old:
            one.write_text("lost")
        for one in folder.iterdir():
            aged(one, 2)
        fresh = folder / f"{1:020}.{uuid4()}.json"
        fresh.write_text("lost a moment ago")
        tried = lake.delta.clean_log(table.key, dry_run=True)
        assert set(tried.names) == {f"_delta_log/_commits/{one}" for one in staged_names(table)} - {
            f"_delta_log/_commits/{one.name}" for one in (fresh, *old[2:])
        }
        assert lake.delta.clean_log(table.key).names == tried.names
        assert staged_names(table) == sorted(one.name for one in (fresh, *old[2:]))
        assert paths(table) == foreign_paths(table) == ["a", "b"]
