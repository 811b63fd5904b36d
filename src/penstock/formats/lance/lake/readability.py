"""Whether Lance tables can be read at every branch, tag and transaction: files of a version may be gone.

The lake itself removes nothing that a reference needs. Others can: who removes files by hand, or has Lance
clean up in a way that it must not. Nobody would notice before the next reader of that branch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.errors import Damaged, PenstockError, ReferenceNotFound, TransactionNotFound, TransactionOver
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.leftovers import is_data
from penstock.formats.lance.lake.manifest_files import INDICES, ManifestFiles, UnclearManifest, list_spellings
from penstock.formats.lance.lake.retained_tables import list_tables_at
from penstock.formats.lance.manifest_reader import ManifestReader
from penstock.formats.lance.names import MAIN, TRANSACTIONS, make_branch_folder
from penstock.formats.lance.state import LanceTableVersion, LanceVersionReader, decode_state
from penstock.kernel.kernel import Kernel
from penstock.kernel.table_horizons import TableHorizons
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.references import Kind, Reference
from penstock.storage.locations import normalise_location
from penstock.storage.name_hashes import hash_name
from penstock.storage.places import Places

KINDS: Final = (Kind.BRANCH, Kind.TAG, Kind.TRANSACTION)
NAMES_MAX: Final = 3
"""How many of the files that are gone are told by name."""

logger = logging.getLogger("penstock")


class UnreadableTable(NamedTuple):
    """A table that cannot be read at a reference."""

    kind: Kind
    reference: str
    key: Key
    location: str
    why: str
    is_index: bool = False
    """Whether only files of indexes are gone."""

    @property
    def reference_text(self) -> str:
        return f"{self.kind.value} '{self.reference}'"

    def __str__(self) -> str:
        instead = (
            "restore a version of it that can be read; if none can, drop the table there, and create it again"
        )
        if self.kind is Kind.TAG:
            instead = "delete the tag"
        elif self.is_index:
            instead = "drop the index there, and create it again"
        return (
            f"the Lance table '{self.key}' cannot be read there: {self.why}. Restore what is missing from "
            f"a backup of {self.location}. If there is none, {instead}: that changes nothing else"
        )


class LanceReadability:
    """Looks whether tables can be read; at every version once, and into every folder at most once."""

    def __init__(self, kernel: Kernel, places: Places, *, with_files: bool) -> None:
        """``with_files`` tells that it is looked for all files that a version names, and not only for its
        manifest: that takes a list of all files of each table."""
        self._kernel, self._places, self._with_files = kernel, places, with_files
        self._manifests = ManifestReader(places)
        self._horizons = TableHorizons.read_horizons(kernel.store, kernel.formats)
        self._known: dict[tuple[str, ObjectId], tuple[str, bool]] = {}
        self._there: dict[str, set[bytes]] = {}
        self.tables: set[str] = set()
        """The locations of the tables that were looked at."""

    def find_unreadable_tables(self) -> Iterator[UnreadableTable]:
        """The tables that cannot be read. What could not be looked at is logged: it may be there."""
        try:
            references = [
                reference for kind in KINDS for reference in self._kernel.references.list_all_references(kind)
            ]
        except PenstockError as problem:
            logger.warning("Lance tables could not be checked: %s", problem)
            return
        for reference in references:
            try:
                yield from self._check_reference(reference)
            except (PenstockError, AttributeError, TypeError, ValueError, LookupError) as problem:
                # Objects that are damaged are told by whoever checks them.
                logger.warning("not all Lance tables on '%s' could be checked: %s", reference.name, problem)

    def _check_reference(self, reference: Reference) -> Iterator[UnreadableTable]:
        if reference.head == NO_COMMIT:
            return
        for key, content in list_tables_at(self._kernel, reference.head):
            if self._horizons.is_behind(content):
                continue  # it was erased, and is not to be there
            newest = LanceVersionReader(self._kernel.objects, decode_state(content)).find_newest()
            location = normalise_location(content.location)
            self.tables.add(location)
            if newest is None:
                continue
            cache_key = location, newest[1].make_id(newest[0])
            if cache_key not in self._known:
                self._known[cache_key] = self._find_problem(content, *newest)
            why, is_index = self._known[cache_key]
            if why and self._is_there(reference):
                yield UnreadableTable(reference.kind, reference.name, key, location, why, is_index)

    def _is_there(self, reference: Reference) -> bool:
        """Whether a reference still is where it was: what is gone may be what only it needed."""
        with suppress(ReferenceNotFound, TransactionNotFound, TransactionOver):
            return self._kernel.references.get_reference(reference.name).head == reference.head
        return False

    def _find_problem(self, content: LanceTable, number: int, version: LanceTableVersion) -> tuple[str, bool]:
        """Why a version cannot be read, and whether that is for want of an index; nothing if it can be, as
        far as is known."""
        try:
            manifest = self._manifests.read_manifest(content.location, MAIN, number, version)
        except Damaged as problem:
            return problem.message, False
        if not self._with_files:
            return "", False
        location = normalise_location(content.location)
        folder = f"{location}/{make_branch_folder(version.chain, MAIN)}".rstrip("/")
        try:
            named = [
                file
                for file in ManifestFiles().list_new_files(manifest, folder)
                if file.startswith(f"{location}/")
            ]
        except UnclearManifest:
            return "", False
        files = self._list_named_files(location)
        gone = [file for file in named if f"/{TRANSACTIONS}" not in file and hash_name(file) not in files]
        shown_files = ", ".join(file.removeprefix(f"{location}/") for file in sorted(gone)[:NAMES_MAX])
        more = f" and {len(gone) - NAMES_MAX} more" if len(gone) > NAMES_MAX else ""
        why = f"files of version {number} are gone ({shown_files}{more})" if gone else ""
        return why, all(f"/{INDICES}" in file for file in gone)

    def _list_named_files(self, location: str) -> set[bytes]:
        """The files with rows, deletions and indexes of a table, by hashes of the names that manifests have
        for them."""
        if location not in self._there:
            keys = (entry.key for entry in self._places.open_place(location).entries() if is_data(entry.key))
            names = (name for key in keys for name in list_spellings(f"{location}/{key}"))
            self._there[location] = set(map(hash_name, names))
        return self._there[location]
