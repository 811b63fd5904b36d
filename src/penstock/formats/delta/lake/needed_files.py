"""The files of Delta tables that a lake needs.

These are the log up to the last version that the lake has, what lies beside it, and the data files that any
of its versions names, or any of a clone. ``_last_checkpoint`` is left out: it is a hint, and would tell of
later versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.errors import Damaged, InvalidLog
from penstock.formats.delta.branch_log.branch_log import BranchLogEntry as Ratified
from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.lake.retained_tables import RetainedDeltaTables
from penstock.formats.delta.lake.services import DeltaServices
from penstock.formats.delta.log.referenced_files import DeltaNamedFiles, LogCoverage, read_log
from penstock.formats.delta.ownership.clones import SourceFinder, has_clones
from penstock.formats.delta.protocol.names import (
    LAST_CHECKPOINT,
    LOG,
    SIDECARS,
    UUID_PATTERN,
    CommitName,
    CompactionName,
    StagedName,
    parse_name,
)
from penstock.formats.delta.publishing.log_writer import group_versions, read_ratified_commits
from penstock.formats.delta.publishing.side_files import UniqueLogEntries, side_files
from penstock.formats.plugin import NeededFolder
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress
from penstock.model.nessie import DeltaTable
from penstock.storage.buckets import BucketEntry
from penstock.storage.locations import normalise_location

_UNIQUE: Final = re.compile(UUID_PATTERN)


def needed_folders(
    kernel: Kernel, parts: DeltaServices, problems: list[str], progress: Progress
) -> Iterator[NeededFolder]:
    """The folders of Delta tables. What stands against knowing what one needs is added to ``problems``."""
    needs: dict[str, _LogNeeds] = {}
    finder = SourceFinder(parts.owner.tables) if has_clones(kernel) else None
    clones: dict[str, set[str]] = {}
    for content in RetainedDeltaTables(kernel, parts.owner.tables, progress).walk_unseen_tables():
        location = normalise_location(content.location)
        if location not in needs:
            needs[location] = _LogNeeds(parts, content, location)
        needs[location].note_table(content)
        for source in () if finder is None else finder.find_sources(content):
            clones.setdefault(source, set()).add(location)
    borrowers = {location: needs[location] for location in set().union(*clones.values())}
    for location in sorted({*needs, *clones}):
        # The names of one table at a time are in memory, and those of clones.
        needed = needs.pop(location, None) or _LogNeeds(parts, DeltaTable(location=location), location)
        needed.borrowers = [borrowers[clone] for clone in sorted(clones.get(location, ()))]
        problems += (
            f"the Delta table at {folder.location}: {problem}"
            for folder in (needed, *needed.borrowers)
            if (problem := folder.read_needs())
        )
        yield NeededFolder(location, needed.files, needed.needs, _is_unique)


class _LogNeeds:
    """What kept commits need of the folder of a Delta table."""

    def __init__(self, parts: DeltaServices, content: DeltaTable, location: str) -> None:
        self._content, self._place, self.location = content, parts.places.open_place(location), location
        self.borrowers: Sequence[_LogNeeds] = ()
        """Clones that have files of the table."""
        self._is_settled = False
        self._read = parts.owner.tables.read_object
        self._entries = UniqueLogEntries(self._read)
        self._named, self._beside = DeltaNamedFiles(), set[str]()
        self._required: set[str] = set()
        """Files beside the log that nothing takes the place of."""
        self._latest, self._rests_on = -1, set[int]()
        self._waiting: list[tuple[int, Ratified]] = []
        self._is_clear = True
        self._sizes = {
            name.version: entry.size
            for entry in self._place.list(LOG)
            if isinstance(name := parse_name(entry.key), CommitName)
        }

    def note_table(self, content: DeltaTable) -> None:
        """Learn what the table needs as one kept commit has it."""
        line = decode_branch_log(content)
        self._latest = max(self._latest, line.fork_version)
        self._rests_on.add(line.published)
        for version, entry in self._entries.find_unseen_entries(content):
            self._beside.update(side_files(version, entry))
            if entry.line:
                self._required.add(entry.get_staged_path(version))
            elif self._sizes.get(version) != entry.size:
                self._beside.add(entry.get_staged_path(version))
            else:
                continue  # the log names it
            self._waiting.append((version, entry))

    def read_needs(self) -> str:
        """Read what the versions name, once; returns what stands against knowing it, if anything."""
        if self._is_settled:
            return ""
        self._is_settled = True
        try:
            log = read_log(self._place, self._named, self._latest)
            reported: set[int] = set()
            for some in group_versions(self._waiting):
                for byte in read_ratified_commits(self._place, self._content, some, self._read):
                    self._named.take_commit(
                        self._place.url, byte.entry.get_staged_path(byte.version), byte.data
                    )
                    if not byte.entry.line:
                        reported.add(byte.version)
            self._check_log(log, reported)
        except (InvalidLog, Damaged) as problem:
            self._is_clear = False
            return problem.message
        self._waiting = []
        return ""

    def _check_log(self, log: LogCoverage, reported: set[int]) -> None:
        for version in sorted(self._rests_on - {-1}):
            unknown = (
                missing_version
                for missing_version in range(log.latest_version + 1, version + 1)
                if missing_version not in reported
            )
            missing = (
                next(unknown, None)
                if version > log.latest_version or log.covers_version(version)
                else version
            )
            if missing is not None:
                raise InvalidLog(f"version {missing} cannot be read from its log any more")

    def files(self) -> Iterator[BucketEntry]:
        return (entry for entry in self._place.entries() if self._is_kept(entry.key))

    def needs(self, name: str) -> bool:
        """Of the log, a checkpoint may take the place of commits, and a published commit that of a staged
        one: whether all can be read is found out from the log as a whole."""
        return name in self._required or self._is_named(name)

    def _is_named(self, name: str) -> bool:
        return name in self._named or any(name in clone._named for clone in self.borrowers)

    def _is_kept(self, name: str) -> bool:
        if name == LAST_CHECKPOINT:
            return False
        is_clear = self._is_clear and all(clone._is_clear for clone in self.borrowers)
        if not is_clear or name in self._beside or self._is_named(name):
            return True
        if name.startswith(SIDECARS):
            return True
        uuid_name = parse_name(name)
        if uuid_name is None or isinstance(uuid_name, StagedName):
            return False
        return (
            uuid_name.last if isinstance(uuid_name, CompactionName) else uuid_name.version
        ) <= self._latest


def _is_unique(name: str) -> bool:
    return not name.startswith(LOG) and _UNIQUE.search(name.rpartition("/")[2]) is not None
