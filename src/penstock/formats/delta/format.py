"""Delta tables, as the kernel asks about them: what a change makes of a table, and what follows from it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest, OutOfSync, PenstockError, Throttled
from penstock.formats.delta.branch_log import change_summary, merge_rules
from penstock.formats.delta.branch_log.branch_log import (
    BranchLog,
    OwnershipPhase,
    decode_branch_log,
    replace_branch_log,
)
from penstock.formats.delta.branch_log.commit_attempt import (
    CommitAttempt,
    is_ratified,
    ratify_attempt,
    stage_versioned_proposal,
)
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.intents import (
    NAME,
    CommitIntent,
    CreateIntent,
    ReleaseIntent,
    SettleIntent,
    decode_intent,
)
from penstock.formats.delta.branch_log.ownership import OwnerIdentity, TableOwner, find_owner
from penstock.formats.delta.branch_log.ownership_changes import Custody, apply_custody, prepare_custody
from penstock.formats.delta.branch_log.proposal import DeltaProposal
from penstock.formats.delta.branch_log.ratification import (
    CheckedProposal,
    check_proposal,
    move_to_tip,
    ratify_proposal,
    read_declared,
)
from penstock.formats.delta.branch_log.read_check import check_seen
from penstock.formats.delta.errors import NotManaged
from penstock.formats.delta.publishing.log_check import LogCheck
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.kernel.format import (
    AppliedChange,
    Format,
    FormatRefused,
    LaterCommitLookup,
    PrepareAgain,
    Table,
)
from penstock.model.clock import Clock
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId, encode
from penstock.model.keys import Key
from penstock.model.merges import ChangeSummary
from penstock.model.nessie import DeltaTable
from penstock.model.operations import Change
from penstock.storage.places import Places

logger = logging.getLogger("penstock")

UNPUBLISHED_MAX: Final = 10_000
"""How far a table's log may lag behind its line on the default branch before commits have to wait."""


class DeltaFormat(Format):
    """Managed Delta tables. Those that other programs own are contents like any other."""

    name = NAME
    content_type = DeltaTable
    repeats_states = True
    """So that a revert of the newest commit costs what that changed, as any other does."""
    may_lose_files = True

    def __init__(
        self,
        places: Places,
        owner: OwnerIdentity,
        clock: Clock,
        publisher: Publisher,
        commits: CommitReader | None = None,
        unpublished_max: int = UNPUBLISHED_MAX,
        log_check: LogCheck | None = None,
    ) -> None:
        """Without a ``log_check`` nobody looks whether a log has what the lake does not know."""
        self.commits = commits or CommitReader(places)
        self._owner, self._clock, self._publisher = owner, clock, publisher
        self._unpublished_max, self._log_check = unpublished_max, log_check

    # -- before the queue ------------------------------------------------------------------------------

    def prepare(self, table: Table, change: Change) -> Any:
        intent = decode_intent(change.intent)
        now_ms = self._now_ms()
        if not isinstance(intent, CommitIntent):
            self._check_custody(table, intent)
            if (
                isinstance(intent, ReleaseIntent)
                and isinstance(table.content, DeltaTable)
                and table.content.state
            ):
                self._require_in_sync(table, table.content)
            prepare_custody(table, self.commits, intent, self._owner)
            if isinstance(intent, CreateIntent) and table.content is None and self._log_check is not None:
                self._log_check.note_new(intent.id)
            return None
        content = self._require_writable(table)
        self._require_in_sync(table, content)
        if intent.table not in (None, content.id):
            raise _replaced_table_refusal()
        noted = table.notes.get(("proposal", table.key))
        if noted is None:
            noted = content.id, DeltaProposal(table.key, intent, self.commits.places, content.location)
            table.notes["proposal", table.key] = noted
        identity, proposal = noted
        if content.id != identity:
            raise _replaced_table_refusal()
        if intent.version is not None:
            return content.id, stage_versioned_proposal(table, self.commits, content, proposal, now_ms)
        return content.id, check_proposal(table, self.commits, content, proposal, now_ms)

    def _require_writable(self, table: Table) -> DeltaTable:
        """What is retained of the table, if it is this lake's to decide about."""
        content = table.content
        if content is None:
            raise FormatRefused("does not exist")
        if not isinstance(content, DeltaTable) or not content.state:
            raise NotManaged(
                f"'{table.key}' is not a Delta table that this lake manages; adopt it first",
                table=str(table.key),
            )
        line = decode_branch_log(content)
        check_phase(line)
        self._check_owner(table, line)
        retained = self.drop_erased(table, content)
        assert isinstance(retained, DeltaTable)
        self._look_before_leaving(table, content)
        return retained

    def _check_owner(self, table: Table, line: BranchLog) -> None:
        """Refuse to extend a line whose table names another owner, as all do in a copy of their lake."""
        owner = _read_named_owner(table, line)
        if not self._owner.is_owner(owner):
            raise NotManaged(
                f"'{table.key}' names {owner} as its owner, so this lake only reads it\n"
                "  Write to it there. If this lake was restored from a backup, and is to take that lake's "
                "place: penstock restore-backup BACKUP PLACE --own",
                table=str(table.key),
            )

    def _require_in_sync(self, table: Table, content: DeltaTable) -> None:
        """``OutOfSync`` for a table whose log has what the lake does not know. See ``LogCheck``.

        ``PrepareAgain`` where that is not known yet, and may not be looked up.
        """
        if self._log_check is None or content.id is None or self._log_check.is_checked(content.id):
            return
        if not table.may_read:
            raise PrepareAgain
        self._log_check.require_in_sync(table.key, content, is_default=table.is_default)

    def _look_before_leaving(self, table: Table, content: DeltaTable) -> None:
        """Know how far a log is published before a branch goes its own way.

        Its line does not go on with entries then that an erase may have let go: the log has these versions.
        """
        line = decode_branch_log(content)
        if (
            table.is_default
            or line.tail is not None
            or line.published >= line.fork_version
            or content.id is None
        ):
            return
        if self._publisher.published_version(content.id) <= line.published and table.may_read:
            with suppress(PenstockError):  # a branch is written to whatever is the matter with the log
                self._publisher.inspect_log(content)

    def _check_custody(self, table: Table, intent: Custody) -> None:
        """The same, before a table is settled or released. One that is released names no owner any more."""
        content = table.content
        if not isinstance(intent, SettleIntent | ReleaseIntent) or not isinstance(content, DeltaTable):
            return
        if content.state and (line := decode_branch_log(content)).phase is not OwnershipPhase.RELEASED:
            self._check_owner(table, line)

    # -- at its turn -----------------------------------------------------------------------------------

    def apply(self, table: Table, change: Change, prepared: Any) -> AppliedChange:
        if prepared is None:
            intent = decode_intent(change.intent)
            if isinstance(intent, CommitIntent):
                raise InvalidRequest(
                    f"internal error: a commit to '{table.key}' reached its branch "
                    "without having been prepared"
                )
            self._check_custody(table, intent)
            return apply_custody(table, self.commits, intent)
        identity, checked = prepared
        content = table.content
        if not isinstance(content, DeltaTable) or content.id != identity:
            raise _replaced_table_refusal()
        line = decode_branch_log(content)
        check_phase(line)
        if isinstance(checked, CommitAttempt):
            return self._apply_attempt(table, content, line, checked)
        return self._apply_checked(table, content, line, checked)

    def _apply_attempt(
        self, table: Table, content: DeltaTable, line: BranchLog, attempt: CommitAttempt
    ) -> AppliedChange:
        if is_ratified(table, self.commits, content, line, attempt):
            return AppliedChange(content)
        after, blobs = ratify_attempt(table, self._shorten_line(table, content, line), attempt)
        return AppliedChange(
            replace_branch_log(content, after), blobs, _encode_without_actions(attempt.proposal.intent)
        )

    def _apply_checked(
        self, table: Table, content: DeltaTable, line: BranchLog, checked: CheckedProposal
    ) -> AppliedChange:
        now_ms = self._now_ms()
        if checked.is_done and not checked.tip.is_on(line, table.read):
            raise PrepareAgain  # the branch was moved, and its batches may be others now
        if not checked.is_done:
            checked = move_to_tip(table, self.commits, content, line, checked, now_ms)
        if checked.is_done:
            return AppliedChange(content)
        line = self._shorten_line(table, content, line)
        after, blobs = ratify_proposal(table, self.commits, content, line, checked, now_ms)
        return AppliedChange(
            replace_branch_log(content, after), blobs, _encode_without_actions(checked.proposal.intent)
        )

    def _shorten_line(self, table: Table, content: DeltaTable, line: BranchLog) -> BranchLog:
        """The line without entries that are in the table's log by now, for the next version to continue.

        ``Throttled`` if too much of it is not. Nothing is decided on it, since what it has forgotten may not
        be in memory.
        """
        if content.id is None:
            return line
        line = line.drop_published_entries(self._publisher.published_version(content.id))
        if not table.is_default:
            return line
        backlog = line.latest - line.published
        if backlog >= self._unpublished_max:
            self._publisher.table_committed(table.key, content, is_default=True)
            raise Throttled(
                f"{backlog} versions of '{table.key}' wait to be published, so the table accepts no more "
                "commits at the moment",
                table=str(table.key),
                backlog=backlog,
            )
        return line

    # -- other ways to change a table ------------------------------------------------------------------

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,  # noqa: ARG002
    ) -> AppliedChange:
        # What the lake did not own is no past that an owned table could share.
        sides = base if isinstance(base, DeltaTable) and base.state else None, _require_managed(source)
        merged = merge_rules.merge_table(table, self.commits, *sides, self._now_ms(), self._check_may_extend)
        return self._require_droppable(table, merged)

    def check_read(self, table: Table, content_at_read: AnyContent, parts: Sequence[str] | None) -> None:
        before, now = _require_managed(content_at_read), _require_managed(table.content)
        if before is None or now is None:
            raise FormatRefused("was read by this transaction, but was created or deleted since")
        check_seen(table, self.commits, before, now, parts)

    def describe_state(self, content: AnyContent) -> str:
        return (
            f"version {decode_branch_log(content).latest}"
            if isinstance(content, DeltaTable) and content.state
            else ""
        )

    def restore(self, table: Table, wanted_content: AnyContent | None) -> AppliedChange:
        restored = merge_rules.restore_table(
            table, self.commits, _require_managed(wanted_content), self._now_ms(), self._check_may_extend
        )
        return self._require_droppable(table, restored)

    def restore_version(self, table: Table, version: int) -> AppliedChange:
        return merge_rules.restore_version(
            table, self.commits, version, self._now_ms(), self._check_may_extend
        )

    def summarize_change(
        self, table: Table, before: AnyContent | None, after: AnyContent | None
    ) -> ChangeSummary | None:
        return change_summary.summarize_change(
            table, self.commits, _to_managed_table(before), _to_managed_table(after)
        )

    def missing_files(self, table: Table, before: AnyContent | None, after: AnyContent) -> Sequence[str]:
        assert isinstance(after, DeltaTable)
        return change_summary.missing_files(table, self.commits, _to_managed_table(before), after)

    def revert(
        self,
        table: Table,
        committed: AnyContent | None,
        previous: AnyContent | None,
        since: LaterCommitLookup,
    ) -> AppliedChange | None:
        states = _require_managed(committed), _require_managed(previous)
        reverted = merge_rules.revert_table(
            table, self.commits, *states, since, self._now_ms(), self._check_may_extend
        )
        return None if reverted is None else self._require_droppable(table, reverted)

    def _check_may_extend(self, table: Table, content: DeltaTable, line: BranchLog) -> BranchLog:
        """A line that a merge is about to extend, if that is this lake's to do."""
        self._check_owner(table, line)
        self._require_in_sync(table, content)
        return self._shorten_line(table, content, line)

    def _require_droppable(self, table: Table, applied: AppliedChange) -> AppliedChange:
        if applied.content is None:
            self._check_drop(table)
        return applied

    def _check_drop(self, table: Table) -> None:
        """``OutOfSync`` for a table that is to leave the default branch, and has what the lake does not know:
        nobody could bring that back. ``PrepareAgain`` where it is not known.

        A table whose storage is away, or has lost it, can be dropped.
        """
        content, check = table.content, self._log_check
        if check is None or not table.is_default or not isinstance(content, DeltaTable) or not content.state:
            return
        assert content.id is not None, "a managed table has an id"
        note = "drop", content.id
        if note in table.notes or check.is_checked(content.id):
            return
        if not table.may_read:
            raise PrepareAgain
        line = decode_branch_log(content)
        if line.phase is OwnershipPhase.OWNED and self._owner.is_owner(_read_named_owner(table, line)):
            try:
                check.require_in_sync(table.key, content, is_default=True)
            except OutOfSync:
                raise
            except PenstockError as problem:
                logger.info("'%s' is removed without a check of its log: %s", table.key, problem)
        table.notes[note] = True

    def check_direct_change(self, table: Table, content: AnyContent | None) -> None:
        if content is not None:
            raise FormatRefused(
                "is a Delta table of the lake: it is changed by commits to the table, not by put"
            )
        # Elsewhere nobody is told how it ends, and nothing but the key goes.
        if isinstance(table.content, DeltaTable) and table.content.state and table.is_default:
            line = decode_branch_log(table.content)
            if line.phase is OwnershipPhase.ADOPTING and self._owner.is_owner(_read_named_owner(table, line)):
                raise FormatRefused("is being adopted; check the outcome first: penstock delta status")
            if line.phase is OwnershipPhase.RELEASED:
                raise FormatRefused(
                    "is being released from the lake: its key is removed automatically once "
                    "its last commits are in its log, and its files stay"
                )
        self._check_drop(table)

    def lacks_version(self, content: AnyContent, first_version: int, *, keeps_younger: bool = False) -> bool:  # noqa: ARG002
        return (
            isinstance(content, DeltaTable)
            and content.state != b""
            and decode_branch_log(content).fork_version < first_version
        )

    def cut_content(self, content: AnyContent, first_version: int) -> AnyContent:
        # The log begins there. Whatever the default branch had when a history began was published first.
        if not isinstance(content, DeltaTable) or not content.state:
            return content
        line = decode_branch_log(content)
        return (
            content
            if line.published >= first_version
            else replace_branch_log(content, line.drop_published_entries(line.fork_version))
        )

    def explain_forbidden_move(self, before: AnyContent | None, after: AnyContent | None) -> str | None:
        if not isinstance(before, DeltaTable) or not isinstance(after, DeltaTable):
            return "would be created or dropped by this move; merge the branch, or drop the table"
        if before.id != after.id or not before.state or not after.state:
            return "would become another table; merge the branch instead"
        before_log, after_log = decode_branch_log(before), decode_branch_log(after)
        if before_log.phase is not after_log.phase:
            return f"is {before_log.phase}, and would be {after_log.phase} again"
        if after_log.tail is not None:
            return "has versions of another branch; merge that branch instead"
        if after_log.latest < before_log.latest:
            return f"would go back from version {before_log.latest} to {after_log.latest}"
        if not _has_latest_of(before_log, after_log):
            return f"would get another version {before_log.latest}; merge the branch instead"
        return None

    # -- after the swap --------------------------------------------------------------------------------

    def after_commit(
        self,
        key: Key,
        content: AnyContent | None,
        commit: ObjectId,  # noqa: ARG002
        *,
        branch: str,  # noqa: ARG002
        is_default: bool,
    ) -> None:
        if isinstance(content, DeltaTable) and content.state:
            if is_default:
                self.commits.remember_landed(content)
            self._publisher.table_committed(key, content, is_default=is_default)
        elif is_default:
            self._publisher.forget_dropped()

    def _now_ms(self) -> int:
        return self._clock() // 1000


def check_phase(line: BranchLog) -> None:
    """Refuse commits to a table that is on its way in or out."""
    if line.phase is OwnershipPhase.RELEASED:
        raise FormatRefused(
            "was released, so the lake no longer commits to it: commit to its log, or adopt it again"
        )
    if line.phase is OwnershipPhase.ADOPTING:
        raise FormatRefused("is being adopted, and the outcome is not known yet: try again")


def _read_named_owner(table: Table, line: BranchLog) -> TableOwner | None:
    about = read_declared(table, line.declared)
    return find_owner(about.protocol, about.metadata, str(table.key))


def _has_latest_of(earlier_line: BranchLog, becomes: BranchLog) -> bool:
    """Whether a line has another's latest version: the default branch only goes on from there.

    It is among the newest of both, or both know it from the log. Where that cannot be seen, the lines are
    not taken for one.
    """
    back = becomes.latest - earlier_line.latest
    newest = becomes.entries[-1 - back] if back < len(becomes.entries) else None
    if newest is None or not earlier_line.entries:
        return newest is None and not earlier_line.entries and becomes.published >= earlier_line.latest
    return newest.uuid == earlier_line.entries[-1].uuid


def _replaced_table_refusal() -> FormatRefused:
    return FormatRefused("is another table now: it was dropped or created again")


def _require_managed(content: AnyContent | None) -> DeltaTable | None:
    if content is None or (isinstance(content, DeltaTable) and content.state):
        return content
    raise FormatRefused(
        "is not managed by the lake on both sides; keep the target's with the mode 'drop' "
        "(drops the change, not the table)"
    )


def _to_managed_table(content: AnyContent | None) -> DeltaTable | None:
    """The content if it is a managed Delta table, else ``None``."""
    return content if isinstance(content, DeltaTable) and content.state else None


def _encode_without_actions(intent: CommitIntent) -> bytes:
    """What is stored of an intent: the line has all the rest."""
    return encode(msgspec.structs.replace(intent, actions=b"", reads=None, replaces=None))
