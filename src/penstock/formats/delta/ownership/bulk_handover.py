"""Many tables at once: into the lake and out of it, by two commits for all of them.

The first commit promises to own the tables, or ratifies the last version of each. Then every table's own log
decides, as for a single one (``handover``). The second commit notes how it ended. A table that is lost to
another writer in between, or whose storage does not answer, keeps no other from going on. A process may die
anywhere: whoever does the same again finishes what was begun, again with one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from penstock.errors import CommitConflict, InvalidRequest, PenstockError, Unavailable
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase, decode_branch_log
from penstock.formats.delta.branch_log.intents import AdoptIntent, make_change_operation
from penstock.formats.delta.branch_log.ownership import OwnerIdentity, find_owner
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.ownership.clones import require_releasable
from penstock.formats.delta.ownership.handover import RELEASES_MAX, Handover, check_snapshot
from penstock.formats.delta.ownership.handover_settler import TABLES_AT_ONCE
from penstock.formats.delta.ownership.tables import DeltaTableStore, TableRequest
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.names import LOG
from penstock.formats.delta.publishing.log_check import LogCheck
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.model.content import Namespace
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable

Item = TypeVar("Item")
Answer = TypeVar("Answer")

COLLISIONS_TOLD_MAX: Final = 10
"""How many keys an error names that cannot be given to tables."""
LOST: Final = "another writer's commit came first; adopt it again in its present state"


class HandoverOutcome(StrEnum):
    """What came of a table that many were adopted or released with."""

    PLANNED = "planned"
    """It can be adopted or released, and was not: this was a dry run."""
    ADOPTED = "adopted"
    RELEASED = "released"
    PRESENT = "present"
    """It is the lake's already, under whatever key."""
    COLLIDES = "collides"
    """Its key is taken."""
    REFUSED = "refused"
    """It cannot be adopted or released, and nothing was changed."""
    LOST = "lost"
    """Another writer committed to it in between, and it was not adopted. The lake has forgotten it."""
    UNFINISHED = "unfinished"
    """Storage did not answer. Doing the same again finishes it, and so does whoever meets the table."""


class LocatedTable(msgspec.Struct, frozen=True):
    """A table that is to be adopted."""

    location: str
    key: Key | None
    """What it is to be called; ``None`` if it cannot be adopted."""
    problem: str = ""
    """Why not."""


class TableHandover(msgspec.Struct, frozen=True, kw_only=True):
    """A table, and what came of it."""

    location: str
    key: Key | None
    outcome: HandoverOutcome
    version: int = -1
    """The version that it was done with; the newest one, if it was not done."""
    features: tuple[str, ...] = ()
    problem: str = ""
    intent: AdoptIntent | None = None
    """What the lake would be asked for."""


class BulkHandover:
    """Adopts and releases many tables."""

    def __init__(
        self, tables: DeltaTableStore, handover: Handover, log_check: LogCheck, identity: OwnerIdentity
    ) -> None:
        self._tables, self._handover = tables, handover
        self._log_check, self._identity = log_check, identity

    # -- in ------------------------------------------------------------------------------------------------

    def adopt_tables(
        self,
        located: Sequence[LocatedTable],
        request: TableRequest,
        *,
        sole_writer: bool = False,
        dry_run: bool = False,
        progress: Progress = show_no_progress,
    ) -> tuple[TableHandover, ...]:
        """Take over tables from the file system, all that can be; in their order, what came of each.

        ``InvalidRequest``, before anything is written, if a key is taken: the caller has to choose.
        """
        problems = dict[Key, PenstockError]()
        if not dry_run:
            begun = self._find_begun(table.key for table in located if table.key is not None)
            problems = self._handover.resolve_all(begun, request.meta, progress)
        plan = self._plan_adoption(located, sole_writer, progress)
        if dry_run:
            return plan
        plan = tuple(_leave_unfinished(table, problems) for table in plan)
        _check_collisions(plan)
        plan = tuple(self._run_in_threads(self._check_writable, plan, "checking storage", progress))
        promised = [(table.key, table.intent) for table in plan if table.key and table.intent]
        if promised:
            outcome = self._tables.commit_operations(
                [make_change_operation(key, intent) for key, intent in promised], request
            )
            commit = outcome.commits[-1] if outcome.commits else outcome.head
            adopting = [(key, self._tables.require_managed(commit, key)) for key, _ in promised]
            problems = self._handover.resolve_all(adopting, request.meta, progress)
        head = self._tables.find_head()
        return tuple(self._describe_adoption(head, table, problems) for table in plan)

    def _find_begun(self, keys: Iterable[Key]) -> list[tuple[Key, DeltaTable]]:
        """The tables at some keys whose adoption or release somebody has begun."""
        head = self._tables.find_head()
        contents = ((key, self._tables.find_content(head, key)) for key in keys)
        return [
            (key, content)
            for key, content in contents
            if isinstance(content, DeltaTable) and content.state and self._handover.is_begun(content)
        ]

    def _plan_adoption(
        self, located: Sequence[LocatedTable], sole_writer: bool, progress: Progress
    ) -> tuple[TableHandover, ...]:
        head = self._tables.find_head()

        def plan_table(table: LocatedTable) -> TableHandover:
            try:
                return self._plan_table(head, table, sole_writer)
            except (PenstockError, OSError) as problem:
                return _make_refused_handover(table.location, table.key, problem)

        return tuple(self._run_in_threads(plan_table, located, "reading logs", progress))

    def _plan_table(self, head: ObjectId, table: LocatedTable, sole_writer: bool) -> TableHandover:
        location, key = table.location, table.key
        place = self._handover.open_place(location, sole_writer)
        snapshot = load_snapshot(PlaceFiles(place))
        about = TableHandover(
            location=location,
            key=key,
            outcome=HandoverOutcome.REFUSED,
            version=snapshot.version,
            features=tuple(sorted(supported_features(snapshot.protocol))),
            problem=table.problem,
        )
        if key is None:
            return about
        try:
            own = self._handover.find_own(place.location, snapshot)
            if own is None:
                check_snapshot(place, snapshot)
        except PenstockError as problem:
            return msgspec.structs.replace(about, problem=problem.message)
        if own is not None:
            return msgspec.structs.replace(about, outcome=HandoverOutcome.PRESENT, key=own)
        if holder := self._describe_holder(head, key, place.location):
            return msgspec.structs.replace(about, outcome=HandoverOutcome.COLLIDES, problem=holder)
        intent = self._handover.adopt_intent(place, snapshot)
        return msgspec.structs.replace(about, outcome=HandoverOutcome.PLANNED, intent=intent)

    def _describe_holder(self, head: ObjectId, key: Key, location: str) -> str:
        """What the lake has at a key already, or above it; empty if a table can be there.

        An adoption of the same table that was begun, and not finished, is none.
        """
        for parent in key.parents:
            above = self._tables.find_content(head, parent)
            if above is not None and not isinstance(above, Namespace):
                return f"'{parent}' is not a namespace"
        content = self._tables.find_content(head, key)
        if content is None:
            return ""
        if isinstance(content, DeltaTable) and content.state and content.location == location:
            is_begun = self._handover.is_begun(content)
            return "" if is_begun else f"the lake has '{key}' already"
        return f"the lake has '{key}' already"

    def _check_writable(self, table: TableHandover) -> TableHandover:
        if table.intent is None:
            return table
        try:
            place = self._handover.open_place(table.location, sole_writer=True)
            if not place.has_permission(LOG):  # else a file would be written for each of very many tables
                self._handover.check_writable(place)
        except (PenstockError, OSError) as problem:
            return _make_refused_handover(table.location, table.key, problem)
        return table

    def _describe_adoption(
        self, head: ObjectId, table: TableHandover, problems: dict[Key, PenstockError]
    ) -> TableHandover:
        """A table after the adoption, and what came of it."""
        intent, key = table.intent, table.key
        if intent is None or key is None:
            return table
        if (problem := problems.get(key)) is not None:
            return msgspec.structs.replace(
                table, outcome=HandoverOutcome.UNFINISHED, problem=problem.message, intent=None
            )
        if self._handover.was_owned(intent.id, head):
            return msgspec.structs.replace(
                table, outcome=HandoverOutcome.ADOPTED, version=intent.version, intent=None
            )
        return msgspec.structs.replace(table, outcome=HandoverOutcome.LOST, problem=LOST, intent=None)

    # -- out -----------------------------------------------------------------------------------------------

    def release_tables(
        self,
        namespace: Key | None,
        request: TableRequest,
        *,
        dry_run: bool = False,
        progress: Progress = show_no_progress,
    ) -> tuple[TableHandover, ...]:
        """Hand all tables back to the file system, or those below a namespace, by key."""
        tables = self._list_tables_below(namespace)
        if not dry_run:
            begun = [table for table in tables if self._handover.is_begun(table[1])]
            self._handover.resolve_all(begun, request.meta, progress)
            tables = self._list_tables_below(namespace)
        plan = list(self._run_in_threads(self._plan_release, tables, "comparing logs", progress))
        if dry_run:
            return tuple(plan)
        keys = {table.key for table in plan if table.outcome is HandoverOutcome.PLANNED and table.key}
        released = self._ratify_release(keys, request)
        problems = self._handover.resolve_all(released, request.meta, progress)
        versions = {key: decode_branch_log(content).latest for key, content in released}
        return tuple(_describe_release(table, versions, problems) for table in plan)

    def _list_tables_below(self, namespace: Key | None) -> list[tuple[Key, DeltaTable]]:
        count = 0 if namespace is None else len(namespace)
        tables = self._tables.list_tables(self._tables.find_head())
        below = [table for table in tables if namespace is None or table[0][:count] == tuple(namespace)]
        return sorted(below, key=lambda table: table[0].encode())

    def _plan_release(self, table: tuple[Key, DeltaTable]) -> TableHandover:
        key, content = table
        line = decode_branch_log(content)
        about = TableHandover(
            location=content.location, key=key, outcome=HandoverOutcome.PLANNED, version=line.latest
        )
        try:
            protocol, metadata = self._tables.parse_declared(line)
            about = msgspec.structs.replace(about, features=tuple(sorted(supported_features(protocol))))
            owner = find_owner(protocol, metadata, content.location)
            if line.phase is OwnershipPhase.OWNED and not self._identity.is_owner(owner):
                raise InvalidRequest(f"belongs to {owner}, and is removed from there")
            if line.phase is OwnershipPhase.OWNED:
                self._log_check.require_in_sync(key, content, is_default=True)
                require_releasable(self._tables, key, content)
        except (PenstockError, OSError) as problem:
            return msgspec.structs.replace(
                about, outcome=HandoverOutcome.REFUSED, problem=_format_problem(content.location, problem)
            )
        return about

    def _ratify_release(self, keys: set[Key], request: TableRequest) -> list[tuple[Key, DeltaTable]]:
        """Ratify the last versions of tables, and return the tables with them, or as they were if somebody
        else has released them."""
        for attempt in range(1, RELEASES_MAX + 1):
            head = self._tables.find_head()
            tables = {key: self._tables.find_content(head, key) for key in keys}
            managed = {
                key: content
                for key, content in tables.items()
                if isinstance(content, DeltaTable) and content.state
            }
            changes = [
                make_change_operation(key, self._handover.release_intent(line))
                for key, content in managed.items()
                if (line := decode_branch_log(content)).phase is OwnershipPhase.OWNED
            ]
            try:
                outcome = self._tables.commit_operations(changes, request) if changes else None
            except CommitConflict:
                now = self._tables.find_head()
                if now == head or attempt == RELEASES_MAX:
                    raise
                continue
            commit = head if outcome is None or not outcome.commits else outcome.commits[-1]
            return [(key, self._tables.require_managed(commit, key)) for key in managed]
        raise AssertionError("unreachable: the last attempt raised no error")

    # -- both ----------------------------------------------------------------------------------------------

    def _run_in_threads(
        self, work: Callable[[Item], Answer], items: Sequence[Item], subject: str, progress: Progress
    ) -> Iterator[Answer]:
        with ThreadPoolExecutor(TABLES_AT_ONCE, "penstock-handover") as threads:
            for count, answer in enumerate(threads.map(work, items), 1):
                progress(subject, count)
                yield answer


def _check_collisions(plan: Sequence[TableHandover]) -> None:
    collisions = [table for table in plan if table.outcome is HandoverOutcome.COLLIDES]
    if not collisions:
        return
    shown = collisions[:COLLISIONS_TOLD_MAX]
    more = [f"  … and {len(collisions) - len(shown)} more"] if len(collisions) > len(shown) else []
    lines = [f"  {table.location}: {table.problem}" for table in shown]
    raise InvalidRequest(
        "\n".join(
            (
                (
                    f"{len(collisions)} of {len(plan)} tables would get keys that are in use; nothing "
                    "was adopted"
                ),
                *lines,
                *more,
                "  Use another namespace (--namespace), or adopt these one by one, with --table.",
            )
        ),
        keys=[str(table.key) for table in collisions],
    )


def _leave_unfinished(table: TableHandover, problems: dict[Key, PenstockError]) -> TableHandover:
    """A table whose earlier adoption could not be finished is not begun anew."""
    problem = None if table.key is None else problems.get(table.key)
    if problem is None:
        return table
    return msgspec.structs.replace(
        table, outcome=HandoverOutcome.UNFINISHED, problem=problem.message, intent=None
    )


def _describe_release(
    table: TableHandover, versions: dict[Key, int], problems: dict[Key, PenstockError]
) -> TableHandover:
    if table.key is None or table.key not in versions:
        return table
    if (problem := problems.get(table.key)) is not None:
        outcome, text = HandoverOutcome.UNFINISHED, problem.message
    else:
        outcome, text = HandoverOutcome.RELEASED, ""
    return msgspec.structs.replace(
        table, outcome=outcome, problem=text, version=versions[table.key], intent=None
    )


def _make_refused_handover(location: str, key: Key | None, problem: PenstockError | OSError) -> TableHandover:
    return TableHandover(
        location=location,
        key=key,
        outcome=HandoverOutcome.REFUSED,
        problem=_format_problem(location, problem),
    )


def _format_problem(location: str, problem: PenstockError | OSError) -> str:
    if isinstance(problem, PenstockError):
        return problem.message
    return Unavailable(f"{location} cannot be read or written: {problem}", part="storage").message
