"""Small lakes to test kernels on: a clock that ticks by itself, and kernels that share a store."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import LakeNotFound
from penstock.kernel.description import make_description, read_description, write_description
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import read_content
from penstock.kernel.settings import Settings
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Delete, Operation, Put
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row, Store, StoredObject

State = dict[Key, AnyContent]


class Ticking:
    """A clock that moves on by a millisecond whenever it is looked at, and further by hand."""

    def __init__(self, start_us: int = 1_793_491_200_000_000) -> None:
        self.now_us = start_us

    def __call__(self) -> int:
        self.now_us += 1000
        return self.now_us

    def advance(self, seconds: float) -> None:
        self.now_us += int(seconds * 1_000_000)


def new_kernel(
    store: Store | None = None, settings: Settings | None = None, clock: Ticking | None = None
) -> Kernel:
    """A kernel on a store; a new store becomes a lake with an empty branch ``main``."""
    clock = clock or Ticking()
    store = store if store is not None else MemoryStore(clock)
    kernel = Kernel(store, (), settings, clock)
    try:
        read_description(store)
    except LakeNotFound:
        kernel.references.create_reference("main", Kind.BRANCH, NO_COMMIT)
        write_description(store, make_description(clock(), "main", "", ()))
    return kernel


def reopened(kernel: Kernel) -> Kernel:
    """Another kernel on the same store, which has nothing in memory yet."""
    return Kernel(kernel.store, (), kernel.settings, kernel.clock)


def keep_history(kernel: Kernel, commits: int | None = None, days: float | None = None) -> Kernel:
    """Limit the history of all references, as if that had been done long ago."""
    Kernel(kernel.store, clock=lambda: 0).keep_history("*", commits, days)
    return kernel


def table(number: object) -> IcebergTable:
    return IcebergTable(metadata_location=f"s3://lake/{number}")


def large_table(number: object, size: int = 3000) -> IcebergTable:
    """One that does not fit into a leaf."""
    return IcebergTable(metadata_location=f"s3://lake/{number}/".ljust(size, "x"))


def puts(**contents: object) -> list[Operation]:
    """A put of a table for every name."""
    return [Put(Key.parse(name), table(number)) for name, number in contents.items()]


def deletes(*names: str) -> list[Operation]:
    return [Delete(Key.parse(name)) for name in names]


def commit(
    kernel: Kernel,
    branch: str,
    operations: Sequence[Operation],
    base: ObjectId | None = None,
    message: str = "",
) -> ObjectId:
    """Commit to a branch, and return the commit."""
    return kernel.commit(branch, operations, CommitMeta(message=message), base=base).head


def head(kernel: Kernel, name: str = "main") -> ObjectId:
    return kernel.references.get_reference(name).head


def branch(kernel: Kernel, name: str, at: str | ObjectId = "main") -> str:
    kernel.references.create_reference(name, Kind.BRANCH, head(kernel, at) if isinstance(at, str) else at)
    return name


def state(kernel: Kernel, at: str | ObjectId = "main") -> State:
    """Everything the lake holds at a branch or commit."""
    view = kernel.read_state(head(kernel, at) if isinstance(at, str) else at)
    found = {key: read_content(kernel.objects, value) for key, value in view.scan_entries()}
    return {
        Key.decode(key): content
        for key, content in found.items()
        if content is not None and not key.startswith(RESERVED)
    }


def places(kernel: Kernel, at: str | ObjectId = "main") -> dict[str, str]:
    """For every key what tells its content: the end of a table's location, or its type."""
    return {
        str(key): content.metadata_location.rpartition("/")[2]
        if isinstance(content, IcebergTable)
        else content.type
        for key, content in state(kernel, at).items()
    }


def stored(store: Store) -> tuple[dict[ObjectId, bytes], list[Row]]:
    """Every object and every row of a store, byte for byte."""
    ids: list[StoredObject] = []
    token = b""
    while True:
        page, token = store.scan(token, 1000)
        ids += page
        if not token:
            break
    rows = [row for kind in Kind for row in store.references(kind.value, limit=100_000)]
    return store.fetch([one.id for one in ids]), rows
