"""Erasing a table of files: files that only its earlier states name, and the paths that these had.

A table of files holds no deleted rows beside others: who removes rows writes files anew. So nothing is
rewritten. A commit that changes no file marks where the history begins; every later state carries the mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from penstock.errors import Damaged, InvalidRequest, KeyNotFound
from penstock.formats.files import trees
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import File, decode_state, find_slice, is_managed
from penstock.formats.files.intents import NAME, HistoryMark, encode_mark
from penstock.formats.files.lake.pool import find_pool
from penstock.formats.files.lake.sweep import FilesSweep
from penstock.formats.files.lake.sweep_calls import SweepFiles
from penstock.kernel.description import read_description
from penstock.kernel.objects import read_content
from penstock.kernel.table_horizons import TableHorizons, hash_state
from penstock.lake.answers import SweptTable
from penstock.lake.erase import (
    FirstVersionKept,
    LeftoverFiles,
    TableHolder,
    list_dated_states,
    list_retained_states,
)
from penstock.model.commits import CommitMeta
from penstock.model.content import ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Change
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.kernel.reachable import Progress
    from penstock.kernel.table_horizons import TableHorizon
    from penstock.lake.embedded import Embedded


SPARED_MAX: Final = 4096
"""How many states an erase up to a moment may spare: the lake keeps a hash of each."""


class FilesErasure:
    """What an erase does to a table of files of the default branch."""

    def __init__(self, lake: Embedded, key: Key, who: str, *, dropped: UUID | None = None) -> None:
        """``dropped`` is the id of a table that was, and is not at the key any more."""
        self._lake, self._kernel, self._key, self._who = lake, lake.kernel, key, who
        self._branch = lake.kernel.formats.default_branch
        self._is_dropped = dropped is not None
        self._table = self.content.id if dropped is None else dropped
        self._moment: tuple[ManagedTable, int] | None = None
        self._spared: set[bytes] = set()
        """States from before that stay."""
        self._forked = 0
        """How many files of the pool stay for forks, of whatever table."""

    @property
    def content(self) -> FilesTable:
        return self._read_table(self._default_branch_head())

    @property
    def _pool(self) -> Place:
        return self._lake.places.open_place(find_pool(self._lake.warehouse))

    def _default_branch_head(self) -> ObjectId:
        return self._kernel.references.get_reference(self._branch).head

    def _read_table(self, commit: ObjectId) -> FilesTable:
        content = read_content(self._kernel.objects, self._kernel.read_state(commit).get(self._key.encode()))
        if not isinstance(content, FilesTable) or not is_managed(content):
            raise KeyNotFound(
                f"the table of files '{self._key}' no longer exists on '{self._branch}'", key=str(self._key)
            )
        return content

    def require_erasable(self) -> None:
        """Nothing stands against it: every lake writes to its tables of files, a copy too."""

    def read_latest_version(self) -> int:
        return decode_state(self.content).mark

    def has_own_changes(self, content: ManagedTable, head: ObjectId) -> bool:
        """Whether a branch has written to the table since it left the default branch."""
        bases = self._kernel.history.merge_bases(head, self._default_branch_head())
        return not any(self._is_at(base, content) for base in bases if base != NO_COMMIT)

    def _is_at(self, commit: ObjectId, content: ManagedTable) -> bool:
        found_content = read_content(
            self._kernel.objects, self._kernel.read_state(commit).get(self._key.encode())
        )
        return found_content == content

    def find_holders(self, first: int | None) -> Iterator[TableHolder]:  # noqa: ARG002
        """The lake that this one is a copy of, if files of the table were written there: they stay there."""
        source = read_description(self._kernel.store).forked_from
        if not source:
            return
        addresses = (address for content in self._list_states() for address in self._list_addresses(content))
        if not all(map(self._is_own, addresses)):
            way = "it has files of the table; erase them there as well; --all-references goes on without"
            yield TableHolder(f"lake {source}, which this lake is a copy of", True, way)

    def _is_own(self, address: str) -> bool:
        """Whether a file was written by this lake, and not by one that it is a copy of."""
        folder = address.partition("/")[0]
        return folder == find_slice(self._lake.id, folder[:8])

    def count_files_to_rewrite(self) -> int:
        return 0

    def rewrite_files(self) -> int:
        return 0

    def find_first_kept_version(self, start: ManagedTable, moment_us: int) -> int | None:
        """Let the states stay that the table had from a moment on, and which begin with ``start``: the mark
        that comes then. ``None`` if it had no others."""
        self._moment = start, moment_us
        self._spared, is_any_older = self._list_later_states()
        return self.read_latest_version() + 1 if is_any_older else None

    def is_state_kept(self, content: ManagedTable) -> bool:
        return hash_state(content) in self._spared

    def is_history_cut_at(self, content: ManagedTable, first: int) -> bool:
        """Whether a state that is retained has another mark than those to come."""
        return isinstance(content, FilesTable) and decode_state(content).mark < first

    def _list_later_states(self) -> tuple[set[bytes], bool]:
        """The states that the table had from the moment on, and whether it had others that are retained."""
        if self._moment is None:
            return set(), False
        start, moment_us = self._moment
        horizons = TableHorizons.read_horizons(self._kernel.store, self._kernel.formats)
        younger, older = {hash_state(start)}, set[bytes]()
        for time_us, content in list_dated_states(self._kernel, self._table):
            if not horizons.is_behind(content):
                (younger if time_us > moment_us else older).add(hash_state(content))
        if len(younger) > SPARED_MAX:
            raise InvalidRequest(
                f"'{self._key}' had {len(younger)} states since the given time, but an erase can keep at "
                "most "
                f"{SPARED_MAX}; give a later time",
                key=str(self._key),
            )
        return younger, bool(older - younger)

    def commit_first_version(self, erase: str) -> FirstVersionKept:
        """Commit the mark from which on the history exists, once however often it is asked for."""
        intent = encode_mark(HistoryMark(number=self.read_latest_version() + 1))
        authors = (self._who,) if self._who else ()
        outcome = self._kernel.commit(
            self._branch,
            [Change(self._key, NAME, intent)],
            CommitMeta(message=f"erase deleted files of {self._key}", committer=self._who, authors=authors),
            key=f"erase-{erase}",
            fingerprint=erase.encode,
        )
        content = self._read_table(outcome.commits[-1] if outcome.commits else outcome.head)
        first = decode_state(content).mark
        if self._moment is not None:
            return FirstVersionKept(first, b"".join(sorted(self._list_later_states()[0])))
        return FirstVersionKept(first, content=content if outcome.commits else None)

    def count_earlier_log_files(self) -> int:
        return 0

    def list_unneeded_file_sizes(self) -> list[int]:
        """The sizes of files that earlier states name, and neither the newest nor one that is spared."""
        sizes: dict[str, int] = {}
        live_files = self._list_live_files()
        for content in self._list_states():
            if self.is_state_kept(content):
                live_files |= self._list_addresses(content).keys()
            else:
                sizes |= self._list_addresses(content)
        return [
            size for address, size in sizes.items() if address not in live_files and self._is_own(address)
        ]

    def _list_live_files(self) -> set[str]:
        """The files of the newest state; none if the table was dropped."""
        return (
            set()
            if self._is_dropped
            else {file.address_at(path) for path, file in self._list_files(self.content)}
        )

    def find_leftovers(self, horizon: TableHorizon) -> LeftoverFiles:
        """Files that only earlier states name and that are there still.

        All of them were written before the erase began, so that a grace period later none can be left. Until
        then they are looked for by name, as long as the lake has the trees of these states.
        """
        until_us = horizon.begun_us + self._kernel.graces.find_sweep_grace().data_us
        if self._kernel.clock() > until_us:
            return LeftoverFiles(forked=self._forked)
        gone, live_files = set[str](), self._list_live_files()
        horizons = TableHorizons.read_horizons(self._kernel.store, self._kernel.formats)
        try:
            for content in self._list_states():
                addresses = gone if horizons.is_behind(content) else live_files
                addresses.update(self._list_addresses(content))
        except Damaged:  # a sweep has taken trees meanwhile
            return LeftoverFiles(1, until_us, forked=self._forked)
        sizes = self._pool.sizes(sorted(gone - live_files))
        return LeftoverFiles(sum(size is not None for size in sizes), until_us, forked=self._forked)

    def _list_states(self) -> Iterator[FilesTable]:
        """The states of the table that kept commits have, each once."""
        seen: set[bytes] = set()
        for content in list_retained_states(self._kernel, self._table):
            if isinstance(content, FilesTable) and is_managed(content) and content.state not in seen:
                seen.add(content.state)
                yield content

    def _list_addresses(self, content: FilesTable) -> dict[str, int]:
        """The files of a state, with their sizes."""
        return {file.address_at(path): file.size for path, file in self._list_files(content)}

    def _list_files(self, content: FilesTable) -> Iterator[tuple[str, File]]:
        return trees.list_below(self._kernel.objects, decode_state(content).root)

    def cut_history(self, first: int) -> tuple[int, int, str]:  # noqa: ARG002 - it has no log
        return 0, 0, ""

    def sweep_unneeded_files(self, progress: Progress) -> SweptTable:
        """Remove files of the pool that nothing retained names and that nobody can be about to commit."""
        call = SweepFiles(remove_data=True)
        swept = FilesSweep(
            self._kernel, self._lake.places, self._lake.id, self._lake.warehouse, call, progress
        ).sweep_pool()
        self._forked = swept.forked
        return SweptTable(
            key=self._key,
            location=self._pool.url,
            data_files=swept.data_files,
            data_bytes=swept.data_bytes,
            scratch_files=0,
            scratch_bytes=0,
            waiting=swept.waiting,
            kept=swept.kept,
            forked=swept.forked,
            problem=swept.problem,
        )
