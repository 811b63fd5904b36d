"""Requests that cannot be: each gets an error that names the thing, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import (
    CommitNotFound,
    Denied,
    InvalidContent,
    InvalidKey,
    InvalidRequest,
    PenstockError,
    ReferenceChanged,
    ReferenceNotFound,
)
from penstock.kernel.commit import OPERATIONS_MAX
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.model.content import CONTENT_MAX_BYTES, Namespace
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Change, Delete, Operation, Put, Unchanged
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.sqlite import SqliteStore
from penstock.testing import FaultyStore, Point
from tests.kernel.lakes import (
    Ticking,
    branch,
    commit,
    deletes,
    head,
    new_kernel,
    places,
    puts,
    reopened,
    state,
    stored,
    table,
)

T = Key("t")
WRONG: tuple[Any, ...] = (("t",), "t", None)


@pytest.fixture(params=["memory", "sqlite"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kernel]:
    """A lake with a table on ``main`` and another on ``dev``, and a tag."""
    clock = Ticking()
    store = (
        MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path / "lake.db", clock=clock)
    )
    made = new_kernel(store, clock=clock)
    commit(made, "main", puts(t=1))
    branch(made, "dev")
    commit(made, "dev", puts(d=1))
    made.references.create_reference("v1", Kind.TAG, head(made))
    yield made
    made.close()


def _refused(kernel: Kernel, error: type[PenstockError], call: Callable[[], object]) -> PenstockError:
    """The error that a call gets; the store must be the same afterwards, byte for byte."""
    before = stored(kernel.store)
    with pytest.raises(error) as refused:
        call()
    assert type(refused.value) is error
    assert stored(kernel.store) == before
    commit(kernel, "main", puts(after=1))
    assert "after" in places(reopened(kernel))
    assert places(reopened(kernel)).keys() <= {"t", "after"}
    return refused.value


@pytest.mark.parametrize(
    ("operations", "names"),
    [
        ([], "at least one operation"),
        ([Put(T, table(2)), Put(T, table(3))], "names 't' twice"),
        ([Delete(T), Delete(T)], "names 't' twice"),
        ([Put(T, table(2)), Unchanged(T)], "names 't' twice"),
        ([Unchanged(T), Delete(T)], "names 't' twice"),
        ([Unchanged(T), Unchanged(T)], "names 't' twice"),
        ([Delete(T), Put(T, table(2)), Put(T, table(3))], "names 't' twice"),
        ([Put(T, table(2)), Change(T, "journal", b"")], "names 't' twice"),
        (
            [Put(Key(f"t{number}"), table(number)) for number in range(OPERATIONS_MAX + 1)],
            "100000 operations",
        ),
        ([Put(WRONG[0], table(2))], "expected a Key, got tuple"),
        ([Put(WRONG[1], table(2))], "expected a Key, got str"),
        ([Delete(WRONG[2])], "expected a Key, got NoneType"),
        (["put t"], "a commit takes operations such as Put and Delete, got str"),
        ([None], "a commit takes operations such as Put and Delete, got NoneType"),
        ([Change(T, "nowhere", b"")], "no format 'nowhere'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_that_contradicts_itself_is_refused(
    kernel: Kernel, operations: list[Any], names: str
) -> None:
    error = _refused(kernel, InvalidRequest, lambda: commit(kernel, "main", operations, base=head(kernel)))
    assert names in str(error)


def test_a_check_without_a_base_is_refused(kernel: Kernel) -> None:
    error = _refused(kernel, InvalidRequest, lambda: commit(kernel, "main", [Unchanged(T)]))
    assert "'t' must be unchanged since a base" in str(error)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Key(*["a"] * 500),
        lambda: Key.parse(".".join(["a"] * 500)),
        lambda: Key(""),
        lambda: Key("a", "b\0c"),
        lambda: Key("a\n"),
        lambda: Key("x" * 501),
        lambda: Key("\ud800"),
    ],
)
def test_a_key_that_cannot_be_is_refused(kernel: Kernel, make: Callable[[], Key]) -> None:
    _refused(kernel, InvalidKey, lambda: commit(kernel, "main", [*puts(t=2), Put(make(), table(1))]))


def test_a_content_that_is_too_large_is_refused(kernel: Kernel) -> None:
    huge = IcebergTable(metadata_location="x" * (CONTENT_MAX_BYTES + 1))
    error = _refused(kernel, InvalidContent, lambda: commit(kernel, "main", [*puts(u=2), Put(T, huge)]))
    assert "16777216" in str(error)


def test_a_base_that_does_not_exist_is_refused(kernel: Kernel) -> None:
    error = _refused(kernel, CommitNotFound, lambda: commit(kernel, "main", puts(t=2), base=b"x" * 32))
    assert (b"x" * 32).hex() in str(error)


def test_a_base_of_another_branch_is_refused(kernel: Kernel) -> None:
    other = head(kernel, "dev")
    error = _refused(kernel, CommitNotFound, lambda: commit(kernel, "main", puts(t=2), base=other))
    assert "not in the history of branch 'main'" in str(error)
    assert error.details == {"commit": other.hex(), "name": "main"}


def test_a_base_of_another_incarnation_of_the_branch_is_refused(kernel: Kernel) -> None:
    seen, incarnation = head(kernel, "dev"), kernel.references.get_reference("dev").incarnation
    kernel.references.delete_reference("dev")
    branch(kernel, "dev")

    def write(**how: Any) -> object:
        return kernel.commit("dev", puts(t=2), CommitMeta(), **how)

    _refused(kernel, CommitNotFound, lambda: write(base=seen))
    error = _refused(kernel, ReferenceChanged, lambda: write(incarnation=incarnation))
    assert "created again" in str(error)
    assert write(incarnation=kernel.references.get_reference("dev").incarnation)


def test_a_base_from_before_a_branch_was_assigned_elsewhere_is_refused(kernel: Kernel) -> None:
    seen = head(kernel, "dev")
    kernel.references.assign_reference("dev", NO_COMMIT)
    _refused(kernel, CommitNotFound, lambda: commit(kernel, "dev", puts(t=2), base=seen))


def test_an_if_head_refuses_a_branch_that_moved(kernel: Kernel) -> None:
    seen = head(kernel)
    commit(kernel, "main", puts(t=2))

    def write() -> object:
        return kernel.commit("main", puts(u=1), CommitMeta(), if_head=seen)

    error = _refused(kernel, ReferenceChanged, write)
    assert error.details["expected"] == seen.hex()


def test_a_tag_takes_no_commits(kernel: Kernel) -> None:
    error = _refused(kernel, InvalidRequest, lambda: commit(kernel, "v1", puts(t=2)))
    assert "'v1' is a tag" in str(error)


def test_branches_that_are_not_there_take_no_commits(kernel: Kernel) -> None:
    kernel.references.delete_reference("dev")
    for name in ("nowhere", "dev"):
        error = _refused(kernel, ReferenceNotFound, partial(commit, kernel, name, puts(t=2)))
        assert f"'{name}'" in str(error)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "\ud800", 7])
def test_an_idempotency_key_that_cannot_be_is_refused(kernel: Kernel, key: Any) -> None:
    _refused(kernel, InvalidRequest, lambda: kernel.commit("main", puts(t=2), CommitMeta(), key=key))


def test_a_conflict_at_one_key_leaves_every_other_key_of_the_request_undone(kernel: Kernel) -> None:
    base = head(kernel)
    commit(kernel, "main", puts(t=2))
    before = stored(kernel.store)
    many: list[Operation] = [Put(Key(f"n{number}"), table(1)) for number in range(400)]
    for operations in ([*many, *puts(t=3)], [*puts(t=3), *many], [*many, *deletes("nowhere")]):
        with pytest.raises(PenstockError):
            commit(kernel, "main", operations, base=base)
        assert stored(kernel.store) == before
    assert places(reopened(kernel)) == {"t": "2"}


def test_what_a_store_denied_does_not_land_with_the_next_commit() -> None:
    clock = Ticking()
    store = FaultyStore(MemoryStore(clock))
    kernel = new_kernel(store, clock=clock)
    commit(kernel, "main", puts(t=1))
    store.fail(Point.BEFORE_OBJECTS, Denied("the disk cannot be written"))
    with pytest.raises(Denied):
        commit(kernel, "main", [*puts(t=9, denied=1), Put(Key("ns"), Namespace())])
    commit(kernel, "main", puts(u=1))
    assert places(kernel) == places(reopened(kernel)) == {"t": "1", "u": "1"}
    assert [each.message for _, each in kernel.walk_commits(head(kernel))] == ["", ""]
    assert len(state(kernel)) == 2
