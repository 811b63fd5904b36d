"""A table format small enough to see through: a journal is a list of lines.

It does what large formats do. Lines are bytes that the kernel carries, changes are stored as intent, a blind
change acts on the journal as it is at its turn, one that read a version is checked against what landed
since, and what has landed is published. It also counts what is asked of it and fails when it is told to.

>>> import penstock
>>> lake = penstock.open("memory:", formats=[JournalFormat()])
>>> _ = lake.commit([append("diary", "dear diary")]), lake.commit([append("diary", "it rained")])
>>> lines_of(lake.kernel, "diary")
['dear diary', 'it rained']
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec

from penstock.kernel.format import AppliedChange, Format, FormatRefused, PrepareAgain, Table, blob
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import read_content
from penstock.model.content import AnyContent, Unknown
from penstock.model.decoders import get_msgpack_decoder
from penstock.model.encoding import ObjectId, encode
from penstock.model.keys import Key
from penstock.model.operations import Change

NAME = "journal"
TYPE_NAME = "JOURNAL"
ASKED_MAX = 100


class Append(msgspec.Struct, frozen=True, array_like=True, tag="append"):
    """Add a line, whatever is there."""

    text: str


class Replace(msgspec.Struct, frozen=True, array_like=True, tag="replace"):
    """Let these be the lines, whatever was there."""

    texts: tuple[str, ...]


class JournalEdit(msgspec.Struct, frozen=True, array_like=True, tag="edit"):
    """Replace a line that was read, at a version of the journal, as ``old``."""

    read_version: int
    number: int
    old: str
    new: str


class Ensure(msgspec.Struct, frozen=True, array_like=True, tag="ensure"):
    """Add a line, unless there is one like it."""

    text: str


Intent = Append | Replace | JournalEdit | Ensure
_decode_intent = get_msgpack_decoder(Intent).decode


class State(msgspec.Struct, frozen=True, array_like=True):
    """What a journal's content says beside the lines, which it holds as kernel objects."""

    version: int = 0
    changed: tuple[int, ...] = ()
    """Per line the version that wrote it."""


_decode_state = get_msgpack_decoder(State).decode


class LandedJournal(NamedTuple):
    """What ``after_commit`` was told."""

    key: Key
    commit: ObjectId
    version: int
    """Nothing if the journal is gone."""
    branch: str = "main"


class FormatCall(NamedTuple):
    """One question to the format."""

    what: str
    table: Table


class JournalFormat(Format):
    """Journals. ``directory`` is where what has landed is published, one file a version."""

    name = NAME

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self.calls: Counter[str] = Counter()
        """How often each of the protocol's methods was called."""
        self.published: list[LandedJournal] = []
        self.asked: deque[FormatCall] = deque(maxlen=ASKED_MAX)
        """The last questions."""
        self.refused_texts: set[str] = set()
        """Lines that ``prepare`` refuses: what a format finds wrong in table storage."""
        self.refused_late: set[str] = set()
        """Lines that ``apply`` refuses."""
        self.again = 0
        """So many times ``apply`` asks to be prepared again."""
        self.reads_storage = False
        """Whether a decision about a journal needs what only its storage tells: once for each version."""
        self.keeps_versions = False
        """Whether the default branch may not go back behind a version."""
        self.during_prepare: Callable[[], None] = _do_nothing
        self.during_apply: Callable[[], None] = _do_nothing
        self.during_landed: Callable[[], None] = _do_nothing
        self.after_merge: Callable[[], None] = _do_nothing
        """Called once a merge or restoration was decided outside of a turn, where others may commit."""
        self._lock = Lock()

    def manages(self, content: AnyContent) -> bool:
        return isinstance(content, Unknown) and content.type_name == TYPE_NAME

    def prepare(self, table: Table, change: Change) -> State:
        self._record_call("prepare", table)
        self.during_prepare()
        self._read_storage(table)
        for text in _intent_lines(_decode_intent(change.intent)):
            if text in self.refused_texts:
                raise FormatRefused(f"cannot append the line {text!r}")
        return state_of(table.content)

    def apply(self, table: Table, change: Change, prepared: State | None) -> AppliedChange:
        self._record_call("apply", table)
        self.during_apply()
        self._read_storage(table)
        with self._lock:
            if self.again > 0 and prepared is not None:
                self.again -= 1
                raise PrepareAgain
        intent, state = _decode_intent(change.intent), state_of(table.content)
        for text in _intent_lines(intent):
            if text in self.refused_late:
                raise FormatRefused(f"can no longer take the line {text!r}")
        held = table.content.objects if table.content is not None else ()
        version = state.version + 1
        if isinstance(intent, Ensure) and intent.text in (_format_line(table.read(data)) for data in held):
            return AppliedChange(table.content)
        if isinstance(intent, Append | Ensure):
            return _write_journal(table, version, held, state.changed, (intent.text,))
        if isinstance(intent, Replace):
            return _write_journal(table, version, (), (), intent.texts)
        _check_edit(table, intent, state, held)
        before, after = slice(0, intent.number), slice(intent.number + 1, None)
        edited = _write_journal(table, version, held[before], state.changed[before], (intent.new,))
        return _with_objects(edited, held[after], state.changed[after])

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,
    ) -> AppliedChange:
        self._record_call("merge", table)
        self._read_storage(table)
        try:
            return super().merge(table, base, source, intents)
        finally:
            if table.may_read:
                self.after_merge()

    def restore(self, table: Table, after: AnyContent | None) -> AppliedChange:
        self._record_call("restore", table)
        self._read_storage(table)
        if table.may_read:
            self.after_merge()
        return super().restore(table, after)

    def check_direct_change(self, table: Table, content: AnyContent | None) -> None:
        self._record_call("admit", table)
        super().check_direct_change(table, content)

    def after_commit(
        self, key: Key, content: AnyContent | None, commit: ObjectId, *, branch: str, is_default: bool
    ) -> None:
        self._count("landed")
        self.during_landed()
        version = state_of(content).version
        with self._lock:
            self.published.append(LandedJournal(key, commit, version, branch))
        if self.directory is not None and is_default:
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / f"{key}.{version}").write_text(commit.hex())

    def explain_forbidden_move(self, before: AnyContent | None, after: AnyContent | None) -> str | None:
        version = state_of(before).version
        if self.keeps_versions and state_of(after).version < version:
            return f"is at version {version} already"
        return None

    def _read_storage(self, table: Table) -> None:
        """Look something up that is not in the kernel, where that is allowed, or go by what was noted."""
        what = table.key, state_of(table.content).version
        if not self.reads_storage or what in table.notes:
            return
        if not table.may_read:
            raise PrepareAgain
        self._count("read")
        table.notes[what] = True

    def _record_call(self, subject: str, table: Table) -> None:
        self._count(subject)
        self.asked.append(FormatCall(subject, table))

    def _count(self, subject: str) -> None:
        with self._lock:
            self.calls[subject] += 1


def append(key: str, text: str) -> Change:
    return Change(Key.parse(key), NAME, encode(Append(text)))


def replace(key: str, *texts: str) -> Change:
    return Change(Key.parse(key), NAME, encode(Replace(texts)))


def ensure(key: str, text: str) -> Change:
    return Change(Key.parse(key), NAME, encode(Ensure(text)))


def edit(key: str, read_version: int, number: int, old: str, new: str) -> Change:
    return Change(Key.parse(key), NAME, encode(JournalEdit(read_version, number, old, new)))


def empty_journal(version: int = 0) -> Unknown:
    """A journal without lines, for a raw put."""
    return Unknown(type_name=TYPE_NAME, payload=encode(State(version)))


def state_of(content: AnyContent | None) -> State:
    """What a journal's content says; that of no journal says nothing."""
    if not isinstance(content, Unknown):
        return State()
    state: State = _decode_state(content.payload)
    return state


def journal_at(kernel: Kernel, key: str, branch: str = "main") -> AnyContent | None:
    """The content of a journal on a branch now."""
    stored = Key.parse(key).encode()
    return read_content(
        kernel.objects, kernel.read_state(kernel.references.get_reference(branch).head).get(stored)
    )


def lines_of(kernel: Kernel, key: str, branch: str = "main") -> list[str]:
    """The lines of a journal on a branch now, read from the kernel's objects."""
    content = journal_at(kernel, key, branch)
    return [_format_line(kernel.objects.get(data).data) for data in (content.objects if content else ())]


def _write_journal(
    table: Table, version: int, held: tuple[ObjectId, ...], changed: tuple[int, ...], texts: Sequence[str]
) -> AppliedChange:
    """The journal with these lines, of which the last ones are new."""
    blobs: dict[ObjectId, bytes] = {}
    for text in texts:
        object_id, data = blob(f"{version}\t{text}".encode())
        blobs[object_id] = data
        held, changed = (*held, object_id), (*changed, version)
    identity = table.content.id if table.content is not None else None
    payload = encode(State(version, changed))
    return AppliedChange(Unknown(id=identity, type_name=TYPE_NAME, payload=payload, held=held), blobs)


def _with_objects(
    applied: AppliedChange, held: tuple[ObjectId, ...], changed: tuple[int, ...]
) -> AppliedChange:
    content = applied.content
    assert isinstance(content, Unknown)
    state = state_of(content)
    payload = encode(State(state.version, (*state.changed, *changed)))
    return applied._replace(
        content=msgspec.structs.replace(content, payload=payload, held=(*content.held, *held))
    )


def _check_edit(table: Table, intent: JournalEdit, state: State, held: tuple[ObjectId, ...]) -> None:
    """An edit is refused if its line is gone, or was written after the version that was read."""
    if intent.number >= len(held):
        raise FormatRefused(f"has no line {intent.number}; it has {len(held)} lines")
    if state.changed[intent.number] > intent.read_version:
        raise FormatRefused(
            f"changed line {intent.number}",
            expected=f"version {intent.read_version}",
            found=f"version {state.changed[intent.number]}",
            found_version=state.changed[intent.number],
        )
    text = _format_line(table.read(held[intent.number]))
    if text != intent.old:
        raise FormatRefused(f"has another line {intent.number}", expected=intent.old, found=text)


def _format_line(line: bytes) -> str:
    """A line as it was written; stored, it begins with its version, which only its turn can tell."""
    return line.decode().partition("\t")[2]


def _intent_lines(intent: Intent) -> tuple[str, ...]:
    if isinstance(intent, Append | Ensure):
        return (intent.text,)
    return intent.texts if isinstance(intent, Replace) else (intent.new,)


def _do_nothing() -> None:
    pass
