"""The format protocol: how a table changes, and how two changes to the same table meet.

A format decides; the kernel calls it at the right moments:

1. ``prepare``, in the writer's thread before the queue: read and check what lies in table storage, against
   the table as it is at that moment. Any I/O belongs here.
2. ``apply``, at the request's turn: decide from values alone what the table becomes. It may be called
   several times for one request and must do no I/O but read kernel objects.
3. ``after_commit``, in the writer's thread after the swap: publish. Repeatable; it cannot fail a commit.

A merge asks ``merge``, ``restore`` and ``check_read`` at the same two moments: once before the queue, where
they may read table storage and what they answer does not count, and then at its turn, where they may not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from penstock.errors import InvalidContent, InvalidRequest, PenstockError
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent, ManagedTable, Unknown
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.keys import Key
from penstock.model.merges import ChangeSummary, MergeMode
from penstock.model.objects import OBJECT_MAX_BYTES, Blob, Holder, decode_object
from penstock.model.operations import Change

DRY_RUN: Final = "dry run"
"""Among a request's notes: that it is only asked what would come of it, so that nothing is to be written."""
READ_AND_CHANGED: Final = "was read by this transaction, but was changed by another writer since"
"""Why a transaction cannot land, where it is told of a table."""
CLASHES_MAX: Final = 100
"""How many paths a refusal names."""
MESSAGE_SHOWN_MAX: Final = 60
"""So many characters of a commit's message are part of a conflict."""

if TYPE_CHECKING:
    from uuid import UUID

    from penstock.kernel.table_horizons import TableHorizon, TableHorizons


class PathClash(NamedTuple):
    """A path inside a table that two sides changed: what the one expected there, and what is there."""

    path: str
    expected: str
    found: str


_Read = TypeVar("_Read")


class FormatRefused(Exception):
    """A format does not allow a change. ``why`` continues a sentence that begins with the table's name.

    ``clashes`` are the paths inside the table at which it cannot be, where the format knows of any. Each of
    the first ``CLASHES_MAX`` becomes a conflict of its own, and ``more`` are those that are not named.
    ``found_version`` is the table's version that is in the way, if it is about a single one.
    """

    def __init__(
        self,
        why: str,
        *,
        expected: str = "",
        found: str = "",
        found_version: int | None = None,
        clashes: Sequence[PathClash] = (),
    ) -> None:
        super().__init__(why)
        self.why, self.expected, self.found = why, expected, found
        self.found_version = found_version
        self.clashes = tuple(clashes[:CLASHES_MAX])
        self.more = len(clashes) - len(self.clashes)


class PrepareAgain(Exception):
    """Too much landed since ``prepare`` to decide without I/O: the request goes round once more."""


class CrissCrossHistory(NamedTuple):
    """What happened to a key on two sides that met after the source had begun to change it.

    Such a source has changes from before it took in the state at which the sides parted last. They are part
    of what it has, but the target's changes since then came after them.
    """

    earlier: tuple[bytes, ...]
    """Of the source's intents those that may be older than the state at which the sides parted."""
    target: tuple[bytes, ...] | None
    """The intents of the target that the source does not have; ``None`` if not all of them are known."""


class LaterCommit(NamedTuple):
    """A commit that changed a key after one that is to be undone, or was meant to."""

    before: tuple[AnyContent | None, ...]
    """What the key held in each of its parents, but those that have expired."""
    after: AnyContent | None
    intents: tuple[bytes, ...] | None
    """What it was asked to do, in order; ``None`` if it brought the key into a given state."""
    is_parallel: bool
    """It does not build on the commit that is to be undone: a merge brought the two together."""
    is_merge: bool
    """It has several parents, whether these have expired or not."""
    other_side: tuple[AnyContent | None, ...] = ()
    """Of a merge that brought the commit to be undone to others: what the key held on their side."""
    id: str = ""
    author: str = ""
    message: str = ""

    def describe(self) -> str:
        """The commit, as a conflict names it: the beginning of its id, its author and its message."""
        author = f" by {self.author}" if self.author else ""
        title = self.message.partition("\n")[0]
        shown = title if len(title) <= MESSAGE_SHOWN_MAX else f"{title[:MESSAGE_SHOWN_MAX]}…"
        return f"commit {self.id[:8]}{author}" + (f": {shown!r}" if shown else "")


class LaterCommitLookup:
    """What was done to a key after a commit that is to be undone or repeated, or since two sides parted: the
    commits, oldest first.

    They are looked up when they are first asked for: that walks the history since then, and a format that
    can do without them should.
    """

    def __init__(
        self,
        commits: Sequence[LaterCommit] | Callable[[], Sequence[LaterCommit]],
        undone: tuple[bytes, ...] = (),
    ) -> None:
        """``undone`` is what the commit that is to be undone was asked to do, as far as that is known."""
        self._commits = commits
        self.undone = undone

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaterCommitLookup) and (self.commits, self.undone) == (
            other.commits,
            other.undone,
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def commits(self) -> tuple[LaterCommit, ...]:
        return tuple(self._commits() if callable(self._commits) else self._commits)

    @property
    def is_known(self) -> bool:
        """Whether the commits were looked up."""
        return "commits" in self.__dict__

    @property
    def after(self) -> tuple[bytes, ...] | None:
        """The intents of those that build on it; ``None`` if not all of them are known."""
        return _list_intents(commit for commit in self.commits if not commit.is_parallel)

    @property
    def parallel(self) -> tuple[bytes, ...] | None:
        """The intents of those that do not build on it; likewise."""
        return _list_intents(commit for commit in self.commits if commit.is_parallel)


def _list_intents(commits: Iterable[LaterCommit]) -> tuple[bytes, ...] | None:
    intents: list[bytes] = []
    for commit in commits:
        if commit.intents is None:
            return None
        intents += commit.intents
    return tuple(intents)


class OpenTransaction(NamedTuple):
    """A transaction whose branch a table is on, and the branch that it will land on."""

    id: str
    target: str
    incarnation: bytes
    """Of the target."""
    is_default: bool
    """Whether the target is the lake's default branch."""


class Table(msgspec.Struct, frozen=True):
    """A table at a moment: where it is, what it holds, and a way to read kernel objects."""

    key: Key
    content: AnyContent | None
    read: Callable[[ObjectId], bytes]
    branch: str = ""
    """Whose queue it is in."""
    is_default: bool = True
    """Whether that is the lake's default branch."""
    incarnation: bytes = b""
    """Of the branch."""
    last: AnyContent | None = None
    """Where a table is wanted at a key that holds nothing, what this branch had of it last: as it was
    dropped, or as it is at the key from which it may be moving."""
    may_read: bool = True
    """Whether table storage may be read; where it may not, what is not known is a reason for
    ``PrepareAgain``."""
    notes: dict[Any, Any] = {}  # a new one for each table that is given none
    """Of one request, from its preparation to its last turn, for what was read."""
    is_repeated: bool = False
    """Tells ``merge`` that a commit is transplanted or rebased: what is between base and source is to come on
    top of what is here, and nothing else that the source has."""
    objects: Objects | None = None
    """Those that ``read`` reads, for a format that keeps a tree of its own."""
    paths: Mapping[str, MergeMode] = MappingProxyType({})
    """Tell ``merge`` how to treat what is below a path inside the table."""
    criss_cross: CrissCrossHistory | None = None
    """There if the sides of a merge met before."""
    is_strange: bool = False
    """Tells ``merge`` that the source has a table of another id, which this branch never had."""
    transaction: OpenTransaction | None = None
    """There on the branch of one."""
    bases: tuple[AnyContent, ...] = ()
    """Tell ``merge`` what the table is in each of the states that both sides come from, where there are
    several because merges crossed."""
    since: LaterCommitLookup | None = None
    """There if a commit is repeated on a branch that has it already: what was done to the table after it."""
    own: LaterCommitLookup | None = None
    """Tells ``merge`` what this branch did to the table that the source does not have; where commits are
    repeated, what it did since the first of them began."""
    theirs: LaterCommitLookup | None = None
    """Tells ``merge`` what the source did that this branch does not have."""
    brings_undone: bool = False
    """Tells ``merge`` that a commit is transplanted: what this branch had of it and has undone comes again.
    Without it, as in a merge and in a rebase, an undo stands."""

    def read_once(self, note_key: tuple[object, ...], read: Callable[[], _Read]) -> _Read:
        """The result of ``read``, computed once for a request, and noted. ``PrepareAgain`` if it is needed
        first at the turn.

        Where what was read is a reason to refuse, it is one whenever it is asked for again.
        """
        if note_key not in self.notes:
            if not self.may_read:
                raise PrepareAgain
            try:
                self.notes[note_key] = read()
            except FormatRefused as refused:
                self.notes[note_key] = refused
        noted: _Read | FormatRefused = self.notes[note_key]
        if isinstance(noted, FormatRefused):
            raise noted
        return noted


def blob(data: bytes, held: Sequence[ObjectId] = ()) -> tuple[ObjectId, bytes]:
    """Bytes for the kernel to carry, as an object: its id and what is stored under it.

    ``held`` are further objects, which live as long as this one does. ``InvalidContent`` if it is too large.
    """
    packed = encode(Holder(data, tuple(held)) if held else Blob(data))
    if len(packed) > OBJECT_MAX_BYTES:
        raise InvalidContent(f"a blob can have at most {OBJECT_MAX_BYTES} bytes, got {len(data)}; split it")
    return hash_object(packed), packed


class AppliedChange(NamedTuple):
    """What a change makes of a table.

    ``blobs`` are bytes that the kernel is to carry, as ``blob`` makes them; the content's ``held``, or
    that of an object it names, names their ids. ``intent`` is stored for a merge to replay instead of the one
    that the change came with, where a shorter one will do; or beside those that were merged. ``is_opaque``
    tells of a merge that the table cannot be replayed from what was merged.
    """

    content: AnyContent | None
    blobs: Mapping[ObjectId, bytes] = MappingProxyType({})
    intent: bytes | None = None
    is_opaque: bool = False


class Format:
    """What a format decides. The defaults fit a table that any writer may replace as a whole."""

    name: str
    """As ``Change.format`` names it."""
    content_type: type[ManagedTable]
    """What its tables are stored as. A format whose tables have no such type says what it ``manages``."""
    has_paths: bool = False
    """Whether a merge can treat paths inside its tables differently."""
    takes_any_base: bool = False
    """Whether it can merge where merges crossed, and the common ancestors do not agree on a table: it goes by
    all of them."""
    repeats_states: bool = False
    """Whether a table can have a state that it had before, although it was changed in between. If not, equal
    states tell a revert that nothing came after."""
    may_lose_files: bool = False
    """Whether other programs may remove files that only earlier states of its tables have: then a revert
    looks whether those are there that come back."""
    merges_objects_only: bool = False
    """Whether what ``merge`` answers follows from kernel objects alone, so that a merge of long ago can be
    worked out again."""
    find_horizon: Callable[[UUID], TableHorizon | None] | None = None
    """Looks up from where on the history of a table exists. A kernel sets it."""

    def manages(self, content: AnyContent) -> bool:
        """Whether a content is a table of this format, and not one that the lake only points at."""
        return isinstance(content, self.content_type) and content.state != b""

    def prepare(self, table: Table, change: Change) -> Any:  # noqa: ARG002
        """Check a change before it queues; what is returned is handed to ``apply``.

        Raises ``FormatRefused`` if the change can never be.
        """
        return None

    def apply(self, table: Table, change: Change, prepared: Any) -> AppliedChange:
        """The table after the change.

        ``prepared`` is ``None`` where a merge replays a change that was prepared by its writer. Raises
        ``FormatRefused`` if what landed since forbids it, ``PrepareAgain`` if that cannot be told without
        I/O.
        """
        raise NotImplementedError

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,
    ) -> AppliedChange:
        """The table after the other side's changes: from ``base`` to ``source``, by intents, oldest first.

        ``intents`` is ``None`` if not all of the changes can be replayed. Asked for every managed key that a
        merge or transplant changes, also where only the source changed it.
        """
        if table.content == base:
            return AppliedChange(source)
        if source is None or not intents or (table.content is None and base is not None):
            raise FormatRefused("was changed on both sides")
        applied = AppliedChange(table.content)
        for intent in intents:
            change = Change(table.key, self.name, intent)
            read = make_object_reader(table.read, applied.blobs)
            step = self.apply(
                msgspec.structs.replace(table, content=applied.content, read=read), change, None
            )
            applied = AppliedChange(step.content, {**applied.blobs, **step.blobs})
        return applied

    def check_read(self, table: Table, before: AnyContent, parts: Sequence[str] | None) -> None:  # noqa: ARG002
        """``FormatRefused`` if what a transaction has read of a table, when it was so, may be different now.

        ``parts`` are those that it has read, in this format's own words; ``None`` if it was all of it. Asked
        at the same two moments as ``merge``, of a table that is the same but has another state.
        """
        raise FormatRefused(
            READ_AND_CHANGED,
            expected=self.describe_state(before),
            found=self.describe_state(table.content or before),
        )

    def describe_state(self, content: AnyContent) -> str:  # noqa: ARG002
        """A state of a table, for people, where two states of it differ; nothing if it cannot be said."""
        return ""

    def is_beyond_difference(self, intents: Sequence[bytes] | None) -> bool:  # noqa: ARG002
        """Whether intents ask for more than the difference of the states that they led from and to.

        A merge that leaves them out remembers it then, or the next one would carry them out. And it merges a
        table whose state is the same on the source, if its intents ask for more.
        """
        return False

    def restore(self, table: Table, after: AnyContent | None) -> AppliedChange:  # noqa: ARG002
        """The table brought back to a wanted state: by a restore, revert, forced merge or given content."""
        return AppliedChange(after)

    def restore_version(self, table: Table, version: int) -> AppliedChange:  # noqa: ARG002
        """The table brought back to an earlier version of its own.

        Raises as ``merge``, and ``VersionNotFound`` if it has no such version, or not any more.
        """
        raise FormatRefused("has no version numbers of its own; restore it to a commit or to a time")

    def summarize_change(
        self,
        table: Table,  # noqa: ARG002
        before: AnyContent | None,  # noqa: ARG002
        after: AnyContent | None,  # noqa: ARG002
    ) -> ChangeSummary | None:
        """What lies between two states of a table, in versions, files, rows and bytes; for a preview.

        Table storage may be read, and nothing is written. ``after`` may name kernel objects that are not
        stored: ``table`` reads them. A format that cannot tell answers ``None``.
        """
        return None

    def missing_files(
        self,
        table: Table,  # noqa: ARG002
        before: AnyContent | None,  # noqa: ARG002
        after: AnyContent,  # noqa: ARG002
    ) -> Sequence[str]:
        """Of the files that ``after`` needs and ``before`` does not have, those that storage has no more.

        Asked before a table is restored, where table storage may be read.
        """
        return ()

    def revert(
        self,
        table: Table,  # noqa: ARG002
        committed: AnyContent | None,  # noqa: ARG002
        previous: AnyContent | None,  # noqa: ARG002
        since: LaterCommitLookup,  # noqa: ARG002
    ) -> AppliedChange | None:
        """The table without a change that made ``committed`` of ``previous``, where others came later.

        ``since`` is what they did and intended. ``None`` if it cannot be told, which is a conflict, unless
        the table is still ``committed``: then it becomes ``previous``.
        """
        return None

    def check_direct_change(self, table: Table, content: AnyContent | None) -> None:
        """Allow a raw ``Put`` or ``Delete`` of a managed table, or raise ``FormatRefused``.

        ``PrepareAgain`` at the turn of a ``Delete`` that depends on table storage: it is asked once more
        where that may be read.
        """

    def after_commit(
        self, key: Key, content: AnyContent | None, commit: ObjectId, *, branch: str, is_default: bool
    ) -> None:
        """A table is so on a branch now: publish what follows from it.

        Told of every managed key that a commit, merge, transplant, revert or rebase changed, with no content
        where it is gone.
        """

    def lacks_version(self, content: AnyContent, first_version: int, *, keeps_younger: bool = False) -> bool:  # noqa: ARG002
        """Whether a table as a content has it lacks a version: then it is from before an erase which said
        that the history of the table begins there. A format whose tables can be erased must say it.

        ``keeps_younger`` tells that the erase was one up to a moment: the version was there before it.
        """
        return False

    def cut_content(self, content: AnyContent, first_version: int) -> AnyContent:  # noqa: ARG002
        """A table as it is read and retained where its history begins with a version that it has: without
        what the content holds of earlier ones."""
        return content

    def drop_erased(self, table: Table, content: AnyContent) -> AnyContent:
        """What is retained of a table that is about to be written to.

        ``HistoryExpired`` for a branch that has the table as it was before an erase: what is written there
        would go on from a state that is not retained, and would not be retained either.
        """
        if table.is_default or content.id is None or self.find_horizon is None:
            return content
        horizon = self.find_horizon(content.id)
        if horizon is None or horizon.first < 0:
            return content
        if self.lacks_version(content, horizon.first, keeps_younger=horizon.keeps_younger):
            raise horizon.expired_error()
        return self.cut_content(content, horizon.first)

    def explain_forbidden_move(self, before: AnyContent | None, after: AnyContent | None) -> str | None:  # noqa: ARG002
        """Why the default branch may not be moved so that a table jumps from one state to another, if so.

        The reason continues a sentence that begins with the table's name.
        """
        return None


def make_object_reader(
    read: Callable[[ObjectId], bytes], blobs: Mapping[ObjectId, bytes]
) -> Callable[[ObjectId], bytes]:
    """Reads kernel objects, also some that are not stored yet."""

    def read_both(object_id: ObjectId) -> bytes:
        if object_id not in blobs:
            return read(object_id)
        blob: Blob = decode_object(blobs[object_id])
        return blob.data

    return read_both


class Formats:
    """The formats that a kernel knows, and the branch whose tables they publish."""

    def __init__(self, formats: Sequence[Format] = (), default_branch: str = "main") -> None:
        self._by_name = {format_.name: format_ for format_ in formats}
        self.all = tuple(self._by_name.values())
        self.find_others: Callable[[], Sequence[Format]] | None = None
        """Finds the formats of other packages. It is asked once, for the first change or table that is of no
        format that is known."""
        self.describe_unknown: Callable[[str], PenstockError] = InvalidRequest
        """What is said where a format is needed that is not there."""
        self._finding = RLock()
        self._find_horizon: Callable[[UUID], TableHorizon | None] | None = None
        self.default_branch = default_branch
        self.horizons: Callable[[], TableHorizons] | None = None
        """Reads the horizons of tables that were erased. A kernel sets it."""
        self._known_horizons: tuple[int, TableHorizons] | None = None
        self._horizon_looks = 0

    def __bool__(self) -> bool:
        return bool(self.all)

    def is_default(self, branch: str) -> bool:
        return branch == self.default_branch

    def find_horizons_by(self, find: Callable[[UUID], TableHorizon | None]) -> None:
        """Tell every format how to look up from where on the history of a table exists."""
        self._find_horizon = find
        for format_ in self.all:
            format_.find_horizon = find

    def horizons_at_turn(self) -> TableHorizons | None:
        """The horizons as they are at the turn of a branch other than the default one.

        They are read once, and again after ``forget_horizons``. An erase commits to every branch that has the
        table, after it has changed a horizon: a branch that is still as this process left it has none of
        these commits, and what lands there now lands before the erase looks at the branch.
        """
        if self.horizons is None:
            return None
        look, known_horizons = self._horizon_looks, self._known_horizons
        if known_horizons is None or known_horizons[0] != look:
            self._known_horizons = known_horizons = look, self.horizons()
        return known_horizons[1]

    def forget_horizons(self) -> None:
        """Read the horizons anew at the next turn: a branch was moved by another process, or this one has
        changed a horizon."""
        self._horizon_looks += 1

    def find_format(self, name: str) -> Format | None:
        if name not in self._by_name:
            self._add_others()
        return self._by_name.get(name)

    def unknown_format_error(self, name: str, key: Key) -> PenstockError:
        """What is said of a change that names a format which is not there."""
        return self.describe_unknown(f"'{key}' cannot be changed: there is no format '{name}'")

    def find_managing_format(self, *contents: AnyContent | None) -> Format | None:
        """The format that manages the first of some contents that any does."""
        for content in contents if self.all else ():
            if content is not None:
                for format_ in self.all:
                    if format_.manages(content):
                        return format_
        is_foreign = any(isinstance(content, Unknown) and content.type_name for content in contents)
        return self.find_managing_format(*contents) if is_foreign and self._add_others() else None

    def _add_others(self) -> bool:
        """Whether formats of other packages have come to be known by this."""
        with self._finding:
            find, self.find_others = self.find_others, None
            for format_ in () if find is None else find():
                format_.find_horizon = self._find_horizon
                self._by_name.setdefault(format_.name, format_)
            count, self.all = len(self.all), tuple(self._by_name.values())
            return len(self.all) > count
