"""The rules of tables of files for the kernel: how a write changes a table, and how two changes merge.

Nothing here reads files: writers make them durable before they send the commit. The work of a turn in the
queue is prepared before it, on the table as it is then; if the table is unchanged, the result is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from penstock.formats.files import change_summary, merge_rules
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import (
    FilesState,
    check_prefix,
    decode_state,
    encode_state_into_table,
    is_managed,
)
from penstock.formats.files.intents import (
    NAME,
    HistoryMark,
    WriteIntent,
    check_write_intent,
    decode_intent,
    decode_write,
    encode_write,
    select_part_for_merges,
)
from penstock.formats.files.known_changes import WAY_OUT, is_path_changed
from penstock.formats.files.read_check import check_seen
from penstock.formats.files.table_changes import apply_write
from penstock.kernel.format import (
    AppliedChange,
    CrissCrossHistory,
    Format,
    FormatRefused,
    LaterCommit,
    LaterCommitLookup,
    PrepareAgain,
    Table,
)
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent
from penstock.model.merges import ChangeSummary, MergeMode
from penstock.model.operations import Change

if TYPE_CHECKING:
    from penstock.storage.places import Place

AT_TURN_MAX_PATHS: Final = 10_000
"""What takes a look at more paths is prepared again if the table moved, rather than hold up all others."""
ROUNDS_MAX: Final = 2
"""So often; after that its turn has come, however long it takes."""


class _MergeQuestion(NamedTuple):
    """What a merge or a revert was asked about a table.

    At its turn that is mostly what it was when it was prepared.
    """

    target: AnyContent | None
    base: AnyContent | None
    source: AnyContent | None
    intents: Sequence[bytes] | LaterCommitLookup | None
    paths: Mapping[str, MergeMode]
    criss_cross: CrissCrossHistory | None = None


class _CachedMerge(NamedTuple):
    """What was found then, and whether that was much work."""

    asked: _MergeQuestion
    own: Sequence[LaterCommit] | None
    """What the branch had done to the table, if that was looked at."""
    answer: AppliedChange | FormatRefused
    is_much: bool

    def is_still_valid(self, table: Table, question: _MergeQuestion) -> bool:
        """Whether the same is asked about a table to which nothing else was done."""
        if self.asked != question:
            return False
        return self.own is None or (table.own is not None and tuple(self.own) == table.own.commits)


class _PreparedWrite(NamedTuple):
    """A write, and what it made of the table as that was before the queue."""

    write: WriteIntent
    content: FilesTable | None
    applied: AppliedChange

    @property
    def path_count(self) -> int:
        """How many paths it takes to carry it out: those that it names, and those that it finds."""
        if "" in self.write.replaced or self.content is None or self.applied.content is None:
            return self.write.path_count
        before, after = decode_state(self.content), decode_state(_require_files_table(self.applied.content))
        return self.write.path_count + max(0, before.files - after.files)


class FilesFormat(Format):
    """Tables of files that the lake keeps."""

    name = NAME
    content_type = FilesTable
    has_paths = True
    repeats_states = True
    merges_objects_only = True

    def __init__(self, pool: Callable[[], Place] | None = None) -> None:
        """``pool`` opens the folder that all files lie in; without it, files are not looked for."""
        self._pool = pool

    def prepare(self, table: Table, change: Change) -> Any:
        write_intent = decode_intent(change.intent)
        if isinstance(write_intent, HistoryMark):
            return None
        write = check_write_intent(write_intent)
        content = _require_managed(table.content)
        if content is not None:
            self.drop_erased(table, content)
        return _PreparedWrite(write, content, _apply_write(table, content, write))

    def apply(self, table: Table, change: Change, prepared: Any) -> AppliedChange:
        content = _require_managed(table.content)
        if prepared is None:
            write_intent = decode_intent(change.intent)
            if isinstance(write_intent, HistoryMark):
                return _apply_mark(content, write_intent)
            return _apply_write(table, content, check_write_intent(write_intent))
        if content == prepared.content:
            applied: AppliedChange = prepared.applied
            return applied
        if prepared.path_count > AT_TURN_MAX_PATHS:
            _prepare_again(table)
        return _apply_write(table, content, prepared.write)

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,
    ) -> AppliedChange:
        target, before, comes = (
            _require_managed(table.content),
            _require_managed(base),
            _require_managed(source),
        )
        is_as_it_was = target == before and not table.paths
        if is_as_it_was and (target is None or comes is None or not is_path_changed(table.own)):
            return AppliedChange(comes)
        if comes is None or (target is None and before is not None):
            raise FormatRefused(f"was dropped on one side and changed on the other; {WAY_OUT}")
        for prefix in table.paths:
            check_prefix(prefix)
        question = _MergeQuestion(table.content, base, source, intents, table.paths, table.criss_cross)
        merge = partial(
            merge_rules.merge_files, table, _open_table_objects(table), target, before, comes, intents
        )
        return _answer_merge(table, question, merge)

    def check_read(self, table: Table, old_content: AnyContent, parts: Sequence[str] | None) -> None:
        before, now = _require_managed(old_content), _require_managed(table.content)
        if before is None or now is None:
            raise FormatRefused("was created or deleted after this transaction had read it")
        check_seen(_open_table_objects(table), decode_state(before), decode_state(now), parts)

    def is_beyond_difference(self, intents: Sequence[bytes] | None) -> bool:
        return intents is None or any(
            merge_rules.is_more_than_files(decode_write(intent)) for intent in intents if intent
        )

    def revert(
        self,
        table: Table,
        committed: AnyContent | None,
        previous: AnyContent | None,
        since: LaterCommitLookup,
    ) -> AppliedChange | None:
        states = [_require_managed(content) for content in (table.content, committed, previous)]
        target, undone, before = states
        if target is None or undone is None or before is None or len({target.id, undone.id, before.id}) > 1:
            return None
        if target == undone and not since.commits and not table.paths:
            return None
        question = _MergeQuestion(table.content, committed, previous, since, table.paths)
        revert = partial(
            merge_rules.revert_files, table, _open_table_objects(table), target, undone, before, since
        )
        return _answer_merge(table, question, revert)

    def lacks_version(self, content: AnyContent, first: int, *, keeps_younger: bool = False) -> bool:  # noqa: ARG002
        return isinstance(content, FilesTable) and is_managed(content) and decode_state(content).mark < first

    def cut_content(self, content: AnyContent, first: int) -> AnyContent:
        # A state that was spared is brought back with the mark that all states have from then on.
        if not isinstance(content, FilesTable) or not self.lacks_version(content, first):
            return content
        return encode_state_into_table(content, msgspec.structs.replace(decode_state(content), mark=first))

    def summarize_change(
        self, table: Table, before: AnyContent | None, after: AnyContent | None
    ) -> ChangeSummary | None:
        return change_summary.summarize_change(
            _open_table_objects(table), _to_managed_table(before), _to_managed_table(after)
        )

    def missing_files(self, table: Table, before: AnyContent | None, after: AnyContent) -> Sequence[str]:
        if self._pool is None:
            return ()
        return change_summary.missing_files(
            _open_table_objects(table), self._pool(), _to_managed_table(before), _require_files_table(after)
        )

    def check_direct_change(self, table: Table, content: AnyContent | None) -> None:
        if content is not None and content != table.content:
            raise FormatRefused("is a table of files: it is changed by writing files, not by put")


def _apply_mark(content: FilesTable | None, mark: HistoryMark) -> AppliedChange:
    if content is None:
        raise FormatRefused("does not exist")
    state = decode_state(content)
    marked = msgspec.structs.replace(state, mark=max(state.mark, mark.number))
    return AppliedChange(
        encode_state_into_table(content, marked), intent=encode_write(WriteIntent())
    )  # nothing for a merge to replay


def _answer_merge(
    table: Table, merge_question: _MergeQuestion, work: Callable[[], merge_rules.MergedState]
) -> AppliedChange:
    """What is to be answered; at a turn, if nothing is different by then, as it was found before.

    A refusal is remembered too, and counts as much work: how much it was is not known.
    """
    note = (
        "files answer",
        table.key,
        _encode_table_state(merge_question.base),
        _encode_table_state(merge_question.source),
    )
    merge_answer: _CachedMerge | None = table.notes.get(note)
    if merge_answer is None or not merge_answer.is_still_valid(table, merge_question):
        if merge_answer is not None and merge_answer.is_much:
            _prepare_again(table)
        try:
            finished_work = work()
        except FormatRefused as refused:
            merge_answer = _CachedMerge(merge_question, _find_own_commits(table), refused, is_much=True)
        else:
            is_much = finished_work.paths > AT_TURN_MAX_PATHS
            merge_answer = _CachedMerge(
                merge_question, _find_own_commits(table), finished_work.applied, is_much
            )
        table.notes[note] = merge_answer
    if isinstance(merge_answer.answer, FormatRefused):
        raise merge_answer.answer
    return merge_answer.answer


def _find_own_commits(table: Table) -> Sequence[LaterCommit] | None:
    """What the branch did to the table, if that was looked up."""
    return table.own.commits if table.own is not None and table.own.is_known else None


def _prepare_again(table: Table) -> None:
    """Leave much work to another preparation, unless there were enough of them."""
    rounds = table.notes.get(("files rounds", table.key), 0)
    if not table.may_read and rounds < ROUNDS_MAX:
        table.notes["files rounds", table.key] = rounds + 1
        raise PrepareAgain


def _encode_table_state(content: AnyContent | None) -> bytes | None:
    return None if content is None else _require_files_table(content).state


def _apply_write(table: Table, content: FilesTable | None, write: WriteIntent) -> AppliedChange:
    if content is None:
        if not write.creates:
            raise FormatRefused("does not exist")
        content, state = FilesTable(), FilesState()
    else:
        state = decode_state(content)
    changed = apply_write(_open_table_objects(table), state, write)
    if changed is None:
        return AppliedChange(
            table.content, intent=encode_write(WriteIntent())
        )  # nothing for a merge to replay
    return AppliedChange(
        encode_state_into_table(content, changed[0]), changed[1], encode_write(select_part_for_merges(write))
    )


def _open_table_objects(table: Table) -> Objects:
    assert table.objects is not None, "the kernel gives them"
    return table.objects


def _require_files_table(content: AnyContent) -> FilesTable:
    assert isinstance(content, FilesTable), "the kernel passes a format only its own tables"
    return content


def _to_managed_table(content: AnyContent | None) -> FilesTable | None:
    """The content if it is a managed table of files, else ``None``."""
    return content if isinstance(content, FilesTable) and is_managed(content) else None


def _require_managed(content: AnyContent | None) -> FilesTable | None:
    if content is None or (isinstance(content, FilesTable) and is_managed(content)):
        return content
    raise FormatRefused(
        "is not a table of files on the other side; rename one of the two, or keep the target's with the "
        "mode 'drop' (drops the change, not the table)"
    )
