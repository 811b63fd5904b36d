"""Tables of files in a real lake, as jobs write them. No bytes are written: the kernel never looks at any."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID, uuid4

from penstock import Lake
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.intents import WriteCondition
from penstock.formats.files.lake.answers import FilesWritten, TableLayout
from penstock.formats.files.lake.calls import GetFilesTable, ListFiles, NewFile, WriteFiles
from penstock.kernel.description import make_description, write_description
from penstock.kernel.kernel import Kernel
from penstock.model.clock import now_us
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore

EVENTS = "raw.events"


def new_store() -> MemoryStore:
    """A lake with an empty branch and a place for files, which any number of processes may open."""
    store = MemoryStore()
    Kernel(store).references.create_reference("main", Kind.BRANCH, NO_COMMIT)
    write_description(store, make_description(0, "main", "/warehouse", ()))
    return store


def write(
    lake: Lake,
    *added: str,
    branch: str = "main",
    key: str = EVENTS,
    put: Iterable[str] = (),
    removed: Iterable[str] = (),
    replaced: Iterable[str] = (),
    when: WriteCondition = WriteCondition.ALWAYS,
    written_as: str = "",
    partition_by: tuple[str, ...] = (),
    checksum: str = "",
    idempotency_key: str | None = None,
) -> FilesWritten:
    """Let a job change a table in one commit."""
    return lake.do(
        WriteFiles(
            key=Key.parse(key),
            branch=branch,
            folder=make_folder_name(lake.id, uuid4(), now_us()),
            added=tuple(NewFile(path=path, size=1, checksum=checksum) for path in added),
            put=tuple(NewFile(path=path, size=2, checksum=checksum) for path in put),
            removed=tuple(removed),
            replaced=tuple(replaced),
            when=when,
            layout=TableLayout(format=written_as, partition_by=partition_by) if written_as else None,
            idempotency_key=idempotency_key,
        )
    )


def overwrite(lake: Lake, *added: str, branch: str = "main", key: str = EVENTS) -> FilesWritten:
    """Let a job's files be all that a table has."""
    return write(lake, *added, branch=branch, key=key, replaced=[""])


def paths(lake: Lake, ref: str = "main", key: str = EVENTS) -> list[str]:
    """The paths that a table has; what it says of itself must be so."""
    found = lake.do(ListFiles(key=Key.parse(key), at=ref, limit=None))
    about = lake.do(GetFilesTable(key=Key.parse(key), at=ref))
    assert (about.files, about.size) == (len(found), sum(one.size for one in found))
    return [one.path for one in found]


def address(lake: Lake, path: str, ref: str = "main", key: str = EVENTS) -> str:
    """Where the file at a path lies, which tells whose it is."""
    (found,) = lake.do(ListFiles(key=Key.parse(key), at=ref, prefix=path, limit=1))
    assert found.path == path
    return found.address


def identity(lake: Lake, ref: str = "main", key: str = EVENTS) -> UUID:
    return lake.do(GetFilesTable(key=Key.parse(key), at=ref)).id
