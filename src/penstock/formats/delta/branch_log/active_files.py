"""Which files are part of a table, as an index that each commit moves on by what it changed.

Without it, to look up one path would mean to go through all files of the table. Paths stand in it as hashes.
It can answer for versions that lie a little back: what the last commits changed is remembered.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import blake2b
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID

from penstock.formats.delta.branch_log.branch_log import BranchLog, BranchLogTip, Read, decode_branch_log
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Action, Add, Remove
from penstock.formats.delta.protocol.lint_files import Lookup
from penstock.model.nessie import DeltaTable

TABLES_MAX: Final = 8
"""How many tables, or lines of tables, have an index."""
FILES_MAX: Final = 2_000_000
"""How many files all indexes have together, unless one table alone has more."""
ASKED_MAX: Final = 1024
"""Of how many lines it is known that somebody has asked about them."""
VERSIONS_MAX: Final = 1000
"""How far back an index can answer."""

Versions = Callable[[DeltaTable, int, Read], Iterator[tuple[int, tuple[Action, ...]]]]
"""The actions of the versions after one."""


class ActiveFiles:
    """Indexes of lines, for ordinary threads."""

    def __init__(self, snapshot: Callable[[DeltaTable, Read], LogSnapshot], versions: Versions) -> None:
        self._snapshot, self._versions = snapshot, versions
        self._indexes: OrderedDict[tuple[UUID | None, bytes], _ActiveFileIndex] = OrderedDict()
        self._asked: dict[tuple[UUID | None, bytes], None] = {}
        """Lines that somebody has asked about: an index costs more than one look through the table, and pays
        from the second one on."""
        self._lock = Lock()

    def make_lookup(self, content: DeltaTable, read: Read) -> Lookup:
        """Tells which paths are files of a line's newest version. What is not known is read right here."""
        line = decode_branch_log(content)
        key = (content.id, b"" if line.tail is None else line.entries[-1].line)
        with self._lock:
            index = self._indexes.get(key)
            is_first = index is None and key not in self._asked
            if is_first:
                self._asked[key] = None
                if len(self._asked) > ASKED_MAX:
                    del self._asked[next(iter(self._asked))]
        if is_first:
            return self._snapshot(content, read).find_active_files
        if index is None or not self._is_extended_to(index, content, line, read):
            # A new one: whoever still asks the old one goes on with what that was.
            index = _ActiveFileIndex(BranchLogTip.from_line(line), self._snapshot(content, read))
        with self._lock:
            self._indexes[key] = index
            self._indexes.move_to_end(key)
            self._limit_indexes()
        return self._make_lookup(index, content, line.latest, read)

    def _make_lookup(self, index: _ActiveFileIndex, content: DeltaTable, version: int, read: Read) -> Lookup:
        def look_up_paths(paths: Collection[str]) -> Mapping[str, str | None]:
            live_files = index.find_files(paths, version)
            return (
                self._snapshot(content, read).find_active_files(paths) if live_files is None else live_files
            )

        return look_up_paths

    def _is_extended_to(
        self, index: _ActiveFileIndex, content: DeltaTable, line: BranchLog, read: Read
    ) -> bool:
        """Whether an index answers for the end of a line, if need be after what came since."""
        with index.lock:
            if index.knows_line_end(line):
                return True
            if not index.tip.is_on(line, read):
                return False
            try:
                since = list(self._versions(content, index.tip.version, read))
            except VersionNotFound:
                return False  # the log was cleaned up in between, behind a checkpoint
            for version, actions in since:
                index.apply_version(version, actions)
            index.tip = BranchLogTip.from_line(line)
            return True

    def _limit_indexes(self) -> None:
        while len(self._indexes) > 1 and (
            len(self._indexes) > TABLES_MAX or sum(map(len, self._indexes.values())) > FILES_MAX
        ):
            self._indexes.popitem(last=False)


class _FileStateChange(NamedTuple):
    version: int
    before: dict[bytes, str | None]
    """What each path that it changed was."""


_WHOLE: Final = ""
"""Stands for a file without a deletion vector, ``None`` for no file: identities of vectors are not empty."""


class _ActiveFileIndex:
    """The files of a line at a version, and what the last commits before it changed."""

    def __init__(self, tip: BranchLogTip, snapshot: LogSnapshot) -> None:
        self.lock = Lock()
        self.tip = tip
        self._whole: set[bytes] = set()
        self._vectors: dict[bytes, str] = {}
        self._changes: deque[_FileStateChange] = deque(maxlen=VERSIONS_MAX)
        for path, vector in snapshot.file_keys():
            self._set_state(_hash_path(path), vector or _WHOLE)

    def __len__(self) -> int:
        return len(self._whole) + len(self._vectors)

    @property
    def oldest_version(self) -> int:
        """The first version that it can answer for."""
        return self._changes[0].version - 1 if self._changes else self.tip.version

    def knows_line_end(self, line: BranchLog) -> bool:
        """Whether it can answer for the end of a line as it is: somebody may have gone further."""
        both_default = not self.tip.uuid and line.tail is None
        return self.tip == BranchLogTip.from_line(line) or (
            both_default and self.oldest_version <= line.latest <= self.tip.version
        )

    def apply_version(self, version: int, actions: Collection[Action]) -> None:
        """Move on by one version. Its removes come first: it may replace a file's deletion vector."""
        before: dict[bytes, str | None] = {}
        for kind in (Remove, Add):
            for action in actions:
                if isinstance(action, kind):
                    path = _hash_path(action.key.path)
                    before.setdefault(path, self._get_state(path))
                    self._set_state(path, action.key.vector or _WHOLE if isinstance(action, Add) else None)
        self._changes.append(_FileStateChange(version, before))

    def find_files(self, paths: Collection[str], version: int) -> dict[str, str | None] | None:
        """Those of some paths that were files of a version; ``None`` if that lies too far back."""
        with self.lock:
            if version < self.oldest_version:
                return None
            newer = [change.before for change in self._changes if change.version > version]
            live_files: dict[str, str | None] = {}
            for path in paths:
                vector = self._find_vector(_hash_path(path), newer)
                if vector is not None:
                    live_files[path] = vector or None
            return live_files

    def _find_vector(self, path: bytes, newer: list[dict[bytes, str | None]]) -> str | None:
        for before in newer:
            if path in before:
                return before[path]
        return self._get_state(path)

    def _get_state(self, path: bytes) -> str | None:
        return _WHOLE if path in self._whole else self._vectors.get(path)

    def _set_state(self, path: bytes, known: str | None) -> None:
        if known == _WHOLE:
            self._whole.add(path)
        else:
            self._whole.discard(path)
        if known:
            self._vectors[path] = known
        else:
            self._vectors.pop(path, None)


def _hash_path(path: str) -> bytes:
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()
