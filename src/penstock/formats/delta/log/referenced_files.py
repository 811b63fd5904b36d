"""The data files that a table's log references at any version that can still be read.

Added files, files of the change feed and files of deletion vectors are named, and so are removed ones: as
long as the log tells that a file was removed, somebody may still read a version that has it. Names are kept
as hashes, a few dozen bytes for each file. Two names that share one only make a file stay that might go; for
the same reason a name is compared in its most decoded form, and an absolute address names whatever it may be
meant to name below the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

import msgspec

from penstock.formats.delta.errors import InvalidLog, MalformedAction
from penstock.formats.delta.log.log_files import LogFile, PlaceFiles
from penstock.formats.delta.log.segments import whole_checkpoints
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import (
    Add,
    Cdc,
    DeletionVector,
    FileKey,
    Remove,
    decode_path,
    parse_commit,
)
from penstock.formats.delta.protocol.names import VERSION_MAX, CommitName, parse_name
from penstock.formats.delta.rows.vectors import get_vector_file_name
from penstock.storage.places import Place

VECTOR_INLINE: Final = "i"
VECTOR_FILE: Final = "u"
VECTOR_ADDRESS: Final = "p"
"""How a deletion vector is stored: within the action, in a file named by a UUID, or by its address."""


class DeltaNamedFiles:
    """The files that are named, by their names below the table's root."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and hash(_normalise_name(name)) in self._hashes

    def take_commit(self, table: str, file: str, data: bytes) -> None:
        """What a commit names. ``InvalidLog`` if it cannot be understood."""
        try:
            for line in parse_commit(data):
                if isinstance(line.action, Add | Remove):
                    self.take_key(line.action.key)
                elif isinstance(line.action, Cdc):
                    self._add_path(decode_path(line.action.path))
        except MalformedAction as problem:
            raise InvalidLog(
                f"{file} of the table {table} cannot be parsed: {problem}", table=table, file=file
            ) from None

    def take_key(self, key: FileKey) -> None:
        """A data file, and the file of its deletion vector if it has one. ``InvalidLog`` if that cannot be
        told."""
        self._add_path(key.path)
        if key.vector is None or key.vector.startswith(VECTOR_INLINE):
            return
        names = [*_list_vector_names(key.vector)]
        if not names:
            raise InvalidLog(f"the deletion vector {key.vector!r} of {key.path} names no file", file=key.path)
        for name in names:
            self._add_path(name)

    def _add_path(self, path: str) -> None:
        name = _normalise_name(path)
        self._hashes.add(hash(name))
        if name.startswith("/") or ":/" in name:
            steps = name.split("/")
            self._hashes.update(hash("/".join(steps[start:])) for start in range(1, len(steps)))


class LogCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """A log all of whose names were taken."""

    commits: dict[int, int]
    """The published versions that it has, each with the size of its file."""
    covered: tuple[range, ...]
    """The versions that can be read from it."""

    @property
    def latest_version(self) -> int:
        """The newest version that it tells of; -1 if it has none."""
        return max((*self.commits, *(versions[-1] for versions in self.covered)), default=-1)

    def covers_version(self, version: int) -> bool:
        return any(version in versions for versions in self.covered)


def read_log(place: Place, named: DeltaNamedFiles, until: int = VERSION_MAX) -> LogCoverage:
    """Take every name from the log at a place: from all commits that are there, and where those before are
    missing, from the checkpoint that stands for them. Versions after ``until`` are left out.

    ``InvalidLog`` if a file of it cannot be read, also because it is cleaned up at this very moment.
    """
    files = PlaceFiles(place)
    listed = [
        log_file
        for log_file in files.list_files("")
        if (uuid_name := parse_name(log_file.name)) and uuid_name[0] <= until
    ]
    commits = {
        uuid_name.version: log_file.size
        for log_file in listed
        if isinstance(uuid_name := parse_name(log_file.name), CommitName)
    }
    covered, checkpoints = _find_readable_versions(commits, _checkpoint_versions(place.url, listed))
    for version in checkpoints:
        snapshot = load_snapshot(files, version)
        for key in snapshot.file_keys():
            named.take_key(key)
        for removed in snapshot.read_tombstones():
            named.take_key(removed.key)
    names = [str(CommitName(version)) for version in commits]
    for name, data in zip(names, files.read_files(names), strict=True):
        if data is None:
            raise InvalidLog(
                f"{name} of the table {place.url} was removed after its log was listed\n  If the log is "
                "being cleaned up at this moment, try again; otherwise put the file back.",
                table=place.url,
                file=name,
            )
        named.take_commit(place.url, name, data)
    return LogCoverage(commits=commits, covered=covered)


def _checkpoint_versions(table: str, listed: Iterable[LogFile]) -> set[int]:
    return {whole_checkpoint.version for whole_checkpoint in whole_checkpoints(table, listed)}


def _find_readable_versions(
    commits: Iterable[int], checkpoints: set[int]
) -> tuple[tuple[range, ...], list[int]]:
    """The ranges of versions that can be read, and the checkpoints that are needed for it."""
    readable, needed = set(commits), list[int]()
    runs: list[range] = []
    after = 0
    for version in sorted(readable | checkpoints):
        follows = version == after and version in readable
        if not follows and version not in checkpoints:
            continue  # what came before it is missing, so that it cannot be read
        if not follows:
            needed.append(version)
        if runs and runs[-1].stop == version:
            runs[-1] = range(runs[-1].start, version + 1)
        else:
            runs.append(range(version, version + 1))
        after = version + 1
    return tuple(runs), needed


def _normalise_name(name: str) -> str:
    while "%" in name and (decoded := unquote(name)) != name:
        name = decoded
    if "//" in name or "./" in name:
        absolute = "/" if name.startswith("/") else ""
        name = absolute + "/".join(step for step in name.split("/") if step not in ("", "."))
    return name


def _list_vector_names(vector: str) -> Iterator[str]:
    """The file of a vector, from its unique id, which may end with an offset, as may the name itself: then
    both are meant."""
    kind, text = vector[:1], vector[1:]
    for name in {text, text.rpartition("@")[0]} - {""}:
        if kind == VECTOR_ADDRESS:
            yield decode_path(name)
        elif kind == VECTOR_FILE:
            stored = DeletionVector(storage_type=kind, path_or_inline_dv=name, size_in_bytes=0, cardinality=0)
            with suppress(ValueError):
                yield get_vector_file_name(stored)
