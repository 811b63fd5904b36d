"""Changes that come a second time, by another way, and those whose terms nobody knows any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.errors import MergeConflict, Throttled
from penstock.formats.delta.protocol.actions import Action, CommitInfo, write_commit
from penstock.formats.delta.protocol.transaction import Reads
from penstock.kernel.bring import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
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
    return owner.kernel.references.get(branch).head


def merge(owner: Owner, source: str, into: str = "main") -> None:
    owner.kernel.merge(head(owner, source), into, META, MergeOptions())


def published(owner: Owner) -> set[str]:
    return {one.path for one in owner.published().files()}


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
    owner.commit(compacted, read_version=1, reads=Reads(files=frozenset({"base"})))
    merge(owner, "dev")
    assert owner.paths() == published(owner) == set()


def test_an_overwrite_of_ones_own_takes_what_the_other_side_has(owner: Owner) -> None:
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev", replaces=())
    owner.commit([add("m1")], replaces=())
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
