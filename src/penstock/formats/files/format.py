"""Tables of files, as the kernel asks about them: what a change makes of a table, and how two meet.

Nothing here looks at files: their writers made them durable before they told of them. What a turn in the
queue has to do was done before, on the table as it was then; if it is still so, that is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.formats.files import merging
from penstock.formats.files.changing import carry_out
from penstock.formats.files.files import FilesState, check_prefix, is_managed, state_of, with_state
from penstock.formats.files.intents import NAME, Write, check, decode_write, encode_write, shortened
from penstock.kernel.format import Applied, Crossed, Format, PrepareAgain, Refused, Table
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent, FilesTable
from penstock.model.merges import MergeMode
from penstock.model.operations import Change

AT_TURN_MAX_PATHS: Final = 10_000
"""A write of more paths is prepared again if the table moved, rather than hold up all others."""
ROUNDS_MAX: Final = 2
"""So often; after that its turn has come, however long it takes."""


class _Asked(NamedTuple):
    """What a merge was asked about a table. At its turn that is mostly what it was when it was prepared."""

    target: AnyContent | None
    base: AnyContent | None
    source: AnyContent | None
    intents: Sequence[bytes] | None
    paths: Mapping[str, MergeMode]
    crossed: Crossed | None


class _Prepared(NamedTuple):
    """A write, and what it made of the table as that was before the queue."""

    write: Write
    content: FilesTable | None
    applied: Applied


class FilesFormat(Format):
    """Tables of files that the lake keeps."""

    name = NAME
    has_paths = True

    def manages(self, content: AnyContent) -> bool:
        return is_managed(content)

    def prepare(self, table: Table, change: Change) -> Any:
        write = check(decode_write(change.intent))
        content = _own(table.content)
        return _Prepared(write, content, _carried_out(table, content, write))

    def apply(self, table: Table, change: Change, prepared: Any) -> Applied:
        content = _own(table.content)
        if prepared is None:
            return _carried_out(table, content, check(decode_write(change.intent)))
        if content == prepared.content:
            applied: Applied = prepared.applied
            return applied
        rounds = table.notes.get(("files rounds", table.key), 0)
        if prepared.write.paths > AT_TURN_MAX_PATHS and rounds < ROUNDS_MAX:
            table.notes["files rounds", table.key] = rounds + 1
            raise PrepareAgain
        return _carried_out(table, content, prepared.write)

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,
    ) -> Applied:
        target, before, comes = _own(table.content), _own(base), _own(source)
        if target == before and not table.paths:
            return Applied(comes)
        if comes is None or (target is None and before is not None):
            raise Refused(f"was dropped on one side and changed on the other; {merging.WAY_OUT}")
        if target is None:
            return Applied(comes)
        for prefix in table.paths:
            check_prefix(prefix)
        asked = _Asked(table.content, base, source, intents, table.paths, table.crossed)
        known = table.notes.get(("files merge", table.key))
        if known is not None and known[0] == asked:
            done: Applied = known[1]
            return done
        done = merging.merge(table, _objects(table), target, before, comes, intents)
        table.notes["files merge", table.key] = asked, done
        return done

    def is_beyond_difference(self, intents: Sequence[bytes] | None) -> bool:
        return intents is None or any(merging.asks_for_more(decode_write(one)) for one in intents if one)

    def revert(self, table: Table, was: AnyContent | None, wanted: AnyContent | None) -> Applied | None:
        target, undone, before = _own(table.content), _own(was), _own(wanted)
        if target is None or undone is None or before is None or len({target.id, undone.id, before.id}) > 1:
            return None
        return merging.revert(table, _objects(table), target, undone, before)

    def admit(self, table: Table, content: AnyContent | None) -> None:  # noqa: ARG002
        if content is not None:
            raise Refused("is a table whose files the lake keeps, whose state is not put but written")


def _carried_out(table: Table, content: FilesTable | None, write: Write) -> Applied:
    if content is None:
        if not write.creates:
            raise Refused("does not exist")
        content = FilesTable(id=write.table)
        state = FilesState()
    elif write.table not in (None, content.id) and not write.creates:
        raise Refused("is not the same any more: it was dropped or created anew")
    else:
        state = state_of(content)
    done = carry_out(_objects(table), state, write)
    if done is None:
        return Applied(table.content, intent=encode_write(Write()))  # nothing for a merge to replay
    return Applied(with_state(content, done[0]), done[1], encode_write(shortened(write)))


def _objects(table: Table) -> Objects:
    assert table.objects is not None, "the kernel gives them"
    return table.objects


def _own(content: AnyContent | None) -> FilesTable | None:
    if content is None or (isinstance(content, FilesTable) and is_managed(content)):
        return content
    raise Refused("is something else, and no table whose files the lake keeps")
