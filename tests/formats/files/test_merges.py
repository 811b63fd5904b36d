"""Two branches that changed the same table of files: what a merge makes of them (rule K2)."""

from __future__ import annotations

import pytest

from penstock import Delete, Key, KeyMerge, Lake, MergeMode, Put
from penstock.errors import InvalidRequest, MergeConflict
from penstock.formats.files.intents import WriteCondition
from penstock.kernel.format import CLASHES_MAX
from penstock.model.merges import HowToMerge
from tests.formats.files.lakes import EVENTS, address, identity, overwrite, paths, write

TABLE = Key.parse(EVENTS)


def conflicts(lake: Lake, source: str = "dev", into: str = "main", **how: object) -> list[str]:
    """What stands in the way of a merge, which must be the same as a dry run says."""
    with pytest.raises(MergeConflict) as refused:
        lake.merge(source, into, **how)  # type: ignore[arg-type]
    preview = lake.merge(source, into, dry_run=True, **how)  # type: ignore[arg-type]
    assert preview.conflicts == refused.value.conflicts
    return [str(one) for one in refused.value.conflicts]


# -- writes on two sides -----------------------------------------------------------------------------------


def test_append_with_append_is_the_union(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev")
    write(forked, "day=1/c")
    forked.merge("dev")
    assert paths(forked) == ["day=1/a", "day=1/b", "day=1/c", "day=2/a"]


def test_overwrite_with_overwrite_is_never_a_union(forked: Lake) -> None:
    overwrite(forked, "day=1/b", "day=3/b", branch="dev")
    overwrite(forked, "day=1/c", "day=4/c")
    forked.merge("dev")
    assert paths(forked) == ["day=1/b", "day=3/b"]


def test_an_overwrite_takes_what_was_appended_on_the_other_side(forked: Lake) -> None:
    overwrite(forked, "day=1/b", branch="dev")
    write(forked, "day=1/c", "day=9/c")
    forked.merge("dev")
    assert paths(forked) == ["day=1/b"]


def test_an_append_comes_on_top_of_the_other_sides_overwrite(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev")
    overwrite(forked, "day=1/c")
    forked.merge("dev")
    assert paths(forked) == ["day=1/b", "day=1/c"]


def test_a_partition_that_both_replaced_is_one_jobs(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev", replaced=["day=1/"])
    write(forked, "day=1/c", "day=2/c", replaced=["day=1/", "day=2/"])
    forked.merge("dev")
    assert paths(forked) == ["day=1/b", "day=2/c"]


def test_partitions_that_one_side_each_replaced_are_both_sides(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev", replaced=["day=1/"])
    write(forked, "day=2/c", replaced=["day=2/"])
    forked.merge("dev")
    assert paths(forked) == ["day=1/b", "day=2/c"]


def test_a_folder_is_not_the_one_whose_name_begins_alike(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev", replaced=["day=1/"])
    write(forked, "day=11/c")
    forked.merge("dev")
    assert paths(forked) == ["day=1/b", "day=11/c", "day=2/a"]


def test_a_folder_in_a_folder_that_was_replaced_is_replaced_too(forked: Lake) -> None:
    write(forked, "day=1/hour=2/b", branch="dev", replaced=["day=1/hour=2/"])
    write(forked, "day=1/b", branch="dev", replaced=["day=1/"])
    write(forked, "day=1/hour=2/c", "day=1/hour=3/c")
    forked.merge("dev")
    assert paths(forked) == ["day=1/b", "day=2/a"]


def test_error_if_there_are_files_has_one_winner_on_two_branches(lake: Lake) -> None:
    write(lake, "a")
    write(lake, removed=["a"])
    lake.branch("dev").create()
    write(lake, "b", branch="dev", when=WriteCondition.EMPTY)
    write(lake, "c", when=WriteCondition.EMPTY)
    (told,) = conflicts(lake)
    assert "has files now, but the other side wrote to it on the condition that it is empty" in told
    assert paths(lake) == ["c"]


def test_a_write_that_is_ignored_where_there_are_files_is_ignored_by_a_merge(lake: Lake) -> None:
    write(lake, "a")
    write(lake, removed=["a"])
    lake.branch("dev").create()
    write(lake, "b", branch="dev", when=WriteCondition.IGNORE, written_as="csv")
    write(lake, "c")
    before = lake.at("main").get(EVENTS)
    assert lake.merge("dev").applied
    assert lake.at("main").get(EVENTS) == before
    assert not lake.merge("dev").applied


def test_the_later_marker_of_success_counts(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev", put=["_SUCCESS"])
    write(forked, "day=1/c", put=["_SUCCESS"])
    forked.merge("dev")
    assert address(forked, "_SUCCESS") == address(forked, "_SUCCESS", "dev")


# -- conflicts by path -------------------------------------------------------------------------------------


def test_a_conflict_names_each_path_that_both_changed(forked: Lake) -> None:
    write(forked, "day=3/a", branch="dev", put=["day=1/a"], removed=["day=2/a"])
    write(forked, "day=3/a", put=["day=1/a", "day=2/a"])
    with pytest.raises(MergeConflict) as refused:
        forked.merge("dev")
    assert [one.path for one in refused.value.conflicts] == ["day=1/a", "day=2/a", "day=3/a"]
    assert str(refused.value.conflicts[2]).startswith(
        "'raw.events' was changed on both sides at 'day=3/a' (expected no file, found "
    )


def test_a_conflict_says_how_many_paths_it_does_not_name(forked: Lake) -> None:
    names = [f"day=1/{number:03}" for number in range(CLASHES_MAX + 7)]
    write(forked, *names, branch="dev")
    write(forked, *names)
    told = conflicts(forked)
    assert len(told) == CLASHES_MAX + 1
    assert told[-1] == "'raw.events' was changed on both sides at 7 further paths"


def test_the_same_bytes_on_both_sides_are_no_conflict(forked: Lake) -> None:
    write(forked, "day=3/a", branch="dev", checksum="sha256:1")
    write(forked, "day=3/a", checksum="sha256:1")
    here = address(forked, "day=3/a")
    forked.merge("dev")
    assert address(forked, "day=3/a") == here


def test_files_of_two_formats_do_not_come_together(lake: Lake) -> None:
    write(lake, "a", written_as="parquet")
    lake.branch("dev").create()
    write(lake, "b", branch="dev")
    write(lake, "c", replaced=[""], written_as="csv")
    (told,) = conflicts(lake)
    assert "has files of the format 'csv' here, but the other side has 'parquet'" in told


@pytest.mark.parametrize("columns", [("hour",), ()], ids=["others", "none"])
def test_files_of_two_kinds_of_partitions_do_not_come_together(lake: Lake, columns: tuple[str, ...]) -> None:
    lake.branch("dev").create()
    write(lake, "day=1/a", branch="dev", written_as="parquet", partition_by=("day",))
    write(lake, "b", written_as="parquet", partition_by=columns)
    (told,) = conflicts(lake)
    kind = "partitioned by hour" if columns else "without partitions"
    assert f"has files {kind} here, but the other side has files partitioned by day" in told


# -- settling them -----------------------------------------------------------------------------------------


def test_a_folder_is_taken_from_the_source_as_it_is_there(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev", put=["day=2/a"])
    write(forked, "day=1/c", put=["day=1/a"], removed=["day=2/a"])
    forked.merge("dev", keys={EVENTS: {"day=1/": "force", "day=2/": "drop"}})
    assert paths(forked) == ["day=1/a", "day=1/b"]
    assert address(forked, "day=1/a") == address(forked, "day=1/a", "dev")


def test_the_longest_folder_says_how_a_path_is_merged(forked: Lake) -> None:
    write(forked, "day=1/x/b", "day=1/y/b", branch="dev", put=["day=1/a"])
    write(forked, "day=1/x/c", "day=1/y/c", put=["day=1/a"])
    forked.merge("dev", keys={EVENTS: {"": "drop", "day=1/": "force", "day=1/x/": "normal"}})
    assert paths(forked) == ["day=1/a", "day=1/x/b", "day=1/x/c", "day=1/y/b", "day=2/a"]
    assert address(forked, "day=1/a") == address(forked, "day=1/a", "dev")


def test_a_folder_is_left_although_only_the_source_changed_it(forked: Lake) -> None:
    write(forked, "day=1/b", "day=2/b", branch="dev")
    forked.merge("dev", keys={EVENTS: {"day=1/": "drop"}})
    assert paths(forked) == ["day=1/a", "day=2/a", "day=2/b"]


def test_a_folder_is_left_although_the_source_replaced_the_table(forked: Lake) -> None:
    overwrite(forked, "day=1/b", "day=3/b", branch="dev")
    write(forked, "day=1/c", "day=4/c")
    forked.merge("dev", keys={EVENTS: {"day=1/": "drop"}})
    assert paths(forked) == ["day=1/a", "day=1/c", "day=3/b"]


@pytest.mark.parametrize("mode", ["force", "drop"])
def test_a_table_is_taken_from_one_side(forked: Lake, mode: str) -> None:
    write(forked, branch="dev", put=["day=1/a"])
    write(forked, "day=5/c", put=["day=1/a"])
    wanted = paths(forked, "dev" if mode == "force" else "main")
    forked.merge("dev", keys={EVENTS: mode})
    assert paths(forked) == wanted


def test_a_table_takes_a_content_that_is_one_sides(forked: Lake) -> None:
    write(forked, branch="dev", put=["day=1/a"])
    write(forked, "day=5/c", put=["day=1/a"])
    given = forked.at("dev").get(EVENTS)
    forked.merge("dev", keys={EVENTS: KeyMerge(content=given)})
    assert paths(forked) == paths(forked, "dev")


@pytest.mark.parametrize("prefix", ["/", "../", "a//"])
def test_what_is_no_folder_cannot_be_settled(forked: Lake, prefix: str) -> None:
    write(forked, "day=1/b", branch="dev")
    with pytest.raises(InvalidRequest):
        forked.merge("dev", keys={EVENTS: {prefix: "force"}})
    with pytest.raises(InvalidRequest):
        forked.merge("dev", keys={EVENTS: KeyMerge(paths={prefix: MergeMode.FORCE})})


def test_a_table_is_settled_as_a_whole_or_by_its_folders(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev")
    both = KeyMerge(mode=MergeMode.DROP, paths={"day=1/": MergeMode.FORCE})
    with pytest.raises(InvalidRequest, match="give one or the other"):
        forked.merge("dev", keys={EVENTS: both})


# -- tables that come and go -------------------------------------------------------------------------------


def test_two_first_jobs_on_two_branches_make_one_table(lake: Lake) -> None:
    """There is no place that they could fight for, so that it is an append with an append."""
    lake.branch("dev").create()
    write(lake, "a", branch="dev")
    write(lake, "b")
    here = identity(lake)
    lake.merge("dev")
    assert (paths(lake), identity(lake)) == (["a", "b"], here)
    write(lake, "c", branch="dev")
    write(lake, "d")
    lake.merge("dev")
    assert (paths(lake), identity(lake)) == (["a", "b", "c", "d"], here)
    lake.merge("main", "dev")
    assert (paths(lake, "dev"), identity(lake, "dev")) == (["a", "b", "c", "d"], here)


def test_two_first_jobs_that_overwrite_leave_one_jobs_files(lake: Lake) -> None:
    lake.branch("dev").create()
    overwrite(lake, "a", branch="dev")
    overwrite(lake, "b")
    lake.merge("dev")
    assert paths(lake) == ["a"]


def test_two_first_jobs_that_want_no_table_to_be_there_do_not_meet(lake: Lake) -> None:
    lake.branch("dev").create()
    write(lake, "a", branch="dev", when=WriteCondition.EMPTY)
    write(lake, "b", when=WriteCondition.EMPTY)
    assert len(conflicts(lake)) == 1


def test_a_table_that_was_created_anew_here_is_another_one(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev")
    forked.commit([Delete(TABLE)])
    write(forked, "new")
    (told,) = conflicts(forked)
    assert "is a different table on the other side" in told
    assert paths(forked) == ["new"]


def test_a_table_that_was_created_anew_there_is_another_one(forked: Lake) -> None:
    forked.commit([Delete(TABLE)], branch="dev")
    write(forked, "new", branch="dev")
    write(forked, "day=1/c")
    assert len(conflicts(forked)) == 1
    forked.merge("dev", keys={EVENTS: "force"})
    assert (paths(forked), identity(forked)) == (["new"], identity(forked, "dev"))


@pytest.mark.parametrize("dropped", ["main", "dev"])
def test_a_table_that_one_side_dropped_and_the_other_changed_is_a_conflict(
    forked: Lake, dropped: str
) -> None:
    changed = "dev" if dropped == "main" else "main"
    forked.commit([Delete(TABLE)], branch=dropped)
    write(forked, "day=1/b", branch=changed)
    (told,) = conflicts(forked)
    assert "was dropped on one side and changed on the other" in told


def test_a_table_that_was_renamed_goes_on_under_its_new_name(forked: Lake) -> None:
    content = forked.at("dev").get(EVENTS)
    assert content is not None
    forked.commit([Delete(TABLE), Put(Key.parse("raw.clicks"), content)], branch="dev")
    write(forked, "day=1/b", branch="dev", key="raw.clicks")
    forked.merge("dev")
    assert paths(forked, key="raw.clicks") == ["day=1/a", "day=1/b", "day=2/a"]
    assert forked.at("main").get(EVENTS) is None
    write(forked, "day=1/c", key="raw.clicks")
    write(forked, "day=1/d", branch="dev", key="raw.clicks")
    forked.merge("dev")
    assert paths(forked, key="raw.clicks") == ["day=1/a", "day=1/b", "day=1/c", "day=1/d", "day=2/a"]


# -- sides that met before ---------------------------------------------------------------------------------


def test_a_second_merge_brings_only_what_is_new(forked: Lake) -> None:
    overwrite(forked, "b", branch="dev")
    forked.merge("dev")
    write(forked, "c")
    write(forked, "d", branch="dev")
    forked.merge("dev")
    assert paths(forked) == ["b", "c", "d"], "the overwrite is behind both sides"


def test_an_overwrite_that_took_in_the_other_side_leaves_what_came_after_that(forked: Lake) -> None:
    overwrite(forked, "b", branch="dev")
    write(forked, "c")
    forked.merge("main", "dev")
    assert paths(forked, "dev") == ["b", "c"]
    write(forked, "d")
    forked.merge("dev")
    assert paths(forked) == ["b", "c", "d"]


def test_two_overwrites_between_which_the_sides_met_are_a_conflict(forked: Lake) -> None:
    overwrite(forked, "b", branch="dev")
    write(forked, "c")
    forked.merge("main", "dev")
    overwrite(forked, "d")
    (told,) = conflicts(forked)
    assert "was overwritten on both sides, with merges between them in the meantime" in told
    forked.merge("dev", keys={EVENTS: {"": "drop"}})
    assert paths(forked) == ["d"]


def test_overwrites_of_two_partitions_between_which_the_sides_met_are_both_there(forked: Lake) -> None:
    write(forked, "day=1/b", branch="dev", replaced=["day=1/"])
    write(forked, "c")
    forked.merge("main", "dev")
    write(forked, "day=2/d", replaced=["day=2/"])
    forked.merge("dev")
    assert paths(forked) == ["c", "day=1/b", "day=2/d"]


def test_an_overwrite_after_the_sides_met_takes_what_is_there(forked: Lake) -> None:
    overwrite(forked, "b", branch="dev")
    write(forked, "c")
    forked.merge("main", "dev")
    overwrite(forked, "e", branch="dev")
    overwrite(forked, "d")
    forked.merge("dev")
    assert paths(forked) == ["e"]


def test_merges_that_crossed_are_merged_or_are_a_conflict(forked: Lake) -> None:
    write(forked, "b", branch="dev")
    write(forked, "c")
    ours, theirs = forked.branch("main").head, forked.branch("dev").head
    forked.merge(theirs, "main")
    forked.merge(ours, "dev")
    assert paths(forked) == paths(forked, "dev") == ["b", "c", "day=1/a", "day=2/a"]
    assert forked.merge("dev").applied
    write(forked, "d", branch="dev")
    forked.merge("dev")
    assert "d" in paths(forked)


# -- what was left out of an earlier merge -----------------------------------------------------------------


@pytest.fixture
def declined(forked: Lake) -> Lake:
    """An overwrite on a branch, and another branch to merge it into."""
    forked.branch("feature").create(at="dev")
    overwrite(forked, "day=1/f", "day=3/f", branch="feature")
    return forked


@pytest.mark.parametrize("how", ["drop", {"": "drop"}])
def test_an_overwrite_that_was_left_out_is_not_carried_out_later(declined: Lake, how: HowToMerge) -> None:
    """It is in the history of what is merged next, but not in its files."""
    write(declined, "day=1/d", branch="dev")
    declined.merge("feature", "dev", keys={EVENTS: how})
    write(declined, "day=1/c")
    (told,) = conflicts(declined)
    assert "not only by writes" in told
    assert paths(declined) == ["day=1/a", "day=1/c", "day=2/a"]


def test_an_overwrite_that_was_left_out_of_one_folder_is_not_carried_out_there_later(declined: Lake) -> None:
    write(declined, "day=1/d", branch="dev")
    declined.merge("feature", "dev", keys={EVENTS: {"day=1/": "drop"}})
    assert paths(declined, "dev") == ["day=1/a", "day=1/d", "day=3/f"]
    write(declined, "day=1/c")
    assert len(conflicts(declined)) == 1


def test_an_overwrite_that_was_left_out_of_a_transplant_is_not_carried_out_later(declined: Lake) -> None:
    declined.transplant("feature", "dev", keys={EVENTS: {"day=1/": "drop"}})
    write(declined, "day=1/c")
    assert len(conflicts(declined)) == 1


def test_appends_that_were_left_out_leave_nothing_to_remember(forked: Lake) -> None:
    forked.branch("feature").create(at="dev")
    write(forked, "day=1/f", branch="feature")
    forked.merge("feature", "dev", keys={EVENTS: "drop"})
    write(forked, "day=1/d", branch="dev")
    write(forked, "day=1/c")
    forked.merge("dev")
    assert paths(forked) == ["day=1/a", "day=1/c", "day=1/d", "day=2/a"]


def test_a_folder_that_was_taken_from_one_side_counts_as_replaced(forked: Lake) -> None:
    forked.branch("feature").create(at="dev")
    write(forked, "day=1/f", branch="feature")
    write(forked, "day=1/d", branch="dev")
    forked.merge("feature", "dev", keys={EVENTS: {"day=1/": "force"}})
    write(forked, "day=1/c", "day=2/c")
    forked.merge("dev")
    assert paths(forked) == ["day=1/a", "day=1/f", "day=2/a", "day=2/c"]
