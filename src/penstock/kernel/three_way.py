"""Bringing a difference between two commits onto a third: what merge, transplant, revert and restore share.

All ask the same question per key: what was it where the difference starts (*was*), what should it
become (*wanted*), and what is it on the target *now*? Where only one side changed it the answer is plain.
Where both did, the table's format replays what the other side intended, or it is a conflict.

The formats of managed tables are asked twice. Before the queue they are asked on the head as it is then: what
they answer does not count, but what they read from table storage is noted for the turn, where they may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import msgspec

from penstock.errors import InvalidRequest, MergeConflict
from penstock.kernel.chain import CommitDraft
from penstock.kernel.edit import Edit, EditContext, LandingNotice, describe_difference
from penstock.kernel.format import (
    DRY_RUN,
    AppliedChange,
    CrissCrossHistory,
    Format,
    FormatRefused,
    Formats,
    LaterCommitLookup,
    PrepareAgain,
)
from penstock.kernel.history import History
from penstock.kernel.lake_state import Difference, StateView, diff_commits, find_prefix_end, open_state
from penstock.kernel.ledger import encode_ledger_key, find_table
from penstock.kernel.objects import Objects, read_content
from penstock.kernel.request import Request, RequestTerms
from penstock.kernel.transaction_reads import TransactionReads
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict
from penstock.model.content import AnyContent, Namespace, encode_content
from penstock.model.encoding import ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.merges import ChangeSummary, KeyMerge, MergedKey, MergeMode
from penstock.model.objects import CommitObject, Intent, Value
from penstock.model.references import Reference

if TYPE_CHECKING:
    from penstock.kernel.table_horizons import TableHorizons

MISSING_SHOWN: Final = 3
"""How many files that are gone are named."""
_NORMAL: Final = KeyMerge()
_ONE_VALUE: Final = "to resolve this, set them to the same values on both sides, and repeat the merge"
_ONE_SIDE: Final = (
    "to take all properties of one side, use the mode 'force' (the source's) or 'drop' (the target's)"
)
Intents = dict[bytes, list[Intent]]
"""Per key all that formats were asked to do to it, oldest first."""


class MergeOptions(NamedTuple):
    """How to merge: for single keys, and for all others."""

    keys: Mapping[Key, KeyMerge] = {}
    default: MergeMode = MergeMode.NORMAL
    is_snapshot: bool = False
    """Whether a key that both sides changed is a conflict, whatever its format could make of that."""
    reads: TransactionReads | None = None
    """What the source has read, if it is a transaction: that must be so still on the target."""

    def check(self) -> MergeOptions:
        """Return ``self`` if it can be carried out."""
        self.fingerprint()
        for key, how in self.keys.items():
            if how.paths and (how.mode is not MergeMode.NORMAL or how.content is not None):
                raise InvalidRequest(
                    f"'{key}' has a merge mode for the whole table and others for its paths; give one or the "
                    "other"
                )
        return self

    def get_key_merge(self, key: Key) -> KeyMerge:
        key_merge = self.keys.get(key)
        if key_merge is not None:
            return key_merge
        return _NORMAL if self.default is MergeMode.NORMAL else KeyMerge(mode=self.default)

    def fingerprint(self) -> list[object]:
        """The options in a form that can be hashed."""
        keys = sorted((key.encode(), _fingerprint_key_merge(how)) for key, how in self.keys.items())
        return [
            self.default.value,
            keys,
            *(["snapshot"] if self.is_snapshot else []),
            *self._reads_fingerprint(),
        ]

    def _reads_fingerprint(self) -> list[object]:
        if self.reads is None:
            return []
        base, isolation, entries = self.reads
        return ["reads", base, isolation.value, sorted(entries.items())]


def _fingerprint_key_merge(how: KeyMerge) -> list[object]:
    contents = [
        None if content is None else encode_content(content) for content in (how.content, how.expected)
    ]
    paths = [sorted((path, mode.value) for path, mode in how.paths.items())] if how.paths else []
    return [how.mode.value, *contents, how.expect_absent, *paths]


class ThreeWayTerms(RequestTerms, frozen=True, kw_only=True):
    """The terms of a request that brings differences."""

    is_dry_run: bool = False
    """Whether nothing is to be written: the request is never queued."""
    may_read: bool = False
    """Whether formats may read table storage when it is applied; not at a turn in the queue."""
    notes: dict[Any, Any] | None = None
    """What formats noted of an earlier try, for this one to go by, and to add to."""


class ThreeWayRequest(Request):
    """A request that brings differences: what it goes by, and what comes of it."""

    is_repeated: bool = False
    """Whether it brings commits one by one, each without what came before it."""
    brings_undone: bool = False
    """Whether what the branch had of them and has undone comes again."""

    def __init__(
        self,
        history: History,
        formats: Formats,
        meta: CommitMeta,
        options: MergeOptions,
        terms: ThreeWayTerms,
    ) -> None:
        super().__init__(meta.authors[0] if meta.authors else meta.committer, terms)
        self._history, self._formats = history, formats
        self._meta, self._options = meta.check(), options.check()
        self.is_dry_run, self.may_read = terms.is_dry_run, terms.may_read or terms.is_dry_run
        self.notes = {} if terms.notes is None else terms.notes
        if terms.is_dry_run:
            self.notes[DRY_RUN] = True
        self.results: list[MergedKey] = []
        self._landing: LandingNotice | None = None

    def _begin_edit(
        self,
        objects: Objects,
        below: StateView,
        reference: Reference,
        may_read: bool,
        earlier: Mapping[ObjectId, bytes] = MappingProxyType({}),
    ) -> Edit:
        occasion = EditContext(reference, self.notes, may_read, self.is_repeated, self.brings_undone)
        return Edit(objects, below, self._formats, occasion, earlier)

    def _select_managed_changes(self, changes: Difference) -> Difference:
        """Those that a format has to decide about."""
        if not self._formats:
            return {}
        objects, managing = self._history.objects, self._formats.find_managing_format
        return {
            stored: (before, after)
            for stored, (before, after) in changes.items()
            if managing(read_content(objects, before if after is None else after)) is not None
        }

    def _make_commit_drafts(
        self, edit: Edit, applied: ThreeWayApply, reference: Reference, subject: str
    ) -> list[CommitDraft]:
        """The commit of what was applied, if it changes anything. ``MergeConflict`` if something is in the
        way; ``subject`` says of what."""
        applied.finish_keys()
        self.results = list(applied.results.values())
        if edit.conflicts:
            raise MergeConflict(edit.conflicts, subject=subject)
        return [self._make_draft(edit, reference)] if edit.has_changes else []

    def _make_draft(
        self, edit: Edit, reference: Reference, parents: tuple[ObjectId, ...] = ()
    ) -> CommitDraft:
        """A commit, and what formats are to be told once it has landed."""
        self._landing = LandingNotice(self._formats, reference.name)
        self._landing.add_tables(edit.tables)
        return edit.make_draft(self._meta, self.key, parents)

    def after_commit(self, commits: list[ObjectId]) -> None:
        if self._landing is not None:
            self._landing.notify_formats(commits)


class KeySides(NamedTuple):
    """Two sides at one key: where they parted, what the source wants, what the target has."""

    key: Key
    stored: bytes
    was: Value | None
    wanted: Value | None
    now: Value | None
    intents: list[Intent] | None
    """The source's; ``None`` if not all of them are known."""
    is_ambiguous: bool
    """The common ancestors do not agree on where the sides parted."""
    criss_cross: CrissCrossIntents | None = None
    bases: tuple[Value | None, ...] = ()
    """What the key holds in each of several common ancestors; of a managed table, only where it is."""


class CrissCrossIntents(NamedTuple):
    """What becomes ``CrissCrossHistory`` for the format of the table that is merged."""

    earlier: list[Intent]
    target: list[Intent]

    def select_format(self, managing: Format) -> CrissCrossHistory:
        earlier = tuple(intent.data for intent in self.earlier if intent.format == managing.name)
        target = intents_of_format(managing, self.target)
        return CrissCrossHistory(earlier, None if target is None else tuple(target))


class RenamedKey(NamedTuple):
    """What is to be known of a key that is new on the source, but whose table is not.

    It counts where the target has the same table there: then both sides renamed it alike.
    """

    was: Value
    """The table where the sides parted, at its old key."""
    intents: list[Intent] | None


class ThreeWayApply:
    """Brings a difference, key by key, into an edit on the target."""

    def __init__(
        self,
        edit: Edit,
        formats: Formats,
        options: MergeOptions,
        since: Callable[[bytes], LaterCommitLookup] | None = None,
        own: Callable[[bytes], LaterCommitLookup] | None = None,
        theirs: Callable[[bytes], LaterCommitLookup] | None = None,
    ) -> None:
        """``since`` tells what was done to a key after the commit that is brought, if the target has it;
        ``own`` what the target did to it that the source does not have, ``theirs`` the reverse."""
        self._edit, self._formats = edit, formats
        self._options, self._since, self._own, self._theirs = options, since, own, theirs
        self._horizons: TableHorizons | None = None
        self.results: dict[Key, MergedKey] = {}

    def apply_difference(
        self,
        changes: Difference,
        intents: Intents,
        ambiguous: frozenset[bytes] = frozenset(),
        criss_cross: Mapping[bytes, CrissCrossIntents] = MappingProxyType({}),
        renamed: Mapping[bytes, RenamedKey] = MappingProxyType({}),
        bases: Mapping[bytes, tuple[Value | None, ...]] = MappingProxyType({}),
    ) -> None:
        """Bring every key of a difference; conflicts are collected in the edit."""
        for stored, (before, after) in changes.items():
            now = self._edit.view.get(stored)
            replayed: list[Intent] | None = intents.get(stored, [])
            if stored in renamed and self._is_one_table(after, now):
                before, replayed = renamed[stored]
            sides = stored, before, after, now, replayed, stored in ambiguous
            self._apply_key(
                KeySides(Key.decode(stored), *sides, criss_cross.get(stored), bases.get(stored, ()))
            )

    def _apply_key(self, key_sides: KeySides) -> None:
        conflicts_before = len(self._edit.conflicts)
        how = self._options.get_key_merge(key_sides.key)
        self._decide_key(key_sides, how)
        before, after = self._decode_content(key_sides.now), self._edit.find_content(key_sides.stored)
        conflicts = tuple(self._edit.conflicts[conflicts_before:])
        self.results[key_sides.key] = MergedKey(
            key=key_sides.key,
            mode=how.mode,
            before=before,
            after=after,
            conflicts=conflicts,
            change=None if conflicts else self.summarize_change(key_sides.key, before, after),
        )

    def _decide_key(self, key_sides: KeySides, how: KeyMerge) -> None:
        """Decide what a key becomes."""
        if not self._is_as_expected(key_sides, how):
            pass
        elif how.mode is MergeMode.DROP:
            self._leave_key(key_sides)
        elif how.content is not None:
            self._put_given_content(key_sides, how.content)
        elif self._options.is_snapshot and self._is_criss_cross(key_sides):
            self._edit.conflicts.append(self._describe_crossing(key_sides))
        elif key_sides.now == key_sides.wanted:
            pass
        elif how.mode is MergeMode.FORCE:
            self._restore_key(key_sides, self._decode_content(key_sides.wanted))
        else:
            self._merge_key(key_sides)

    def summarize_change(
        self, key: Key, before: AnyContent | None, after: AnyContent | None
    ) -> ChangeSummary | None:
        """What changes of a managed table, for a dry run."""
        managing = self._formats.find_managing_format(after, before)
        if managing is None or before == after or not self._edit.is_dry_run:
            return None
        return managing.summarize_change(self._edit.open_table(key, after), before, after)

    def _is_criss_cross(self, key_sides: KeySides) -> bool:
        """Whether the target changed a key too since the sides parted.

        Namespaces are no data: where both sides have one, they meet as in any merge.
        """
        if key_sides.now == key_sides.was and not key_sides.is_ambiguous:
            return False
        return not all(
            isinstance(self._decode_content(value), Namespace) for value in (key_sides.wanted, key_sides.now)
        )

    def _describe_crossing(self, key_sides: KeySides) -> Conflict:
        """That both sides changed a key, and what its states are, if its format can tell them apart."""
        before, now = map(self._decode_content, (key_sides.was, key_sides.now))
        conflict, managing = (
            describe_difference(key_sides.key, before, now),
            self._formats.find_managing_format(before, now),
        )
        if managing is None or before is None or now is None or not (message := managing.describe_state(now)):
            return conflict
        reason = (
            "was changed on both sides; repeat the change, or make it in a transaction with the policy "
            "'rebase'"
        )
        return msgspec.structs.replace(
            conflict, expected=managing.describe_state(before), found=message, why=reason
        )

    def _leave_key(self, key_sides: KeySides) -> None:
        """Leave a key as it is, and remember that if its format says so."""
        managing = self._formats.find_managing_format(self._decode_content(key_sides.now))
        if managing is None:
            return
        if managing.is_beyond_difference(intents_of_format(managing, key_sides.intents)):
            self._edit.add_opaque(key_sides.stored, managing)

    def _put_given_content(self, key_sides: KeySides, given_content: AnyContent) -> None:
        """Bring a key into a state that the request gives, if it may.

        A managed table takes one of the states that are known of it. Any other one is a raw put, which its
        format has to admit.
        """
        sides = [self._decode_content(value) for value in (key_sides.was, key_sides.wanted, key_sides.now)]
        self._edit.check_object_owner(key_sides.key, given_content, *sides)
        for side in sides if given_content.id is not None else ():
            if side is not None and given_content.id == side.id and given_content.type != side.type:
                self._edit.conflicts.append(describe_difference(key_sides.key, given_content, side))
                return
        managing = self._formats.find_managing_format(given_content, sides[-1])
        if managing is not None and given_content not in sides:
            try:
                managing.check_direct_change(
                    self._edit.open_table(key_sides.key, sides[-1], given_content), given_content
                )
            except FormatRefused as refused:
                self._edit.refuse_key(key_sides.key, refused)
                return
        self._restore_key(key_sides, given_content)

    def _decode_content(self, value: Value | None) -> AnyContent | None:
        return self._edit.decode_value(value)

    def _is_one_table(self, value: Value | None, other: Value | None) -> bool:
        mine, yours = self._decode_content(value), self._decode_content(other)
        return mine is not None and yours is not None and mine.id == yours.id

    def _is_as_expected(self, key_sides: KeySides, how: KeyMerge) -> bool:
        if how.expected is None and not how.expect_absent:
            return True
        content = self._decode_content(key_sides.now)
        if content == how.expected:
            return True
        self._edit.conflicts.append(describe_difference(key_sides.key, how.expected, content))
        return False

    def _merge_key(self, key_sides: KeySides) -> None:
        base, source, target = map(self._decode_content, (key_sides.was, key_sides.wanted, key_sides.now))
        managing = self._formats.find_managing_format(source or target or base)
        if self._options.get_key_merge(key_sides.key).paths and (managing is None or not managing.has_paths):
            raise InvalidRequest(f"'{key_sides.key}' is not a table of files, so it has no paths to merge")
        if self._is_replaced(key_sides):
            self._replace_table(key_sides)
        elif managing is not None and (managing.takes_any_base or not key_sides.is_ambiguous):
            self._merge_managed(managing, key_sides)
        elif key_sides.now == key_sides.was and not key_sides.is_ambiguous:
            self._edit.put_value(key_sides.stored, key_sides.wanted)
        elif isinstance(source, Namespace) and isinstance(target, Namespace):
            self._merge_namespaces(key_sides, source, target)
        else:
            self._edit.conflicts.append(describe_difference(key_sides.key, base, target))

    def _merge_namespaces(self, key_sides: KeySides, source: Namespace, target: Namespace) -> None:
        """Both sides have a namespace: the target's, with the properties that only the source changed."""
        bases = [key_sides.was] if not key_sides.is_ambiguous else list(key_sides.bases or (None,))
        before = [_get_properties(self._decode_content(base)) for base in bases]
        properties, clashes = merge_properties(before, source.properties, target.properties)
        if not clashes:
            self._edit.put_content(key_sides.stored, msgspec.structs.replace(target, properties=properties))
            return
        conflict = describe_difference(key_sides.key, self._decode_content(bases[0]), target)
        names = ", ".join(f"'{name}'" for name in clashes)
        self._edit.conflicts.append(
            msgspec.structs.replace(
                conflict,
                expected=_describe_properties(before[0], clashes),
                found=_describe_properties(target.properties, clashes),
                why=f"has properties that were changed on both sides: {names}; {_ONE_VALUE}; {_ONE_SIDE}",
            )
        )

    def _is_replaced(self, key_sides: KeySides) -> bool:
        """Whether the source has another table where both had one that the target has not changed since."""
        if (
            key_sides.was is None
            or key_sides.wanted is None
            or key_sides.now != key_sides.was
            or key_sides.is_ambiguous
        ):
            return False
        is_managed = self._formats.find_managing_format(self._decode_content(key_sides.was)) is not None
        return is_managed and not self._is_one_table(key_sides.was, key_sides.wanted)

    def _replace_table(self, key_sides: KeySides) -> None:
        """Let the table go that both had, and then the source's come to the key that is free."""
        conflicts_before = len(self._edit.conflicts)
        for gone_or_come in (key_sides._replace(wanted=None), key_sides._replace(was=None, now=None)):
            if len(self._edit.conflicts) == conflicts_before:
                self._merge_key(gone_or_come)

    def _merge_managed(self, managing: Format, key_sides: KeySides) -> None:
        """The table's format decides how the two sides meet."""
        base, source, target = map(self._decode_content, (key_sides.was, key_sides.wanted, key_sides.now))
        is_other = source is not None and target is not None and source.id != target.id
        table = msgspec.structs.replace(
            self._edit.open_table(key_sides.key, target, source),
            paths=self._options.get_key_merge(key_sides.key).paths,
            criss_cross=key_sides.criss_cross.select_format(managing)
            if key_sides.criss_cross is not None
            else None,
            is_strange=is_other and source is not None and self._edit.is_strange(source.id),
            bases=tuple(
                content for content in map(self._decode_content, key_sides.bases) if content is not None
            ),
            since=None if self._since is None else self._since(key_sides.stored),
            own=None if self._own is None else self._own(key_sides.stored),
            theirs=None if self._theirs is None else self._theirs(key_sides.stored),
        )
        try:
            self._refuse_erased(source)
            states = self._drop_erased(base), self._drop_erased(source)
            applied = managing.merge(table, *states, intents_of_format(managing, key_sides.intents))
        except FormatRefused as refused:
            self._edit.refuse_key(key_sides.key, refused)
            return
        self._edit.put_applied(key_sides.stored, applied)
        if self._since is not None:
            self._check_returning(key_sides)
        if applied.is_opaque:
            self._edit.add_opaque(key_sides.stored, managing)
        elif applied.intent is not None:
            self._edit.add_intent(key_sides.stored, managing.name, applied.intent)

    def _restore_key(self, key_sides: KeySides, after: AnyContent | None) -> None:
        """Bring a key into a given state, by its format if it has one."""
        target = self._decode_content(key_sides.now)
        managing = self._formats.find_managing_format(after, target)
        if managing is None:
            # A content keeps its type: one of another type without an id is another content.
            is_same = target is not None and after is not None and target.type == after.type
            self._edit.put_content(
                key_sides.stored, after, target.id if is_same and target is not None else None
            )
            return
        table = self._edit.open_table(key_sides.key, target, after)

        def restore_table() -> AppliedChange:
            self._refuse_erased(after)
            return managing.restore(table, self._drop_erased(after))

        self._put_restored(key_sides, managing, restore_table)

    def _put_restored(
        self, key_sides: KeySides, managing: Format, restore: Callable[[], AppliedChange]
    ) -> None:
        """Let a key hold the state that a format restores, or note why it refuses to."""
        try:
            applied = restore()
        except FormatRefused as refused:
            self._edit.refuse_key(key_sides.key, refused)
        else:
            self._edit.put_applied(key_sides.stored, applied)
            self._edit.add_opaque(key_sides.stored, managing)

    def _check_files(self, key_sides: KeySides, *contents: object) -> None:
        """Refuse a state whose data files are gone: nobody could read it.

        Storage is asked where it may be; at the turn it is known, or the request is prepared again.
        """
        before, after = self._decode_content(key_sides.now), self._edit.find_content(key_sides.stored)
        managing = self._formats.find_managing_format(after)
        if managing is None or after is None or before == after:
            return
        note = "missing files", key_sides.stored, key_sides.was, key_sides.wanted, *contents
        if note not in self._edit.notes:
            if not self._edit.may_read:
                raise PrepareAgain
            table = self._edit.open_table(key_sides.key, after)
            self._edit.notes[note] = tuple(managing.missing_files(table, before, after))
        if missing := self._edit.notes[note]:
            more = f" and {len(missing) - MISSING_SHOWN} more" if len(missing) > MISSING_SHOWN else ""
            message = (
                f"{len(missing)} of its data files are gone from storage"
                f" ({', '.join(missing[:MISSING_SHOWN])}{more}), as after a VACUUM by another engine"
            )
            self._edit.refuse_key(
                key_sides.key, FormatRefused(self._explain_missing_files(managing, key_sides, message))
            )

    def _explain_missing_files(self, managing: Format, key_sides: KeySides, missing: str) -> str:  # noqa: ARG002
        """Why a state cannot be, some of whose files are gone."""
        return (
            f"cannot be reverted: {missing}; put the files back, or leave the table as it is with the mode "
            "'drop'"
        )

    def _check_returning(self, key_sides: KeySides) -> None:
        """The same for a table of which some files come back. One that comes back as a whole, after it was
        dropped, is not gone through; nor one whose files nobody but the lake removes."""
        after = self._edit.view.get(key_sides.stored)
        managing = self._formats.find_managing_format(self._decode_content(after))
        if managing is not None and managing.may_lose_files and self._is_one_table(key_sides.now, after):
            self._check_files(key_sides)

    def _refuse_erased(self, *contents: AnyContent | None, version: int | None = None) -> None:
        """``FormatRefused`` if a state of a table is to be brought back that was erased, or is about to be;
        or an earlier version of it.

        At its turn, horizons are read after whatever an erase has committed: it sets them before.
        """
        if self._horizons is None and self._formats.horizons is not None:
            self._horizons = self._formats.horizons()
        reason = self._horizons.explain_refusal(*contents, version=version) if self._horizons else None
        if reason is not None:
            raise FormatRefused(reason)

    def _drop_erased(self, content: AnyContent | None) -> AnyContent | None:
        """A state of a table without what was erased of it; one that was erased as a whole as it is."""
        if content is None or not self._horizons:
            return content
        return self._horizons.drop_erased(content) or content

    def finish_keys(self) -> None:
        """Check the result as a whole; refuse options for keys that were not part of it."""
        unused = [str(key) for key in self._options.keys if key not in self.results]
        if unused:
            raise InvalidRequest(
                f"a merge mode was given for {', '.join(unused)}, which this merge does not change"
            )
        conflicts_before = len(self._edit.conflicts)
        self._edit.check_result()
        for conflict in self._edit.conflicts[conflicts_before:]:
            result = self.results.get(conflict.key, MergedKey(key=conflict.key))
            conflicts = (*result.conflicts, conflict)
            self.results[conflict.key] = msgspec.structs.replace(result, conflicts=conflicts)


def find_changes_between(history: History, before: CommitObject, after: CommitObject) -> Difference:
    """What differs between two commits in keys of users; what the kernel keeps itself is not brought."""
    return diff_commits(history.objects, before, after, find_prefix_end(RESERVED) or b"")


def add_unseen(
    history: History, formats: Formats, changes: Difference, intents: Intents, after: CommitObject
) -> Difference:
    """A difference with the keys that are as they were, but of which more was asked than that.

    Such as an overwrite of files that another commit had brought: nothing differs, but nothing else was to
    be there.
    """
    view = open_state(history.objects, after)
    unseen: Difference = {}
    for key, requested in intents.items():
        if key in changes:
            continue
        value = view.get(key)
        managing = formats.find_managing_format(read_content(history.objects, value))
        own = intents_of_format(managing, requested) if managing is not None else None
        if managing is not None and own and managing.is_beyond_difference(own):
            unseen[key] = value, value
    return dict(sorted((changes | unseen).items())) if unseen else changes


def find_former_keys(
    history: History, formats: Formats, changes: Difference, before: CommitObject
) -> dict[bytes, tuple[Value, UUID]]:
    """The new keys of tables that were elsewhere before, with what these were there and their ids."""
    if not formats:
        return {}
    view, objects = open_state(history.objects, before), history.objects
    come = {
        stored: content.id
        for stored, (before, after) in changes.items()
        if before is None and (content := read_content(objects, after)) is not None
        if content.id is not None and formats.find_managing_format(content) is not None
    }
    known_values = view.get_many([encode_ledger_key(table_id) for table_id in come.values()]) if come else {}
    old_values: dict[bytes, tuple[Value, UUID]] = {}
    for stored, identity in come.items():
        if encode_ledger_key(identity) in known_values:
            key = find_table(lambda at: read_content(objects, view.get(at)), identity)
            value = None if key is None else view.get(key.encode())
            if value is not None:
                old_values[stored] = value, identity
    return old_values


def read_values_at_bases(
    history: History, formats: Formats, changes: Difference, bases: Sequence[ObjectId]
) -> dict[bytes, tuple[Value | None, ...]]:
    """What the managed tables that change are in each of some commits, under whatever key, where they are.

    And what the keys of namespaces that change hold in each of them.
    """
    objects, views = (
        history.objects,
        [open_state(history.objects, history.read_commit(base)) for base in bases],
    )
    values_by_key: dict[bytes, tuple[Value | None, ...]] = {}
    for stored, (_, after) in changes.items():
        content = read_content(objects, after)
        if isinstance(content, Namespace):
            values_by_key[stored] = tuple(view.get(stored) for view in views)
            continue
        if content is None or content.id is None or formats.find_managing_format(content) is None:
            continue
        values = [_find_table_value(objects, view, stored, content.id) for view in views]
        values_by_key[stored] = tuple(value for value in values if value is not None)
    return values_by_key


def _find_table_value(objects: Objects, view: StateView, stored: bytes, table: UUID) -> Value | None:
    """A table in a state: at a key, or at another one that it has there."""
    value = view.get(stored)
    if (content := read_content(objects, value)) is not None and content.id == table:
        return value
    key = find_table(lambda at: read_content(objects, view.get(at)), table)
    return None if key is None else view.get(key.encode())


def merge_properties(
    bases: Sequence[Mapping[str, str]], source: Mapping[str, str], target: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Merge two sides' properties; return the result, and the names that both changed, each otherwise.

    ``bases`` are the properties in the common ancestors. Where these do not agree on a property, it counts as
    changed on both sides.
    """
    merged, clashes = dict(target), []
    for name in sorted({*source, *target}.union(*bases)):
        before = {base.get(name) for base in bases}
        mine, yours = source.get(name), target.get(name)
        if mine == yours or before == {mine}:
            continue
        if before != {yours}:
            clashes.append(name)
        elif mine is None:
            del merged[name]
        else:
            merged[name] = mine
    return merged, clashes


def _get_properties(content: AnyContent | None) -> Mapping[str, str]:
    return content.properties if isinstance(content, Namespace) else {}


def _describe_properties(properties: Mapping[str, str], names: Sequence[str]) -> str:
    return ", ".join(f"{name}={properties[name]}" for name in names if name in properties)


def list_intents_between(history: History, source: ObjectId, target: ObjectId) -> Intents:
    """The intents of all commits that the source has and the target has not."""
    gathered: Intents = {}
    for _, commit in history.list_commits_only_in(source, target):
        gather_intents(history, commit, gathered)
    return gathered


def gather_intents(history: History, commit: CommitObject, gathered: Intents) -> None:
    for intent in history.objects.read_intents(commit):
        gathered.setdefault(intent.key, []).append(intent)


def intents_of_format(managing: Format, intents: Sequence[Intent] | None) -> list[bytes] | None:
    """What a format was asked to do to its table at a key; ``None`` where that cannot all be replayed.

    What another format was asked is about another table: one that was at the key before, or is there on the
    other side.
    """
    own = [intent for intent in intents if intent.format == managing.name] if intents is not None else None
    return None if own is None or any(intent.opaque for intent in own) else [intent.data for intent in own]
