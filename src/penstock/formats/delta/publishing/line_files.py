"""The files of versions that are in no log, or not yet: for readers who are told their names.

The file of a version has one name, and one name has the same bytes for ever. So whoever needs one writes it
if it is not there, and what was seen to be there is not looked for again. Where many are needed, one look at
their folder tells which are there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final

from penstock.errors import OutcomeUnknown
from penstock.formats.delta.branch_log.branch_log import BranchLogEntry, Read, read_commit_record
from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.log_writer import group_versions, read_ratified_commits
from penstock.formats.delta.publishing.prefetch_reader import read_ahead
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places

NAMES_MAX: Final = 20_000
"""How many names of files are remembered that surely exist."""

LISTED_FROM: Final = 64
"""So many files are looked up by listing rather than one by one."""


class LineFiles:
    """Has the files of versions written. May be used by many threads. ``read`` reads kernel objects."""

    def __init__(self, places: Places, read: Read) -> None:
        self._places, self._read = places, read
        self._seen = _LineFileNames(NAMES_MAX)

    def provide_files(
        self, content: DeltaTable, entries: Sequence[tuple[int, BranchLogEntry]]
    ) -> dict[int, str]:
        """Have a file for each of some versions of a line, and give their names below the table's root.

        ``InvalidLog`` if one has other bytes than were ratified, or can be made of nothing that is there.
        """
        names = {version: entry.get_staged_path(version) for version, entry in entries}
        missing = [entry for entry in entries if (content.location, names[entry[0]]) not in self._seen]
        if len(missing) >= LISTED_FROM:
            missing = self._find_unlisted_versions(content.location, missing)
        for some in group_versions(missing):
            names |= self._ensure_files(content, some)
        return names

    def _find_unlisted_versions(
        self, location: str, entries: Sequence[tuple[int, BranchLogEntry]]
    ) -> list[tuple[int, BranchLogEntry]]:
        """Those of some versions whose files are not in their folders with the sizes that they must have."""
        place = self._places.open_place(location)
        folders: dict[str, list[tuple[int, BranchLogEntry]]] = {}
        for version, entry in entries:
            folders.setdefault(entry.get_staged_path(version).rpartition("/")[0] + "/", []).append(
                (version, entry)
            )
        sizes: dict[str, int] = {}
        for folder, some in folders.items():
            first, last = f"{folder}{some[0][0]:020}", f"{folder}{some[-1][0] + 1:020}"
            sizes.update((entry.key, entry.size) for entry in place.list(folder, first, last))
        listed_entries = [
            entry for entry in entries if sizes.get(entry[1].get_staged_path(entry[0])) == entry[1].size
        ]
        self._seen.add_names((location, entry.get_staged_path(version)) for version, entry in listed_entries)
        listed_versions = {version for version, _ in listed_entries}
        return [entry for entry in entries if entry[0] not in listed_versions]

    def _ensure_files(
        self, content: DeltaTable, entries: Sequence[tuple[int, BranchLogEntry]]
    ) -> dict[int, str]:
        """Write the files that can be made of held bytes, and see that the others are there."""
        place = self._places.open_place(content.location)
        read_ahead(entries, self._read)
        held: list[tuple[int, BranchLogEntry]] = []
        staged: list[tuple[int, BranchLogEntry]] = []
        for line_entry in entries:
            (staged if read_commit_record(line_entry[1], self._read).head is None else held).append(
                line_entry
            )
        names = {version: entry.get_staged_path(version) for version, entry in entries}
        items = [
            (names[byte.version], byte.data)
            for byte in read_ratified_commits(place, content, held, self._read)
        ]
        try:
            created = place.create_each(items)
        except OutcomeUnknown:  # doing it twice does no harm
            created = place.create_each(items)
        present = [entry for entry, is_new in zip(held, created, strict=True) if not is_new] + staged
        sizes = place.sizes([names[version] for version, _ in present])
        for (version, entry), size in zip(present, sizes, strict=True):
            if size == entry.size:
                continue
            if size is not None or entry.line or place.size(str(CommitName(version))) != entry.size:
                raise InvalidLog(
                    f"{content.location}/{names[version]} is "
                    + ("gone" if size is None else f"{size} bytes long instead of {entry.size}"),
                    location=content.location,
                    version=version,
                    name=names[version],
                )
            names[version] = str(CommitName(version))
        self._seen.add_names((content.location, name) for name in names.values())
        return names


class _LineFileNames:
    """Some names of files that are there for good, the newest of those that were seen."""

    def __init__(self, names_max: int) -> None:
        self._max = names_max
        self._names: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._lock = Lock()

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def add_names(self, some: Iterable[tuple[str, str]]) -> None:
        with self._lock:
            for entry in some:
                self._names[entry] = None
                self._names.move_to_end(entry)
            while len(self._names) > self._max:
                self._names.popitem(last=False)
