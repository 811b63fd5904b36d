"""Settles an adoption or release that was begun and not finished.

Somebody has promised, in a commit of the lake, to own a table; or has ratified the last version that the lake
has of it. What comes of a promise, the table's log tells, and it is kept if nothing speaks against it. Of a
release, all that is left is to publish it. How it ended is noted in the lake.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import CommitConflict, OutcomeUnknown, PenstockError, Unavailable
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.intents import SettleIntent, make_change_operation
from penstock.formats.delta.branch_log.ownership import OwnerIdentity, find_owner
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.ownership.tables import DeltaTableStore, TableRequest, decode_line_and_id
from penstock.formats.delta.protocol.names import (
    ClassicName,
    CommitName,
    CompactionName,
    PartName,
    UuidName,
    make_text_before_version,
    parse_name,
)
from penstock.formats.delta.publishing.log_ownership import named_owner
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Place, Places

TABLES_AT_ONCE: Final = 16
"""How many tables are read or finished at the same time."""


class _SettledTable(NamedTuple):
    """How an adoption or a release ended, which the lake is to note."""

    key: Key
    intent: SettleIntent
    phase: OwnershipPhase
    """Before that."""


class HandoverSettler:
    """Brings tables that are on their way into the lake, or out of it, to where they go."""

    def __init__(
        self,
        tables: DeltaTableStore,
        places: Places,
        publisher: Publisher,
        commits: CommitReader,
        identity: OwnerIdentity,
    ) -> None:
        self._tables, self._places, self._publisher = tables, places, publisher
        self._commits, self._identity = commits, identity

    def settle_handover(
        self, key: Key, content: DeltaTable, by: CommitMeta = CommitMeta()
    ) -> DeltaTable | None:
        """Finish an adoption or a release that somebody began; the table afterwards, ``None`` if it is gone.

        ``by`` tells who does it. May be called for any table of the default branch, by anybody, any number of
        times. A table that names another lake, as in a copy of the lake, is left alone.
        """
        if not self.is_begun(content):
            return content
        if (settled := self._decide_outcome(key, content)) is not None:
            self._commit_settled([settled], by)
        return self._tables.find_current_table(key, decode_line_and_id(content)[1])

    def resolve_all(
        self,
        begun: Sequence[tuple[Key, DeltaTable]],
        by: CommitMeta = CommitMeta(),
        progress: Progress = show_no_progress,
    ) -> dict[Key, PenstockError]:
        """Finish many adoptions and releases at once, with one commit for all of them.

        A problem with one table, as ``settle_handover`` would raise it, is returned by its key, and does not
        stop the others.
        """
        settled, problems = list[_SettledTable](), dict[Key, PenstockError]()
        with ThreadPoolExecutor(TABLES_AT_ONCE, "penstock-handover") as threads:
            tables = [(key, content) for key, content in begun if self.is_begun(content)]
            decided = threads.map(lambda table: self._try_decide(*table), tables)
            for count, ((key, _), decision) in enumerate(zip(tables, decided, strict=True), 1):
                progress("finishing tables", count)
                if isinstance(decision, PenstockError):
                    problems[key] = decision
                elif decision is not None:
                    settled.append(decision)
        if settled:
            self._commit_settled(settled, by)
        return problems

    def is_begun(self, content: DeltaTable) -> bool:
        """Whether an adoption or a release by this lake is not finished."""
        line, _ = decode_line_and_id(content)
        if line.phase is OwnershipPhase.ADOPTING:
            return self._identity.is_owner(find_owner(*self._tables.parse_declared(line), content.location))
        return line.phase is OwnershipPhase.RELEASED

    def _try_decide(self, key: Key, content: DeltaTable) -> _SettledTable | PenstockError | None:
        try:
            return self._decide_outcome(key, content)
        except PenstockError as problem:
            return problem
        except OSError as problem:
            return Unavailable(
                f"the adoption or release of '{key}' at {content.location} is not finished: {problem}",
                part="storage",
            )

    def _decide_outcome(self, key: Key, content: DeltaTable) -> _SettledTable | None:
        """Bring about how it ends; ``None`` if somebody has noted that already."""
        line, identity = decode_line_and_id(content)
        if line.phase is OwnershipPhase.RELEASED:
            self._publish_line(content)
            return _SettledTable(key, SettleIntent(id=identity, owned=False), line.phase)
        if not self._is_in(line.phase, key, identity):
            return None
        return _SettledTable(key, SettleIntent(id=identity, owned=self._is_ours(key, content)), line.phase)

    def _is_ours(self, key: Key, content: DeltaTable) -> bool:
        """Whether the log holds the promised commit. It does afterwards, unless somebody else's is there."""
        line = decode_branch_log(content)
        place = self._places.open_place(content.location)
        entry = line.find_entry(line.latest, self._tables.read_object)
        data = self._commits.read_commit_bytes(
            self._tables.as_format_table(key, content), content.location, line.latest, entry
        )
        name = str(CommitName(line.latest))
        while True:
            (existing,) = place.read([name])
            if existing is not None:
                return existing == data
            if _is_past(place, line.latest):
                return self._is_named(place, content)
            try:
                if self._put_conversion(place, name, data):
                    return True
            except OutcomeUnknown as problem:
                (existing,) = place.read([name])
                if existing is None:
                    raise OutcomeUnknown(
                        f"it is not known yet whether '{key}' at {content.location} is this lake's: "
                        f"{problem.message}\n  The next access to the table determines that and finishes it: "
                        "penstock delta status",
                        **problem.details,
                    ) from None

    def _is_named(self, place: Place, content: DeltaTable) -> bool:
        """Whether a log whose promised commit was cleaned up went on from it: then its table says so."""
        owner = named_owner(place)
        return owner is not None and self._identity.is_owner(owner) and owner.table == content.id

    def _put_conversion(self, place: Place, name: str, data: bytes) -> bool:
        """The instant at which a table becomes the lake's."""
        return place.create(name, data)

    def _publish_line(self, content: DeltaTable) -> None:
        """Publish a line to its end. Where the log goes on after it, the file system has had it for long."""
        line = decode_branch_log(content)
        if not _is_past(self._places.open_place(content.location), line.latest):
            self._publisher.publish_line(content)

    def _commit_settled(self, settled: Sequence[_SettledTable], by: CommitMeta) -> None:
        """Note how they ended, unless somebody else has."""
        while unsettled := self._find_unsettled(settled):
            meta = CommitMeta(
                message=_describe_settled(unsettled), authors=by.authors, committer=by.committer
            )
            try:
                self._tables.commit_operations(
                    [make_change_operation(table.key, table.intent) for table in unsettled],
                    TableRequest(meta),
                )
                return
            except CommitConflict:
                settled = self._find_unsettled(unsettled)
                if len(settled) == len(unsettled):
                    raise

    def _find_unsettled(self, settled: Sequence[_SettledTable]) -> list[_SettledTable]:
        head = self._tables.find_head()
        return [table for table in settled if self._is_in(table.phase, table.key, table.intent.id, head)]

    def _is_in(self, phase: OwnershipPhase, key: Key, identity: UUID, head: ObjectId | None = None) -> bool:
        now = self._tables.find_current_table(key, identity, head)
        return now is not None and decode_branch_log(now).phase is phase


def _describe_settled(settled: Sequence[_SettledTable]) -> str:
    """What a commit says of tables whose adoption or release is over."""
    if len(settled) == 1:
        key, intent, phase = settled[0]
        if intent.owned:
            return f"{key} is adopted"
        if phase is OwnershipPhase.RELEASED:
            return f"{key} is released"
        return f"{key} is not adopted: another writer's commit came first"
    released = sum(table.phase is OwnershipPhase.RELEASED for table in settled)
    adopted = sum(table.intent.owned for table in settled)
    lost = len(settled) - released - adopted
    parts = [
        f"{adopted} tables are adopted" if adopted else "",
        f"{released} tables are released" if released else "",
        f"{lost} tables are not adopted: another writer's commit came first" if lost else "",
    ]
    return "; ".join(filter(None, parts))


def _is_past(place: Place, version: int) -> bool:
    """Whether a log goes on after a version: then it is missing because it was cleaned up, not because it
    was never there, and nobody may put anything in its place."""
    for file in PlaceFiles(place).list_files(make_text_before_version(version)):
        match parse_name(file.name):
            case CommitName(number) if number > version:
                return True
            case CompactionName(_, last) if last >= version:
                return True
            case ClassicName(number) | PartName(number) | UuidName(number) if number >= version and file.size:
                return True
    return False
