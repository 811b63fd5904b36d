"""Lance tables, as the kernel asks about them: what a change makes of a table, and how two meet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.formats.lance import change_summary, merge_rules
from penstock.formats.lance.branch_chains import WriteTarget
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.intents import decode_steps
from penstock.formats.lance.manifest_check import ManifestCheck
from penstock.formats.lance.manifest_reader import ManifestReader
from penstock.formats.lance.state import (
    NAME,
    LanceState,
    begin_table,
    decode_state,
    encode_state_into_table,
    is_managed,
)
from penstock.formats.lance.table_changes import Prepared, apply_steps, list_step_names
from penstock.kernel.format import AppliedChange, Format, FormatRefused, LaterCommitLookup, Table
from penstock.kernel.objects import Objects
from penstock.model.clock import Clock
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import ChangeSummary
from penstock.model.operations import Change
from penstock.model.transactions import PREFIX
from penstock.storage.places import Places


class CommitListener(Protocol):
    """Is told of committed tables: the promoter."""

    def note_commit(self, key: Key, content: LanceTable, *, is_default: bool) -> None:
        """A commit with this table has landed on a branch."""


class LanceFormat(Format):
    """Lance tables whose versions the lake decides."""

    name = NAME
    content_type = LanceTable
    takes_any_base = True

    def __init__(
        self, places: Places, manifests: ManifestReader, clock: Clock, promoter: CommitListener
    ) -> None:
        self._places, self._manifests, self._clock, self._promoter = places, manifests, clock, promoter
        self._checking = ManifestCheck(places, manifests)

    def prepare(self, table: Table, change: Change) -> Any:
        steps, first = decode_steps(change.intent).steps, 0
        if isinstance(table.content, LanceTable) and is_managed(table.content):
            retained = self.drop_erased(table, table.content)
            assert isinstance(retained, LanceTable)
            table, first = msgspec.structs.replace(table, content=retained), decode_state(retained).first
        return _PreparedSteps(
            first, self._checking.check_steps(table, _open_table_objects(table), steps, self._clock())
        )

    def apply(self, table: Table, change: Change, prepared: Any) -> AppliedChange:
        steps = decode_steps(change.intent).steps
        looked: _PreparedSteps = _PreparedSteps(0, {}) if prepared is None else prepared
        content = table.content
        if isinstance(content, LanceTable) and is_managed(content):
            content = begin_table(content, looked.first)
        applied = apply_steps(
            _open_table_objects(table),
            table.key,
            content,
            WriteTarget.from_table(table),
            steps,
            looked.found,
            self._clock(),
        )
        return _add_origin(table, applied)._replace(intent=list_step_names(steps))

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,  # noqa: ARG002
    ) -> AppliedChange:
        sides = (
            _require_lance_content(table.content),
            _require_lance_content(base),
            _require_lance_content(source),
        )
        return _add_origin(table, merge_rules.merge_table(table, self._merge_context(table), *sides))

    def restore(self, table: Table, after: AnyContent | None) -> AppliedChange:
        restored = merge_rules.restore_table(
            table,
            self._merge_context(table),
            _require_lance_content(table.content),
            _require_lance_content(after),
        )
        return _add_origin(table, restored)

    def restore_version(self, table: Table, version: int) -> AppliedChange:
        restored = merge_rules.restore_table_version(
            table, self._merge_context(table), _require_lance_content(table.content), version
        )
        return _add_origin(table, restored)

    def summarize_change(
        self, table: Table, before: AnyContent | None, after: AnyContent | None
    ) -> ChangeSummary | None:
        old_content, becomes = (
            content if isinstance(content, LanceTable) and content.state else None
            for content in (before, after)
        )
        return change_summary.summarize_change(
            _open_table_objects(table), self._manifests, old_content, becomes
        )

    def missing_files(self, table: Table, before: AnyContent | None, after: AnyContent) -> Sequence[str]:
        assert isinstance(after, LanceTable)
        old_content = before if isinstance(before, LanceTable) and before.state else None
        return change_summary.find_missing_files(
            _open_table_objects(table), self._manifests, self._places, old_content, after
        )

    def revert(
        self,
        table: Table,
        committed: AnyContent | None,
        previous: AnyContent | None,
        since: LaterCommitLookup,
    ) -> AppliedChange | None:
        sides = (
            _require_lance_content(table.content),
            _require_lance_content(committed),
            _require_lance_content(previous),
        )
        return _add_origin(table, merge_rules.revert_table(table, self._merge_context(table), *sides, since))

    def describe_state(self, content: AnyContent) -> str:
        if not isinstance(content, LanceTable) or not content.state:
            return ""
        newest = decode_state(content).newest
        return f"version {newest}" if newest else "declared"

    def _merge_context(self, table: Table) -> merge_rules.MergeContext:
        return merge_rules.MergeContext(
            self._manifests, self._places, self._clock(), partial(self.check_may_write, table)
        )

    def check_may_write(self, table: Table, content: LanceTable) -> object:
        """Asked before anything is written for a table that is there: raises if it may not be."""

    def check_direct_change(self, table: Table, content: AnyContent | None) -> None:
        if content is not None and content != table.content:
            raise FormatRefused(
                "is a Lance table of the lake: it is changed by commits to the table, not by put"
            )

    def lacks_version(self, content: AnyContent, first_version: int, *, keeps_younger: bool = False) -> bool:
        if not isinstance(content, LanceTable) or not is_managed(content):
            return False
        state = decode_state(content)
        if state.first >= first_version or not keeps_younger:
            return state.first < first_version  # every state has it from the version on that the erase made
        if state.owner == b"" and not state.fork:
            return state.newest < first_version
        # What goes on from the first version itself may have been written before the moment.
        return state.fork <= first_version

    def cut_content(self, content: AnyContent, first_version: int) -> AnyContent:
        if not isinstance(content, LanceTable) or not is_managed(content):
            return content
        return begin_table(content, first_version)

    def explain_forbidden_move(self, before: AnyContent | None, after: AnyContent | None) -> str | None:
        if not isinstance(before, LanceTable) or not isinstance(after, LanceTable):
            return "would appear or vanish; merge the branch, or drop the table"
        return merge_rules.explain_unmovable(before, after)

    def after_commit(
        self,
        key: Key,
        content: AnyContent | None,
        commit: ObjectId,  # noqa: ARG002
        *,
        branch: str,
        is_default: bool,
    ) -> None:
        if isinstance(content, LanceTable) and content.state and not branch.startswith(PREFIX):
            self._promoter.note_commit(key, content, is_default=is_default)


class _PreparedSteps(NamedTuple):
    """What was read from storage about the steps of a change before its turn."""

    first: int
    """The version with which the history of the table begins, as far as was known then."""
    found: Prepared


def _add_origin(table: Table, applied: AppliedChange) -> AppliedChange:
    """The table with the version that it continues from and the first version of its history set."""
    content, before = applied.content, table.content if table.content is not None else table.last
    if not isinstance(content, LanceTable) or not content.state or content == table.content:
        return applied
    old_state = decode_state(before) if isinstance(before, LanceTable) and before.state else LanceState()
    state, fork = (
        decode_state(content),
        _find_forked_version(WriteTarget.from_table(table), old_state, decode_state(content)),
    )
    first = max(state.first, old_state.first if before is not None and before.id == content.id else 0)
    if (fork, first) == (state.fork, state.first):
        return applied
    state = msgspec.structs.replace(state, fork=fork, first=first)
    return applied._replace(content=encode_state_into_table(content, state))


def _find_forked_version(target: WriteTarget, old_state: LanceState, state: LanceState) -> int:
    """The number of the version that a new state continues from."""
    if target == WriteTarget(b""):
        return 0
    if state.fork:
        return state.fork
    is_begun = state.owner == target.line_owner and old_state.owner != state.owner
    if is_begun or (target.transaction and not state.owner):
        return old_state.fork or (0 if old_state.owner else old_state.newest)
    return 0


def _open_table_objects(table: Table) -> Objects:
    assert table.objects is not None
    return table.objects


def _require_lance_content(content: AnyContent | None) -> LanceTable | None:
    if content is None or (isinstance(content, LanceTable) and content.state):
        return content
    raise FormatRefused("is not managed by the lake on both sides")
