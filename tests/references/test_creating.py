"""Creating, assigning and deleting branches and tags."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from penstock.errors import (
    CommitNotFound,
    InvalidName,
    InvalidRequest,
    ReferenceChanged,
    ReferenceExists,
    ReferenceNotFound,
)
from penstock.kernel.kernel import Kernel
from penstock.lake.lake import Lake
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.names import NAME_MAX_CHARS
from penstock.model.operations import Put
from penstock.model.references import Kind, Reference
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from tests.queue.hooks import Caller, HookedStore, everything, new_kernel, table

NOWHERE = "ab" * 32


def test_a_branch_starts_where_it_is_told_and_goes_its_own_way(lake: Lake) -> None:
    first = lake.branch().put("a", table())
    second = lake.branch().put("b", table())
    assert lake.branch("dev").create(at="main~1").head == first.id
    assert lake.branch("default").create().head == second.id
    lake.branch("dev").put("c", table())
    assert lake.branch().head == second.id


def test_a_branch_of_an_empty_lake_is_empty(lake: Lake) -> None:
    assert lake.branch("dev").create().head == NO_COMMIT.hex()
    assert lake.tag("start").create().head == NO_COMMIT.hex()


def test_a_tag_stays_and_takes_no_commits(lake: Lake, store: HookedStore) -> None:
    first = lake.branch().put("a", table())
    tag = lake.tag("v1").create()
    lake.branch().put("b", table())
    assert tag.head == first.id
    before = everything(store)
    for do in (
        partial(lake.branch("v1").put, "c", table()),
        partial(lake.merge, "main", "v1"),
        partial(lake.transplant, "main", "v1"),
        partial(lake.revert, "main", "v1"),
        partial(lake.rebase, "v1", "main"),
    ):
        with pytest.raises(InvalidRequest, match="'v1' is a tag"):
            do()
    assert everything(store) == before


def test_a_tag_is_no_branch_and_a_branch_no_tag(lake: Lake) -> None:
    lake.tag("v1").create()
    assert (lake.tag("v1").exists, lake.branch("v1").exists) == (True, False)
    with pytest.raises(InvalidRequest, match="'v1' is a tag, not a branch"):
        _ = lake.branch("v1").head
    with pytest.raises(InvalidRequest, match="'main' is a branch, not a tag"):
        _ = lake.tag("main").head
    with pytest.raises(InvalidRequest, match="'main' is a branch, not a tag"):
        lake.tag("main").assign("main")


@pytest.mark.parametrize("first", ["branch", "tag"])
@pytest.mark.parametrize("second", ["branch", "tag"])
def test_a_name_is_taken_over_all_kinds(lake: Lake, store: HookedStore, first: str, second: str) -> None:
    getattr(lake, first)("x").create()
    before = everything(store)
    with pytest.raises(ReferenceExists, match=f"the {first} 'x' already exists") as caught:
        getattr(lake, second)("x").create()
    assert caught.value.details["name"] == "x"
    assert everything(store) == before


def _create(kernel: Kernel, start: Barrier, number: int) -> Reference:
    kind = Kind.TAG if number % 2 else Kind.BRANCH
    start.wait()
    return kernel.references.create_reference("x", kind, NO_COMMIT, who=str(number))


def _race(kernels: list[Kernel]) -> None:
    start = Barrier(len(kernels))
    racers = [Caller(partial(_create, kernel, start, number)) for number, kernel in enumerate(kernels)]
    errors = [racer.error for racer in racers]
    assert errors.count(None) == 1
    assert {type(error) for error in errors} == {type(None), ReferenceExists}
    winner = racers[errors.index(None)].result()
    assert kernels[0].references.get_reference("x") == winner
    assert [entry.who for _, entry in kernels[0].references.walk_log("x")] == [str(errors.index(None))]


def test_a_name_created_by_many_threads_at_once_is_created_once(store: HookedStore) -> None:
    kernel = new_kernel(store)
    for _ in range(5):
        _race([kernel] * 8)
        kernel.references.delete_reference("x", leave_log=False)


def test_a_name_created_through_many_handles_at_once_is_created_once(tmp_path: Path) -> None:
    stores: list[Store] = [SqliteStore(tmp_path / "penstock.db") for _ in range(4)]
    _race([new_kernel(store) for store in stores])
    for store in stores:
        store.close()


def test_a_name_created_between_look_and_swap_is_not_taken_over(store: HookedStore) -> None:
    """The other one comes in after this one has seen that the name is free."""
    kernel = new_kernel(store)
    done: list[Reference] = []

    def come_first(name: str) -> None:
        store.before_turn = lambda _: None
        done.append(kernel.references.create_reference("x", Kind.TAG, NO_COMMIT))

    store.before_turn = come_first
    with pytest.raises(ReferenceExists):
        kernel.references.create_reference("x", Kind.BRANCH, NO_COMMIT)
    assert [kernel.references.get_reference("x")] == done


@pytest.mark.parametrize(
    "name",
    [
        *[
            "",
            " ",
            "a b",
            "1a",
            "-a",
            "/a",
            "a/",
            "a.",
            "a..b",
            "a~1",
            "a^",
            "a*b",
            "a@b",
            "é",
            "a\n",
            "@lake",
        ],
        *[
            "HEAD",
            "head",
            "DETACHED",
            "deadbeef",
            "abcdef0123456789",
            "a\0b",
            "a:b",
            "a" * (NAME_MAX_CHARS + 1),
        ],
    ],
)
def test_a_name_that_cannot_be_is_refused(lake: Lake, store: HookedStore, name: str) -> None:
    before = everything(store)
    for do in (
        lambda: lake.kernel.references.create_reference(name, Kind.BRANCH, NO_COMMIT),
        lake.tag(name).create,
    ):
        with pytest.raises(InvalidName):
            do()
    assert everything(store) == before


def test_only_branches_and_tags_can_be_created(lake: Lake) -> None:
    for kind in (Kind.DELETED, Kind.LAKE):
        with pytest.raises(InvalidRequest):
            lake.kernel.references.create_reference("x", kind, NO_COMMIT)


# --- where they may point -----------------------------------------------------------------------------------


def _bad_places(lake: Lake) -> dict[str, type[Exception]]:
    return {
        NOWHERE: CommitNotFound,
        NOWHERE[:12]: CommitNotFound,
        f"main@{NOWHERE}": CommitNotFound,
        "nosuch": ReferenceNotFound,
        "main~99": CommitNotFound,
        "main^2": CommitNotFound,
        "main~x": InvalidName,
        "main*yesterday": InvalidName,
        "ma in": InvalidName,
    }


def test_a_place_that_does_not_exist_is_refused_and_nothing_is_written(
    lake: Lake, store: HookedStore
) -> None:
    lake.branch().put("a", table())
    dev = lake.branch("dev").create()
    before = everything(store)
    for place, error in _bad_places(lake).items():
        for do in (partial(lake.branch("new").create, at=place), partial(dev.assign, place)):
            with pytest.raises(error):
                do()
    assert everything(store) == before


def test_an_object_that_is_no_commit_is_no_place(lake: Lake, store: HookedStore) -> None:
    lake.branch().put("a", table())
    log = lake.branch().reference.log
    for do in (
        lambda: lake.branch("new").create(at=log.hex()),
        lambda: lake.kernel.references.create_reference("new", Kind.BRANCH, log),
        lambda: lake.kernel.references.assign_reference("main", log),
    ):
        with pytest.raises(CommitNotFound):
            do()


def test_an_assigned_branch_goes_on_from_there(lake: Lake) -> None:
    commits = [lake.branch().put(name, table()) for name in "abc"]
    dev = lake.branch("dev").create()
    assert dev.assign("main~2").head == commits[0].id
    dev.put("d", table())
    assert lake.show("dev").parents == (commits[0].id,)
    assert lake.branch().head == commits[2].id


def test_a_tag_can_be_assigned_but_stays_a_tag(lake: Lake) -> None:
    commits = [lake.branch().put(name, table()) for name in "ab"]
    tag = lake.tag("v1").create(at="main~1")
    before = tag.reference
    tag.assign("main", expected=commits[0].id)
    assert tag.head == commits[1].id
    assert (tag.reference.kind, tag.reference.incarnation) == (Kind.TAG, before.incarnation)


def test_an_expectation_that_does_not_hold_refuses_assign_and_delete(lake: Lake, store: HookedStore) -> None:
    commits = [lake.branch().put(name, table()) for name in "abc"]
    dev = lake.branch("dev").create()
    before = everything(store)
    refused: list[Callable[[], object]] = [
        partial(dev.assign, "main~2", expected=commits[1].id),
        partial(dev.delete, expected=commits[1].id),
    ]
    for do in refused:
        with pytest.raises(ReferenceChanged) as caught:
            do()
        expected = {"name": "dev", "expected": commits[1].id, "found": commits[2].id}
        assert caught.value.details == expected
    assert everything(store) == before
    dev.assign("main~2", expected=commits[2].id)
    dev.delete(expected=commits[0].id)
    assert not dev.exists


def test_what_does_not_exist_can_be_neither_assigned_nor_deleted(lake: Lake, store: HookedStore) -> None:
    before = everything(store)
    for do in (partial(lake.branch("dev").assign, "main"), lake.branch("dev").delete, lake.tag("dev").delete):
        with pytest.raises(ReferenceNotFound, match="'dev'") as caught:
            do()
        assert caught.value.details["name"] == "dev"
    assert everything(store) == before


def test_the_default_branch_is_never_deleted(lake: Lake, store: HookedStore) -> None:
    lake.branch().put("a", table())
    before = everything(store)
    for do in (lake.branch().delete, lake.branch("main").delete, lake.tag("main").delete):
        with pytest.raises(InvalidRequest, match="'main'"):
            do()
    assert everything(store) == before


# --- incarnations -------------------------------------------------------------------------------------------


def test_a_branch_that_is_created_anew_is_not_the_old_one(lake: Lake, store: HookedStore) -> None:
    dev = lake.branch("dev").create()
    old = dev.reference
    dev.delete()
    new = dev.create().reference
    assert new.incarnation != old.incarnation
    before = everything(store)
    with pytest.raises(ReferenceChanged, match="'dev' was deleted and created again") as caught:
        lake.kernel.commit("dev", [Put(Key("a"), table())], incarnation=old.incarnation)
    assert caught.value.details["name"] == "dev"
    assert everything(store) == before
    lake.kernel.commit("dev", [Put(Key("a"), table())], incarnation=new.incarnation)


def test_commits_and_assignments_do_not_make_a_new_incarnation(lake: Lake) -> None:
    dev = lake.branch("dev").create()
    born = dev.reference
    dev.put("a", table())
    dev.assign("main")
    lake.rebase("dev", "main")
    assert (dev.reference.incarnation, dev.reference.created_us) == (born.incarnation, born.created_us)


# --- notes (T1) ---------------------------------------------------------------------------------------------


def test_a_commit_keeps_the_note(lake: Lake) -> None:
    lake.kernel.references.create_reference("tx", Kind.BRANCH, NO_COMMIT, note=b"open")
    lake.branch("tx").put("a", table())
    assert lake.branch("tx").reference.note == b"open"


def test_a_note_that_is_too_long_is_refused(lake: Lake, store: HookedStore) -> None:
    before = everything(store)
    with pytest.raises(InvalidRequest, match="note"):
        lake.kernel.references.create_reference("tx", Kind.BRANCH, NO_COMMIT, note=b"x" * 1_000_000)
    assert everything(store) == before
