"""Looking after the files of a Delta table's log; no kept commit of the lake loses what it needs."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase, decode_branch_log
from penstock.formats.delta.lake.answers import CleanedLog, WrittenFile
from penstock.formats.delta.lake.calls import CheckpointTable, CleanLog, CompactLog
from penstock.formats.delta.lake.retained_tables import RetainedDeltaTables
from penstock.formats.delta.lake.services import DeltaServices
from penstock.formats.delta.log.cleanup import plan_cleanup, remove_log_files
from penstock.formats.delta.log.compaction import compact_commits
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.segments import find_segment
from penstock.formats.delta.publishing.maintenance import make_checkpoint
from penstock.formats.delta.publishing.side_files import needed_files, plan_scratch
from penstock.kernel.description import require_unmoved
from penstock.kernel.kernel import Kernel
from penstock.lake.fork_notes import ForkNotes
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Place


class LogMaintenance:
    """Checkpoints, compactions and clean-up of tables of the default branch, as they are asked for."""

    def __init__(self, kernel: Kernel, parts: DeltaServices) -> None:
        self._kernel, self._places, self._publisher = kernel, parts.places, parts.publisher
        self._tables, self._log_check = parts.owner.tables, parts.log_check

    def write_checkpoint(self, call: CheckpointTable) -> WrittenFile:
        _, place, version = self._require_in_sync(call.key)
        written = make_checkpoint(place, version, self._now_ms())
        return WrittenFile(key=call.key, version=version, name=written.name if written is not None else "")

    def compact_log(self, call: CompactLog) -> WrittenFile:
        _, place, published = self._require_in_sync(call.key)
        last = published if call.last is None else call.last
        if not 0 <= last <= published:
            raise InvalidRequest(f"'{call.key}' is published up to version {published}, not {last}")
        first = call.first
        if first is None:
            newest = find_segment(PlaceFiles(place), last).checkpoint
            first = 0 if newest is None else newest.version + 1
        if not 0 <= first < last:
            return WrittenFile(key=call.key, version=last, name="")
        return WrittenFile(key=call.key, version=last, name=compact_commits(place, first, last) or "")

    def clean_log(self, call: CleanLog) -> CleanedLog:
        """Files of a table that nobody needs go: old ones of its log, and those that lie beside it.

        What kept commits need is gathered before the files are listed. Whatever is put to use in between was
        written in between, and is too new to go. What was written before a fork of the lake stays for it.
        ``LakeMoved`` at the old place of a lake that has moved: only where it is now is known what it needs.
        """
        require_unmoved(self._kernel.store)
        content, place, published = self._require_in_sync(call.key)
        _, metadata = self._tables.parse_declared(decode_branch_log(content))
        retained_states = tuple(self._list_retained_states(content))
        now_ms, pinned_us = self._now_ms(), ForkNotes(self._kernel.store, self._places).find_pinned_time_us()
        planned = plan_cleanup(
            place,
            metadata.configuration,
            published=published,
            keep_from=min(
                (max(0, decode_branch_log(content).published) for content in retained_states),
                default=published,
            ),
            now_ms=now_ms,
            pinned_us=pinned_us,
        )
        needed = needed_files(retained_states, self._tables.read_object)
        beside = plan_scratch(place, needed, now_ms=now_ms, pinned_us=pinned_us)
        names = (*planned.names, *beside.names)
        if not call.dry_run:
            remove_log_files(place, names)
        return CleanedLog(key=call.key, names=names, dry_run=call.dry_run)

    def _require_in_sync(self, key: Key) -> tuple[DeltaTable, Place, int]:
        """A table of the default branch, its place, and the last version in its own log.

        ``OutOfSync`` if it has what the lake does not know: what was not ratified is not made
        part of anything, and nothing that it needs is removed.
        """
        content = self._tables.require_managed(self._tables.find_head(), key)
        self._publisher.check_owned(content)
        if decode_branch_log(content).phase is OwnershipPhase.OWNED:
            self._log_check.require_in_sync(key, content, is_default=True, again=True)
        published = self._publisher.inspect_log(content)
        if published < 0:
            raise InvalidRequest(f"no version of '{key}' is published yet; 'penstock delta publish' does it")
        return content, self._places.open_place(content.location), published

    def _list_retained_states(self, content: DeltaTable) -> Iterator[DeltaTable]:
        """The states of the table at every retained commit, with those of other tables at the same place."""
        for state in RetainedDeltaTables(self._kernel, self._tables).walk_unseen_tables():
            if state.location.rstrip("/") == content.location.rstrip("/"):
                yield state

    def _now_ms(self) -> int:
        return self._kernel.clock() // 1000
