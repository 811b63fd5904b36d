"""Lines of tables as if their versions had been ratified, without a lake, and processes that publish them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, MutableSequence, Sequence
from pathlib import Path
from uuid import UUID, uuid5

import msgspec

from penstock.errors import Damaged
from penstock.formats.delta.branch_log.branch_log import (
    BranchLog,
    BranchLogEntry,
    CommitRecord,
    OwnershipPhase,
    TableDefinition,
    encode_object,
    make_uuid,
    replace_branch_log,
)
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.objects import Blob, decode_object
from penstock.storage.buckets import Bucket
from penstock.storage.local import LocalBucket
from penstock.storage.places import SCRATCH, Places

ID = UUID("6a4a2c5f-0000-4000-8000-000000000001")
KEY = Key.parse("sales.orders")
BRANCH = bytes(range(16))
TIME_MS = 1_700_000_000_000
WAIT_S = 30.0
"""Longer than anything here takes: who waits so long waits for ever."""


class Ratified:
    """A table whose versions a test ratifies; ``read`` reads the kernel objects that they need."""

    def __init__(self, location: str, places: Places, *, id: UUID = ID, published: int = -1) -> None:  # noqa: A002
        self.place = places.open_place(location)
        self.objects: dict[ObjectId, bytes] = {}
        self.bytes: dict[int, bytes] = {}
        declared = self._keep(TableDefinition(b"{}", b"{}"))
        line = BranchLog(
            phase=OwnershipPhase.OWNED,
            published=published,
            latest=published,
            timestamp_ms=TIME_MS,
            declared=declared,
        )
        self.content = replace_branch_log(DeltaTable(id=id, location=location), line)
        self.line = line

    def read(self, one: ObjectId) -> bytes:
        if one not in self.objects:
            raise Damaged(f"there is no object {one.hex()}")
        found: Blob = decode_object(self.objects[one])
        return found.data

    def held(self, *actions: str, body: bool = False, line: bytes = b"") -> DeltaTable:
        """Ratify a version whose bytes, or the beginning of them, the kernel holds."""
        data = self._data(actions)
        head, rest = (data[:9], data[9:]) if body else (data, b"")
        name = ""
        if body:
            name = f"_penstock/bodies/{hashlib.sha256(rest).hexdigest()}.json"
            self.place.create(name, rest)
        uuid = make_uuid(hashlib.sha256(data).digest()) if body else None
        return self._follow(data, self._keep(CommitRecord(head=head)), line, name, uuid)

    def staged(self, *actions: str, write: bool = True, line: bytes = b"") -> DeltaTable:
        """Ratify a version whose file its writer wrote."""
        data = self._data(actions)
        content = self._follow(data, None, line)
        if write:
            self.place.create(self.name(self.line.latest), data)
        return content

    def name(self, version: int) -> str:
        """The name of a version's file that is not published."""
        entry = self.line.find_entry(version, self.read)
        assert entry is not None
        return entry.get_staged_path(version)

    def forget(self, version: int) -> DeltaTable:
        """As the lake forgets what it knows to be published."""
        return self._become(self.line.drop_published_entries(version))

    def become(self, phase: OwnershipPhase) -> DeltaTable:
        """The table in another phase."""
        return self._become(msgspec.structs.replace(self.line, phase=phase))

    def log(self) -> dict[int, bytes]:
        """What is in the table's log now, by version."""
        names = [str(CommitName(version)) for version in range(self.line.latest + 3)]
        found = enumerate(self.place.read(names))
        return {version: data for version, data in found if data is not None}

    def ratified(self, first: int, last: int) -> dict[int, bytes]:
        """What has to be in the log."""
        return {version: self.bytes[version] for version in range(first, last + 1)}

    def _data(self, actions: Sequence[str]) -> bytes:
        version = self.line.latest + 1
        lines = actions or (f'{{"add":{{"path":"{version}.parquet"}}}}',)
        return (
            f'{{"commitInfo":{{"version":{version}}}}}\n'.encode()
            + "".join(f"{one}\n" for one in lines).encode()
        )

    def _follow(
        self, data: bytes, held: ObjectId | None, line: bytes, body: str = "", uuid: bytes | None = None
    ) -> DeltaTable:
        version = self.line.latest + 1
        uuid = uuid or uuid5(ID, f"{version} {data.hex()}").bytes
        entry = BranchLogEntry(uuid, len(data), TIME_MS + version, line, held, body)
        self.bytes[version] = data
        followed, blobs = self.line.append_entry(entry)
        self.objects |= blobs
        return self._become(followed)

    def _become(self, line: BranchLog) -> DeltaTable:
        self.line, self.content = line, replace_branch_log(self.content, line)
        return self.content

    def _keep(self, value: CommitRecord | TableDefinition) -> ObjectId:
        one, packed = encode_object(value)
        self.objects[one] = packed
        return one


def ratify(table: Ratified, count: int) -> DeltaTable:
    """Ratify versions of all kinds, one after the other."""
    kinds: tuple[Callable[[], DeltaTable], ...] = (
        table.held,
        table.staged,
        lambda: table.held(*(f'{{"add":{{"path":"{number}"}}}}' for number in range(20)), body=True),
    )
    for number in range(count):
        kinds[number % len(kinds)]()
    return table.content


def publishing(table: Ratified, places: Places, *, background: bool = False, **options: object) -> Publisher:
    """A process of its own, as far as it matters; its background may be left to the test."""
    return Publisher(places, table.read, background=background, **options)  # type: ignore[arg-type]


class Disk(LocalBucket):
    """A disk on which something can happen at each step."""

    def at(self, step: str) -> None:
        """Called before a step: ``write``, ``link …``, and after one: ``linked …``."""

    def _write_unfinished(self, contents: Sequence[bytes], unfinished: MutableSequence[Path]) -> None:
        for _ in contents:
            self.at("write")
        super()._write_unfinished(contents, unfinished)

    def _link_all(self, keys: Sequence[str], unfinished: Sequence[Path]) -> int:
        for number, (key, file) in enumerate(zip(keys, unfinished, strict=True)):
            self.at(f"link {key}")
            if super()._link_all([key], [file]) == 0:
                return number
            self.at(f"linked {key}")
        return len(keys)


class Disks(Places):
    """Places on disks of a kind; the bucket of ``s3://bucket`` is a directory, too."""

    def __init__(self, kind: type[LocalBucket] = LocalBucket, root: Path | None = None) -> None:
        super().__init__()
        self.kind, self.root = kind, root

    def open_disk(self, root: Path) -> Bucket:
        return self.kind(root, scratch=SCRATCH, threads=self._threads)

    def open_bucket(self, scheme: str, bucket: str) -> Bucket:
        assert self.root is not None
        return self.kind(self.root, scratch=SCRATCH, threads=self._threads)
