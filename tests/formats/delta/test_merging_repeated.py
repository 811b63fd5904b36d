"""Changes that come a second time, by another way, and those whose terms nobody knows any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import MergeConflict, Throttled
from penstock.formats.delta.protocol.actions import Action, CommitInfo, write_commit
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.kernel.three_way import MergeOptions
from penstock.lake.table import Table
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.merges import MergeMode
from penstock.stores.memory import MemoryStore
from tests.formats.delta.managed import Owner, add, remove

META = CommitMeta(message="merge")


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(MemoryStore(), tmp_path)
    owner.create()
    owner.commit([add("base")])
    yield owner
    owner.close()


def head(owner: Owner, branch: str = "main") -> ObjectId:
    return owner.kernel.references.get_reference(branch).head


def merge(owner: Owner, source: str, into: str = "main") -> None:
    owner.kernel.merge(head(owner, source), into, META, MergeOptions())


def published(owner: Owner) -> set[str]:
    return {one.path for one in owner.published().read_files()}


# --- an overwrite that was brought before -------------------------------------------------------------------


def test_an_overwrite_that_was_rebased_is_not_done_again_by_a_branch_that_stood_on_it(owner: Owner) -> None:
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.branch("stacked", "dev")
    owner.commit([add("s1")], branch="stacked")
    owner.commit([add("m1")])
    owner.kernel.rebase("dev", head(owner), META)
    merge(owner, "dev")
    owner.commit([add("m2")])
    merge(owner, "stacked")
    assert owner.paths() == published(owner) == {"d1", "s1", "m2"}


def test_what_an_overwrite_took_of_its_own_branch_does_not_come_back_by_its_repetition(owner: Owner) -> None:
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("d2")], branch="dev", replaces=())
    owner.kernel.transplant([head(owner, "dev")], "main", META)
    owner.commit([add("m1")])
    merge(owner, "dev")
    assert owner.paths() == published(owner) == {"d2", "m1"}


def test_an_emptied_table_is_not_emptied_again(owner: Owner) -> None:
    owner.branch("dev")
    owner.commit([], branch="dev", replaces=())
    owner.kernel.transplant([head(owner, "dev")], "main", META)
    owner.commit([add("m1")])
    merge(owner, "dev")
    assert owner.paths() == published(owner) == {"m1"}


def test_a_table_is_emptied_although_its_files_were_compacted_meanwhile(owner: Owner) -> None:
    owner.branch("dev")
    owner.commit([], branch="dev", replaces=())
    compacted: list[Action] = [remove("base", data_change=False), add("all", data_change=False)]
    owner.commit(compacted, read_version=1, reads=DeltaReads(files=frozenset({"base"})))
    merge(owner, "dev")
    assert owner.paths() == published(owner) == set()


def test_an_overwrite_of_ones_own_takes_what_the_other_side_has(owner: Owner) -> None:
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.commit([add("m1")], replaces=())
    merge(owner, "dev")
    assert owner.paths() == published(owner) == {"d1"}


def test_an_emptied_table_is_not_emptied_again_though_its_files_were_others(owner: Owner) -> None:
    owner.branch("a")
    owner.branch("b")
    owner.commit([add("of-b")], branch="b")
    owner.commit([], branch="a", replaces=())
    owner.kernel.transplant([head(owner, "a")], "b", META)
    owner.commit([add("a1")], branch="a")
    assert owner.paths(branch="b") == set()
    merge(owner, "b", "a")
    assert owner.paths(branch="a") == {"a1"}


@pytest.mark.parametrize("is_published", [False, True], ids=["held", "forgotten"])
def test_a_replacement_is_known_after_it_was_merged_as_part_of_a_sum(
    owner: Owner, is_published: bool
) -> None:
    owner.branch("dev")
    owner.branch("rel")
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.kernel.transplant([head(owner, "dev")], "rel", META)
    compacted: list[Action] = [remove("d1", data_change=False), add("all", data_change=False)]
    owner.commit(compacted, branch="dev", read_version=2, reads=DeltaReads(files=frozenset({"d1"})))
    merge(owner, "dev")
    if is_published:
        owner.published()
    owner.commit([add("m1")])
    if is_published:
        assert owner.line().published == 2
    owner.commit([add("r1")], branch="rel")
    merge(owner, "rel")
    assert owner.paths() == published(owner) == {"all", "m1", "r1"}


def test_emptying_an_empty_table_takes_what_came_elsewhere_once(tmp_path: Path) -> None:
    owner = Owner(MemoryStore(), tmp_path)
    owner.create()
    owner.branch("dev")
    owner.branch("rel")
    owner.commit([], branch="dev", replaces=())
    owner.kernel.transplant([head(owner, "dev")], "rel", META)
    owner.commit([add("m1")])
    merge(owner, "dev")
    assert owner.paths() == set()
    owner.commit([add("m2")])
    merge(owner, "rel")
    assert owner.paths() == published(owner) == {"m2"}
    owner.close()


def test_a_replacement_that_found_nothing_to_take_is_known_too(owner: Owner) -> None:
    owner.branch("dev")
    owner.branch("rel")
    owner.commit([], branch="dev", replaces=())
    owner.kernel.transplant([head(owner, "dev")], "rel", META)
    owner.commit([remove("base")], read_version=1)
    merge(owner, "dev")
    owner.commit([add("m1")])
    owner.published()
    owner.commit([add("m2")])
    merge(owner, "rel")
    assert owner.paths() == published(owner) == {"m1", "m2"}


def test_an_earlier_overwrite_does_not_take_what_came_after_a_later_one_that_both_sides_have(
    owner: Owner,
) -> None:
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.commit([add("d2")], branch="dev", replaces=())
    owner.kernel.transplant([head(owner, "dev")], "main", META)
    owner.commit([add("m1")])
    owner.commit([add("d3")], branch="dev")
    merge(owner, "main", "dev")
    assert owner.paths(branch="dev") == {"d2", "d3", "m1"}


def test_a_file_that_came_after_an_overwrite_is_spared_by_it_wherever_both_are_brought(owner: Owner) -> None:
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.commit([add("m1")])
    owner.kernel.transplant([head(owner)], "dev", META)
    merge(owner, "main", "dev")
    owner.commit([add("m2")])
    merge(owner, "main", "dev")
    assert {"d1", "m1"} <= owner.paths(branch="dev")
    merge(owner, "dev")
    assert owner.paths() == published(owner) == owner.paths(branch="dev")


def test_a_replacement_that_came_by_force_is_not_done_again(owner: Owner) -> None:
    owner.branch("dev")
    owner.branch("rel")
    owner.commit([], branch="dev", replaces=())
    owner.kernel.transplant([head(owner, "dev")], "rel", META)
    owner.kernel.merge(head(owner, "dev"), "main", META, MergeOptions(default=MergeMode.FORCE))
    owner.commit([add("m1")])
    merge(owner, "rel")
    assert owner.paths() == published(owner) == {"m1"}


def test_a_file_that_was_brought_and_compacted_does_not_come_back_however_much_came_since(
    owner: Owner,
) -> None:
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev")
    owner.kernel.transplant([head(owner, "dev")], "main", META)
    compacted: list[Action] = [remove("d1", data_change=False), add("all", data_change=False)]
    owner.commit(compacted, read_version=2, reads=DeltaReads(files=frozenset({"d1"})))
    more = {f"m{number}" for number in range(260)}
    for name in sorted(more):
        owner.commit([add(name)])
    owner.commit([add("d2")], branch="dev")
    merge(owner, "dev")
    assert owner.paths() == {"base", "all", "d2", *more}


# --- what a transplant brings -------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["main", "other"])
def test_a_transplanted_overwrite_takes_what_the_branch_had(owner: Owner, source: str) -> None:
    owner.branch("dev")
    owner.branch("other")
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("new")], branch=source, replaces=())
    owner.kernel.transplant([head(owner, source)], "dev", META)
    assert owner.paths(branch="dev") == {"new"}


@pytest.mark.parametrize("source", ["main", "other"])
def test_a_transplanted_append_comes_after_an_overwrite_of_the_branch(owner: Owner, source: str) -> None:
    owner.branch("dev")
    owner.branch("other")
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.commit([add("new")], branch=source)
    owner.kernel.transplant([head(owner, source)], "dev", META)
    assert owner.paths(branch="dev") == {"d1", "new"}


def test_a_transplanted_merge_does_not_pass_for_the_overwrite_that_came_before_it(owner: Owner) -> None:
    owner.branch("dev")
    owner.commit([add("m1")], replaces=())
    owner.commit([add("d1")], branch="dev", replaces=())
    merge(owner, "main", "dev")
    owner.kernel.transplant([head(owner, "dev")], "main", META)
    assert owner.paths() == {"m1"}
    merge(owner, "main", "dev")
    assert owner.paths(branch="dev") == {"d1"}
    merge(owner, "dev")
    assert owner.paths() == published(owner) == {"d1"}


# --- versions that are published and forgotten --------------------------------------------------------------


@pytest.mark.parametrize("is_published", [False, True], ids=["held", "forgotten"])
def test_an_overwrite_that_comes_without_a_common_line_lands_only_where_no_file_came(
    owner: Owner, is_published: bool
) -> None:
    owner.branch("x")
    owner.branch("dev")
    owner.commit([add("x1")], branch="x")
    owner.commit([add("m2")], replaces=())
    if is_published:
        owner.published()
    owner.commit([add("m3")])
    owner.commit([add("d1")], branch="dev")
    merge(owner, "main", "dev")
    with pytest.raises(MergeConflict, match="changed on both sides"):
        owner.kernel.transplant([head(owner, "dev")], "x", META)


@pytest.mark.parametrize(("operation", "lands"), [("WRITE", False), ("DELETE", True)])
def test_a_forgotten_commit_that_may_have_replaced_files_is_not_taken_for_one_that_picked_them(
    owner: Owner, operation: str, lands: bool
) -> None:
    owner.branch("x")
    owner.branch("dev")
    owner.commit([add("x1")], branch="x")
    told = CommitInfo({"operation": operation, "operationParameters": {}})
    owner.commit(write_commit([told, remove("base"), add("m2")]), uuid=uuid4(), version=2)
    owner.published()
    owner.commit([add("m3")])
    owner.commit([add("d1")], branch="dev")
    merge(owner, "main", "dev")
    assert owner.line(branch="dev").published == 2
    if lands:
        owner.kernel.transplant([head(owner, "dev")], "x", META)
        assert owner.paths(branch="x") == {"x1", "m2", "m3"}
    else:
        with pytest.raises(MergeConflict, match="changed on both sides"):
            owner.kernel.transplant([head(owner, "dev")], "x", META)


def test_a_merge_that_needs_versions_which_the_log_has_no_more_is_refused_with_a_way_out(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    owner = Owner(store, tmp_path)
    content = owner.create()
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("m1")])
    owner.published()
    owner.commit([add("m2")])
    owner.close()
    (Path(content.location) / "_delta_log" / f"{1:020}.json").unlink()
    later = Owner(store, tmp_path)
    with pytest.raises(MergeConflict, match=r"is no longer in its log\n +to take the target's"):
        merge(later, "dev")
    later.close()


# --- lines that grow by merges alone ------------------------------------------------------------------------


def test_merges_forget_what_is_published_and_wait_where_too_much_is_not(tmp_path: Path) -> None:
    owner = Owner(MemoryStore(), tmp_path, unpublished_max=3)
    owner.create()
    for number in range(5):
        owner.branch(f"b{number}")
        owner.commit([add(f"f{number}")], branch=f"b{number}")
        owner.published()
        merge(owner, f"b{number}")
        assert owner.line().published == number
    for number in (5, 6, 7):
        owner.branch(f"b{number}")
        owner.commit([add(f"f{number}")], branch=f"b{number}")
    merge(owner, "b5")
    merge(owner, "b6")
    with pytest.raises(Throttled, match="wait to be published"):
        merge(owner, "b7")
    owner.published()
    merge(owner, "b7")
    assert owner.paths() == published(owner) == {f"f{number}" for number in range(8)}
    owner.close()


# --- one attempt, two branches ------------------------------------------------------------------------------


def test_an_attempt_id_that_is_used_on_two_branches_names_two_commits(owner: Owner) -> None:
    blind = CommitInfo({"operation": "WRITE", "isBlindAppend": True})
    owner.branch("a")
    owner.branch("b")
    one = uuid4()
    owner.commit([blind, add("of-a")], branch="a", uuid=one, version=2)
    owner.commit([blind, add("of-b")], branch="b", uuid=one, version=2)
    assert owner.paths(branch="a") == {"base", "of-a"}
    assert owner.paths(branch="b") == {"base", "of-b"}
    merge(owner, "a", "b")
    assert owner.paths(branch="b") == {"base", "of-a", "of-b"}
    merge(owner, "a")
    merge(owner, "b")
    assert owner.paths() == published(owner) == {"base", "of-a", "of-b"}


@pytest.mark.parametrize("has_vectors", [False, True])
@pytest.mark.parametrize("has_merged_before", [False, True])
@pytest.mark.parametrize("source", ["main", "dev"])
@pytest.mark.parametrize("change", ["update", "delete", "optimize"])
def test_what_a_branch_did_with_files_that_it_took_by_a_transplant_stands(
    tmp_path: Path, change: str, source: str, has_merged_before: bool, has_vectors: bool
) -> None:
    """Nothing is there twice, and nothing comes back, whichever side is merged first."""
    properties = {"delta.enableDeletionVectors": str(has_vectors).lower(), "delta.enableRowTracking": "true"}
    with penstock.open(tmp_path / "lake", create=True) as lake:
        table = lake.delta.create("t", data=rows({1: 0, 2: 0}), properties=properties)
        lake.branch("dev").create()
        dev = lake.table("t", "dev")
        dev.update({"v": "5"}, "id = 1")
        table.append(rows({20: 0, 21: 0}))
        loaded = lake.branch().head
        if has_merged_before:
            lake.merge("dev", "main")
        lake.transplant(loaded, "dev")
        expected = {1: 5, 2: 0, 20: 0, 21: 0}
        if change == "update":
            dev.update({"v": "7"}, "id = 20")
            expected[20] = 7
        elif change == "delete":
            dev.delete("id = 20")
            del expected[20]
        else:
            dev.append(rows({30: 0}))
            dev.optimize()
            expected[30] = 0
        target = "dev" if source == "main" else "main"
        lake.merge(source, target)
        assert values(lake.table("t", target)) == expected
        lake.merge(target, source)
        assert values(lake.table("t", source)) == expected


def test_files_that_both_sides_took_and_wrote_anew_are_a_conflict(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        table = lake.delta.create("t", data=rows({1: 0}))
        lake.branch("dev").create()
        table.append(rows({20: 0, 21: 0}))
        lake.table("t", "dev").append(rows({2: 0}))
        lake.transplant(lake.branch().head, "dev")
        lake.table("t", "dev").update({"v": "7"}, "id = 20")
        table.update({"v": "8"}, "id = 21")
        for source, target in (("main", "dev"), ("dev", "main")):
            with pytest.raises(MergeConflict):
                lake.merge(source, target)


def rows(values: dict[int, int]) -> pa.Table:
    return pa.table({"id": pa.array([*values], pa.int64()), "v": pa.array([*values.values()], pa.int64())})


def values(table: Table) -> dict[int, int]:
    found = table.to_arrow()
    assert found.num_rows == len(set(found["id"].to_pylist())), "a row is there twice"
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
