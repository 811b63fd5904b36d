"""What a writer says about a commit: refused before the queue if it cannot be stored, and nobody suffers."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.errors import InvalidRequest
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from tests.queue.hooks import HookedStore, everything, gather, head, messages, new_kernel, put, table

BAD: dict[str, dict[str, Any]] = {
    "a message that is no Unicode": {"message": "\ud800"},
    "a message that is bytes": {"message": b"text"},
    "a message that is too long": {"message": "x" * 20_000},
    "an author that is no Unicode": {"authors": ("\udcff",)},
    "an author that is bytes": {"authors": (b"bob",)},
    "an author that is a list": {"authors": (["bob"],)},
    "an author that is too long": {"authors": ("x" * 300,)},
    "authors that are one text": {"authors": "bob"},
    "a committer that is bytes": {"committer": b"bob"},
    "a committer that is no Unicode": {"committer": "\ud800"},
    "a signer that is bytes": {"signed_off_by": (b"bob",)},
    "too many authors": {"authors": ("bob",) * 101},
    "a property value that is bytes": {"properties": {"a": (b"x",)}},
    "a property value that is a number": {"properties": {"a": (1,)}},
    "a property that is no list": {"properties": {"a": 1}},
    "a property that is no Unicode": {"properties": {"a": ("\ud800",)}},
    "a property name that is bytes": {"properties": {b"a": ("x",)}},
    "a property name that is no Unicode": {"properties": {"\ud800": ("x",)}},
    "properties that are too long": {"properties": {"a": ("x" * 20_000,)}},
    "very many empty properties": {"properties": {"a": ("",) * 300_000}},
    "properties that are none": {"properties": None},
    "a time beyond 64 bits": {"author_time_us": 2**64},
    "a time after the year 9999": {"author_time_us": 10**18},
    "a time before the year 1": {"author_time_us": -(10**18)},
    "a time that is text": {"author_time_us": "now"},
}


def _merge(kernel: Kernel, meta: CommitMeta) -> None:
    kernel.merge(head(kernel, "dev"), "main", meta, MergeOptions())


def _commit(kernel: Kernel, meta: CommitMeta) -> None:
    kernel.commit("main", [Put(Key("bad"), table())], meta)


@pytest.mark.parametrize("how", [_commit, _merge])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_description_that_cannot_be_stored_is_refused_and_nothing_is_written(
    shared: MemoryStore, bad: dict[str, Any], how: Callable[[Kernel, CommitMeta], None]
) -> None:
    kernel = new_kernel(shared)
    put(kernel, "a")
    kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
    kernel.commit("dev", [Put(Key("b"), table())])
    before = everything(shared)
    with pytest.raises(InvalidRequest):
        how(kernel, msgspec.structs.replace(CommitMeta(message="m"), **bad))
    assert everything(shared) == before


@pytest.mark.parametrize("name", ["a message that is no Unicode", "an author that is bytes"])
def test_a_description_that_cannot_be_stored_does_not_hurt_the_others_of_its_batch(
    store: HookedStore, name: str
) -> None:
    kernel = new_kernel(store)
    meta = msgspec.structs.replace(CommitMeta(message="m"), **BAD[name])
    first, _, last = gather(
        kernel, store, lambda: put(kernel, "a"), lambda: _commit(kernel, meta), lambda: put(kernel, "b")
    )
    first.result()
    last.result()
    assert messages(new_kernel(store.inner)) == ["a", "b"]
    assert fsck(new_kernel(store.inner)).damages == ()


def test_the_longest_description_that_is_allowed_fits_into_an_object(shared: MemoryStore) -> None:
    kernel = new_kernel(shared)
    meta = CommitMeta(
        message="\U0001f9ea" * 16_384,
        authors=("\U0001f9ea" * 256,) * 50,
        signed_off_by=("\U0001f9ea" * 256,) * 50,
        properties={"p": ("\U0001f9ea" * 16_000,)},
        committer="\U0001f9ea" * 256,
    )
    kernel.commit("main", [Put(Key("a"), table())], meta)
    assert fsck(new_kernel(shared)).damages == ()
