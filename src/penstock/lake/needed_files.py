"""All files of tables that a lake needs, folder by folder: what every kept commit of it can be read by.

They are found as sweeps find what is to stay (``lake.kept``): of Delta tables the log up to the last version
that the lake has, what lies beside it, and the data files that any of its versions names; of Lance tables
what kept versions name, also in other folders; of tables of files their files in the pool. What is only a
hint, and would tell of later versions, is left out: ``_last_checkpoint`` of Delta, the version hint of Lance.

Of a folder that is not understood, all files count as needed, and what is wrong is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from penstock.errors import Damaged, InvalidLog
from penstock.formats.delta.lines.line import Entry as Ratified
from penstock.formats.delta.lines.line import line_of
from penstock.formats.delta.log.named import LogRead, read_log
from penstock.formats.delta.log.named import NamedFiles as NamedInLog
from penstock.formats.delta.log.scratch import Entries, beside
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
from penstock.formats.delta.publishing.backfill import batches, bytes_of
from penstock.kernel.reachable import Progress, silent
from penstock.lake.delta_kept import KeptTables
from penstock.lake.delta_plugin import DeltaPlugin
from penstock.lake.embedded import Embedded
from penstock.lake.files.named import FOLDER_CHARS, NamedFiles, name_hash
from penstock.lake.files.pool import pool_of
from penstock.lake.lance.kept import KeptLance, KnownTable
from penstock.lake.lance.leftovers import HINT, Needs, is_data, judge
from penstock.model.content import DeltaTable
from penstock.storage.buckets import Entry
from penstock.storage.fates import Fate
from penstock.storage.locations import is_under, normalise

ALWAYS_US: Final = 2**63 - 1
"""Later than any file was written: none is too young to be judged."""
_UNIQUE: Final = re.compile(UUID_PATTERN)


class NeededFolder(NamedTuple):
    """A folder, and which of its files are needed."""

    location: str
    files: Callable[[], Iterator[Entry]]
    """Lists them in the order of their names, which are below the folder."""
    needs: Callable[[str], bool]
    """Whether a file has to be there: some of those that are listed may go when others take their place."""
    is_unique: Callable[[str], bool]
    """Whether a name is never given to another file."""


class NeededFiles:
    """Looks at all kept commits of a lake, once, and tells which files they need."""

    def __init__(self, lake: Embedded, progress: Progress = silent) -> None:
        self._lake, self._places, self._progress = lake, lake.places, progress
        self.problems: list[str] = []
        """What stands against knowing what some folder needs."""

    def folders(self) -> Iterator[NeededFolder]:
        """All folders in which something is needed. ``Damaged`` if history cannot be walked."""
        if not self._lake.has_any_tables():
            return
        yield from self._of_delta()
        yield from self._of_lance()
        if self._lake.warehouse:
            yield from self._of_files()

    def _of_delta(self) -> Iterator[NeededFolder]:
        tables = self._lake.plugin(DeltaPlugin).parts.owner.tables
        words: dict[str, _DeltaWord] = {}
        for content in KeptTables(self._lake.kernel, tables, self._progress).news():
            location = normalise(content.location)
            if location not in words:
                words[location] = _DeltaWord(self._lake, content, location)
            words[location].take(content)
        for location in sorted(words):
            word = words.pop(location)  # the names of one table at a time are in memory
            if problem := word.settle():
                self.problems.append(f"the Delta table at {location}: {problem}")
            yield NeededFolder(location, word.files, word.needs, _is_unique_in_delta)

    def _of_lance(self) -> Iterator[NeededFolder]:
        kept = KeptLance(self._lake.kernel, self._places, self._progress)
        kept.look()
        for location, table in sorted(kept.tables.items()):
            if table.problem:
                self.problems.append(f"the Lance table at {location}: {table.problem}")
            word = _LanceWord(self._lake, kept, location, table)
            yield NeededFolder(location, word.files, word.needs, is_data)
        for location in sorted(kept.bases):
            if not any(is_under(location, one) for one in (*kept.tables, *kept.bases - {location})):
                word = _LanceWord(self._lake, kept, location, None)
                yield NeededFolder(location, word.files, word.needs, is_data)

    def _of_files(self) -> Iterator[NeededFolder]:
        pool = normalise(pool_of(self._lake.warehouse))
        yield NeededFolder(pool, self._pool_files, lambda _: True, lambda _: True)

    def _pool_files(self) -> Iterator[Entry]:
        """The files that are named, of as many folders at a time as can be in memory."""
        place = self._places.at(pool_of(self._lake.warehouse))
        after: str | None = ""
        while after is not None:
            named = NamedFiles(self._lake.kernel, lambda _: True, after, self._progress)
            named.look()
            for folder in named.folders:
                left = set(named.inside(folder))
                for entry in place.entries(folder):
                    one = name_hash(entry.key[FOLDER_CHARS + 1 :])
                    if one in left:
                        left.discard(one)
                        yield entry
                if left:
                    self.problems.append(f"{len(left)} files of tables are gone in {place.url}/{folder}")
            after = named.before


class _DeltaWord:
    """What kept commits need of the folder of a Delta table."""

    def __init__(self, lake: Embedded, content: DeltaTable, location: str) -> None:
        self._content, self._place = content, lake.places.at(location)
        self._read = lake.plugin(DeltaPlugin).parts.owner.tables.read
        self._entries = Entries(self._read)
        self._named, self._beside = NamedInLog(), set[str]()
        self._required: set[str] = set()
        """Files beside the log that nothing takes the place of."""
        self._latest, self._rests_on = -1, set[int]()
        self._waiting: list[tuple[int, Ratified]] = []
        self._is_clear = True
        self._sizes = {
            found.version: entry.size
            for entry in self._place.list(LOG)
            if isinstance(found := parse_name(entry.key), CommitName)
        }

    def take(self, content: DeltaTable) -> None:
        """Learn what the table needs as one kept commit has it."""
        line = line_of(content)
        self._latest = max(self._latest, line.fork)
        self._rests_on.add(line.published)
        for version, entry in self._entries.news(content):
            self._beside.update(beside(version, entry))
            if entry.line:
                self._required.add(entry.name(version))
            elif self._sizes.get(version) != entry.size:
                self._beside.add(entry.name(version))
            else:
                continue  # the log names it
            self._waiting.append((version, entry))

    def settle(self) -> str:
        """Read what the versions name; returns what stands against knowing it, if anything."""
        try:
            log = read_log(self._place, self._named, self._latest)
            told: set[int] = set()
            for some in batches(self._waiting):
                for one in bytes_of(self._place, self._content, some, self._read):
                    self._named.take_commit(self._place.url, one.entry.name(one.version), one.data)
                    if not one.entry.line:
                        told.add(one.version)
            self._check(log, told)
        except (InvalidLog, Damaged) as problem:
            self._is_clear = False
            return problem.message
        self._waiting = []
        return ""

    def _check(self, log: LogRead, told: set[int]) -> None:
        for version in sorted(self._rests_on - {-1}):
            unknown = (one for one in range(log.latest + 1, version + 1) if one not in told)
            missing = next(unknown, None) if version > log.latest or log.covers(version) else version
            if missing is not None:
                raise InvalidLog(f"version {missing} cannot be read from its log any more")

    def files(self) -> Iterator[Entry]:
        return (entry for entry in self._place.entries() if self._is_kept(entry.key))

    def needs(self, name: str) -> bool:
        """Of the log, a checkpoint may take the place of commits, and a published commit that of a staged
        one: whether all can be read is found out from the log as a whole."""
        return name in self._named or name in self._required

    def _is_kept(self, name: str) -> bool:
        if name == LAST_CHECKPOINT:
            return False
        if not self._is_clear or name in self._named or name in self._beside:
            return True
        if name.startswith(SIDECARS):
            return True
        found = parse_name(name)
        if found is None or isinstance(found, StagedName):
            return False
        return (found.last if isinstance(found, CompactionName) else found.version) <= self._latest


def _is_unique_in_delta(name: str) -> bool:
    return not name.startswith(LOG) and _UNIQUE.search(name.rpartition("/")[2]) is not None


class _LanceWord:
    """What kept commits need of a folder of Lance: of a table, or of files that tables elsewhere name."""

    def __init__(self, lake: Embedded, kept: KeptLance, location: str, table: KnownTable | None) -> None:
        self._place, self._kept, self._location, self._table = lake.places.at(location), kept, location, table

    def files(self) -> Iterator[Entry]:
        return (entry for entry in self._place.entries() if self._is_kept(entry))

    def needs(self, name: str) -> bool:
        return self._kept.names(f"{self._location}/{name}") and is_data(name)

    def _is_kept(self, entry: Entry) -> bool:
        if entry.key.rpartition("/")[2] == HINT:
            return False
        if self._table is None:
            return self._kept.names(f"{self._location}/{entry.key}")
        if self._table.problem:
            return True
        return judge(entry, Needs(self._table, self._kept.names, (), ALWAYS_US)) is Fate.KEPT
