"""What merges make of a Delta table's rows, and how another engine reads its log afterwards (rules K2, D3).

Every case starts from a table with the ids 1 to 6 at version 3, changed by main and by a branch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.kernel.merge import MergeRequest
from penstock.model.references import Reference
from tests.formats.delta.sides import KEY, Side, create, foreign_changes, foreign_ids, log

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
Work = Callable[[Side], object]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        yield lake


class Case(NamedTuple):
    """What main and a branch do, and the rows afterwards; or what the refusal says."""

    main: Work
    dev: Work
    ids: list[int] | None = None
    told: tuple[str, ...] = ()
    properties: Mapping[str, str] = MappingProxyType({})


LANDS = {
    "append, append": Case(lambda main: main.append(7), lambda dev: dev.append(8), [1, 2, 3, 4, 5, 6, 7, 8]),
    "append, delete in other files": Case(
        lambda main: main.append(7), lambda dev: dev.delete(1), [2, 3, 4, 5, 6, 7]
    ),
    "delete in other files, append": Case(
        lambda main: main.delete(1), lambda dev: dev.append(7), [2, 3, 4, 5, 6, 7]
    ),
    "append, delete after a look at the day": Case(
        lambda main: main.append(7), lambda dev: dev.delete(1, where_day="mon"), [2, 3, 4, 5, 6, 7]
    ),
    "delete, delete in different files": Case(
        lambda main: main.delete(1), lambda dev: dev.delete(3), [2, 4, 5, 6]
    ),
    "delete of a day, delete of another": Case(
        lambda main: main.delete(1, 2, where_day="mon"),
        lambda dev: dev.delete(5, 6, where_day="tue"),
        [3, 4],
    ),
    "overwrite of a day, overwrite of another": Case(
        lambda main: main.overwrite(7, day="mon"), lambda dev: dev.overwrite(8, day="tue"), [7, 8]
    ),
    "append, overwrite": Case(lambda main: main.append(7), lambda dev: dev.overwrite(8), [8]),
    "overwrite, append": Case(lambda main: main.overwrite(7), lambda dev: dev.append(8), [7, 8]),
    "overwrite, overwrite": Case(lambda main: main.overwrite(7), lambda dev: dev.overwrite(8), [8]),
    "append, overwrite of a day": Case(
        lambda main: main.append(7, day="tue"), lambda dev: dev.overwrite(8, day="tue"), [1, 2, 3, 4, 8]
    ),
    "append, compaction": Case(
        lambda main: main.append(7), lambda dev: dev.compact("mon"), [1, 2, 3, 4, 5, 6, 7]
    ),
    "compaction, append": Case(
        lambda main: main.compact("mon"), lambda dev: dev.append(7), [1, 2, 3, 4, 5, 6, 7]
    ),
    "compaction of a day, delete in another": Case(
        lambda main: main.compact("mon"), lambda dev: dev.delete(5), [1, 2, 3, 4, 6]
    ),
    "vectors of different files": Case(
        lambda main: main.mask(1), lambda dev: dev.mask(3), [2, 4, 5, 6], properties=VECTORS
    ),
    "append, vector": Case(
        lambda main: main.append(7), lambda dev: dev.mask(1), [2, 3, 4, 5, 6, 7], properties=VECTORS
    ),
    "append, two vectors of one file": Case(
        lambda main: main.append(7),
        lambda dev: (dev.mask(1), dev.mask(2)),
        [3, 4, 5, 6, 7],
        properties=VECTORS,
    ),
    "append, new column": Case(
        lambda main: main.append(7), lambda dev: dev.add_column("note"), [1, 2, 3, 4, 5, 6, 7]
    ),
    "new column, append": Case(
        lambda main: main.add_column("note"), lambda dev: dev.append(7), [1, 2, 3, 4, 5, 6, 7]
    ),
    "new column, delete": Case(
        lambda main: main.add_column("note"), lambda dev: dev.delete(1), [2, 3, 4, 5, 6]
    ),
    "new column, overwrite": Case(lambda main: main.add_column("note"), lambda dev: dev.overwrite(7), [7]),
    "columns on both sides": Case(
        lambda main: main.add_column("note"),
        lambda dev: (dev.add_column("price"), dev.append(7)),
        [1, 2, 3, 4, 5, 6, 7],
    ),
    "property, append that knows of none": Case(
        lambda main: main.set_property("delta.checkpointPolicy", "classic"),
        lambda dev: dev.append(7),
        [1, 2, 3, 4, 5, 6, 7],
    ),
    "batches of two applications": Case(
        lambda main: main.batch("a", 1, 7), lambda dev: dev.batch("b", 1, 8), [1, 2, 3, 4, 5, 6, 7, 8]
    ),
    "with a feed: append, delete": Case(
        lambda main: main.append(7),
        lambda dev: dev.delete(1, feed=True),
        [2, 3, 4, 5, 6, 7],
        properties=FEED,
    ),
    "with a feed: two deletes": Case(
        lambda main: main.append(7),
        lambda dev: (dev.delete(1, feed=True), dev.delete(3, feed=True)),
        [2, 4, 5, 6, 7],
        properties=FEED,
    ),
    "append, append and delete of it": Case(
        lambda main: main.append(7), lambda dev: (dev.append(8, 9), dev.delete(8)), [1, 2, 3, 4, 5, 6, 7, 9]
    ),
}


@pytest.mark.parametrize("case", LANDS.values(), ids=LANDS.keys())
def test_both_sides_land_and_the_second_is_one_version_on_top(case: Case, lake: Lake) -> None:
    main = create(lake, properties=case.properties)
    dev = Side(lake, "dev")
    case.main(main)
    case.dev(dev)
    before, version = log(lake), main.table.version
    result = dev.merge()
    assert main.ids() == foreign_ids(lake) == case.ids
    after = log(lake)
    assert list(after)[-1] == f"{version + 1:020}.json"
    assert (len(after), after | before) == (len(before) + 1, after), "one version more, and no other changed"
    assert (result.applied, len(result.commits), dev.merge().applied) == (True, 1, False)


REFUSED = {
    "delete, delete in the same file": Case(
        lambda main: main.delete(1),
        lambda dev: dev.delete(2),
        told=(
            r"version 4 \(DELETE\) removed day=mon/part-\S+ in day=mon, which the other side has read",
            "version 4 deleted rows in 1 file of day=mon",
            "since version 3 the other side deleted rows in 1 file of day=mon",
        ),
    ),
    "vectors of the same file": Case(
        lambda main: main.mask(1),
        lambda dev: dev.mask(2),
        told=(r"removed day=mon/part-\S+ in day=mon, which the other side has read or adds again",),
        properties=VECTORS,
    ),
    "compaction, delete in one of its files": Case(
        lambda main: main.compact("mon"),
        lambda dev: dev.delete(1),
        told=("version 4 rewrote 2 files of day=mon as 1 with the same rows",),
    ),
    "delete in one of its files, compaction": Case(
        lambda main: main.delete(1),
        lambda dev: dev.compact("mon"),
        told=("since version 3 the other side rewrote 2 files of day=mon as 1 with the same rows",),
    ),
    "overwrite, delete": Case(
        lambda main: main.overwrite(7),
        lambda dev: dev.delete(5, 6),
        told=(
            "version 4 replaced 3 files of day=mon, day=tue by 1",
            "since version 3 the other side removed 1 file of day=tue",
        ),
    ),
    "properties on both sides": Case(
        lambda main: main.set_property("owner", "etl"),
        lambda dev: dev.set_property("owner", "ada"),
        told=(
            r"version 4 \(SET TBLPROPERTIES\) changed the metadata \(owner\), as the other side does",
            "since version 3 the other side changed the metadata",
        ),
    ),
    "columns of one name on both sides": Case(
        lambda main: main.add_column("note"),
        lambda dev: dev.add_column("note", "long"),
        told=(r"version 4 \(ADD COLUMNS\) changed the metadata \(schemaString\), as the other side does",),
    ),
    "property, append": Case(
        lambda main: main.set_property("owner", "etl"),
        lambda dev: dev.append(7),
        told=("since version 3 the other side appended 1 file to day=mon",),
    ),
    "batches of one application": Case(
        lambda main: main.batch("a", 1, 7),
        lambda dev: dev.batch("a", 1, 8),
        told=(
            "recorded batch 1 of the application 'a', on which the other side depends",
            "version 4 appended 1 file to day=mon and recorded batch 1 of the application 'a'",
        ),
    ),
    "serializable: append, delete after a look at the day": Case(
        lambda main: main.append(7),
        lambda dev: dev.delete(1, where_day="mon"),
        told=(
            r"version 4 \(WRITE\) appended day=mon/part-\S+ in day=mon, which the other side would have read",
        ),
        properties={"delta.isolationLevel": "Serializable"},
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_clashes_is_refused_with_both_sides_and_the_ways_out(case: Case, lake: Lake) -> None:
    main = create(lake, properties=case.properties)
    dev = Side(lake, "dev")
    case.main(main)
    case.dev(dev)
    before, head, ids = log(lake), lake.branch().head, main.ids()
    with pytest.raises(MergeConflict) as caught:
        dev.merge()
    assert (log(lake), lake.branch().head, foreign_ids(lake)) == (before, head, ids)
    (conflict,) = caught.value.conflicts
    assert (str(conflict.key), conflict.expected, conflict.found) == (KEY, "version 3", "version 4")
    for text in (*case.told, "to take one side", "to redo the work"):
        assert re.search(text, conflict.why), conflict.why
    assert dev.merge(keys={KEY: "force"}).applied
    assert main.ids() == foreign_ids(lake) == dev.ids(), "a way out that is told leads out"


# --- undoing ------------------------------------------------------------------------------------------------


LATER: dict[str, tuple[Work, list[int]]] = {
    "append": (lambda main: main.append(7), [1, 2, 3, 4, 5, 6, 7]),
    "delete": (lambda main: main.delete(5), [1, 2, 3, 4, 6]),
    "overwrite": (lambda main: main.overwrite(7), [7]),
    "overwrite of the day": (lambda main: main.overwrite(7, day="mon"), [5, 6, 7]),
    "column": (lambda main: main.add_column("note"), [1, 2, 3, 4, 5, 6]),
}


@pytest.mark.parametrize(("later", "ids"), LATER.values(), ids=LATER.keys())
def test_a_commit_is_undone_under_later_ones_or_once_they_are_undone(
    lake: Lake, later: Work, ids: list[int]
) -> None:
    """Whatever came after, nothing of what it said is undone with the older commit."""
    main = create(lake)
    main.delete(1, 2, 3, 4)
    undone, after = lake.branch().head, main.ids()
    later(main)
    newest, now = lake.branch().head, main.ids()
    if lake.revert(undone).commits:
        assert main.ids() == foreign_ids(lake) == ids
        lake.revert("main")
    assert main.ids() == now
    lake.revert(newest)
    assert main.ids() == foreign_ids(lake) == after
    lake.revert(undone)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6]
    lake.revert("main")
    assert main.ids() == after
    lake.revert(undone)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6]


def test_all_that_came_after_a_commit_is_undone_at_once_by_force(lake: Lake) -> None:
    main = create(lake)
    main.delete(1, 2)
    undone = lake.branch().head
    main.append(7)
    lake.revert(undone, keys={KEY: "force"})
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6]


def test_an_overwrite_that_found_and_left_nothing_is_not_undone_with_an_older_commit(lake: Lake) -> None:
    main = create(lake)
    main.delete(5, 6)
    undone = lake.branch().head
    main.overwrite(day="tue")
    assert not lake.revert(undone).commits
    assert main.ids() == [1, 2, 3, 4]


# --- more than two sides, and more than once ---------------------------------------------------------------


def test_three_branches_land_one_after_the_other_each_as_one_version(lake: Lake) -> None:
    main = create(lake, "a", "b", "c")
    a, b, c = (Side(lake, name) for name in "abc")
    a.append(7)
    a.append(8, day="tue")
    b.delete(1)
    c.overwrite(9, day="tue")
    for side, ids in ((a, [*range(1, 9)]), (b, [*range(2, 9)]), (c, [2, 3, 4, 7, 9])):
        version = main.table.version
        side.merge()
        assert (main.table.version, main.ids(), foreign_ids(lake)) == (version + 1, ids, ids)


def test_a_branch_merged_again_brings_only_what_is_new(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.append(7)
    dev.merge()
    main.delete(7)
    dev.append(8)
    dev.merge()
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6, 8], "and not what was deleted since"
    assert main.table.version == 6


def test_a_third_branch_meets_what_the_second_has_deleted(lake: Lake) -> None:
    main = create(lake, "a", "b")
    a, b = Side(lake, "a"), Side(lake, "b")
    a.delete(1)
    b.delete(2)
    a.merge()
    with pytest.raises(MergeConflict, match=r"version 4 \(MERGE BRANCH\) removed"):
        b.merge()
    assert main.ids() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("clashes", [False, True], ids=["beside it", "in the same file"])
def test_what_lands_between_the_rehearsal_of_a_merge_and_its_turn_counts(
    clashes: bool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.delete(1)
    prepare = MergeRequest.prepare
    overtaken: list[bool] = []

    def overtaking(request: MergeRequest, reference: Reference) -> None:
        prepare(request, reference)
        if not overtaken:
            overtaken.append(True)
            main.delete(2 if clashes else 3)

    monkeypatch.setattr(MergeRequest, "prepare", overtaking)
    if clashes:
        with pytest.raises(MergeConflict, match="the other side has read or adds again"):
            dev.merge()
        expected = [1, 3, 4, 5, 6]
    else:
        dev.merge()
        expected = [2, 4, 5, 6]
    assert overtaken
    assert main.ids() == foreign_ids(lake) == expected


def test_with_a_feed_commits_that_have_files_of_it_land_apart_from_those_that_have_none(lake: Lake) -> None:
    main = create(lake, properties=FEED)
    dev = Side(lake, "dev")
    dev.append(7)
    dev.delete(1, feed=True)
    dev.merge()
    assert (main.table.version, foreign_ids(lake)) == (5, [2, 3, 4, 5, 6, 7])
    assert foreign_changes(lake, since=4) == [("delete", 1), ("insert", 7)]


def test_several_versions_of_a_merge_with_a_feed_are_one_commit_of_the_lake(lake: Lake) -> None:
    main = create(lake, properties=FEED)
    dev = Side(lake, "dev")
    dev.append(7)
    dev.append(8)
    dev.delete(1, feed=True)
    dev.delete(3, feed=True)
    dev.append(9)
    before, version = lake.branch().head, main.table.version
    result = dev.merge()
    assert (len(result.commits), lake.log("main", limit=1)[0].parents[0]) == (1, before)
    assert main.table.version == version + 3
    by_version = [foreign_changes(lake, since=version + number) for number in (3, 2, 1)]
    assert by_version[0] == [("insert", 9)]
    assert by_version[1] == [("delete", 1), ("delete", 3), ("insert", 9)]
    assert by_version[2] == [("delete", 1), ("delete", 3), ("insert", 7), ("insert", 8), ("insert", 9)]
    assert main.ids() == foreign_ids(lake) == [2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda side: side.delete(14), [13]),
        (lambda side: side.mask(14), [13]),
        (lambda side: side.remove_unread(13, 14), []),
        (lambda side: side.compact("tue"), [13, 14]),
    ],
    ids=["rewritten", "by a vector", "removed", "compacted"],
)
def test_files_of_an_overwrite_that_both_sides_have_go_where_one_side_changed_them_since(
    lake: Lake, change: Callable[[Side], object], left: list[int]
) -> None:
    main = create(lake, "dev", "fix", properties={"delta.enableDeletionVectors": "true"})
    dev, fix = Side(lake, "dev"), Side(lake, "fix")
    dev.append(11)
    fix.overwrite(13, 14, day="tue")
    fix.merge("dev")
    dev.merge("fix")
    dev.append(15)
    dev.merge("fix")
    change(fix)
    fix.merge("dev")
    expected = sorted([1, 2, 3, 4, 11, 15, *left])
    assert dev.ids() == fix.ids() == expected
    dev.merge()
    assert main.ids() == foreign_ids(lake) == expected
