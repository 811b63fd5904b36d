"""Merge, transplant and revert: bringing a difference between two commits onto a third.

All three ask the same question per key: what was it where the difference starts (*was*), what should it
become (*wanted*), and what is it on the target *now*? Where only one side changed it the answer is plain.
Where both did, the table's format replays what the other side intended, or it is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from penstock.errors import InvalidRequest, MergeConflict
from penstock.kernel.chain import Chain, Draft
from penstock.kernel.conflict import compare, content_of
from penstock.kernel.edit import Edit
from penstock.kernel.format import Format, Formats, Refused
from penstock.kernel.history import History
from penstock.kernel.request import NextBatch, Request
from penstock.kernel.state import Difference, Overlay, View, diff_commits, state_of
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict
from penstock.model.content import AnyContent, Namespace, encode_content
from penstock.model.encoding import ObjectId, encode, object_id
from penstock.model.keys import RESERVED, Key
from penstock.model.merges import KeyMerge, MergedKey, MergeMode
from penstock.model.objects import CommitObject, Value
from penstock.model.references import Event, Reference

_NORMAL: Final = KeyMerge()
Intents = dict[bytes, list[bytes] | None]
"""Per key the intents to replay, oldest first; ``None`` where not all of them can be."""


class MergeOptions(NamedTuple):
    """How to merge: for single keys, and for all others."""

    keys: Mapping[Key, KeyMerge] = {}
    default: MergeMode = MergeMode.NORMAL

    def check(self) -> MergeOptions:
        """Return ``self`` if it can be carried out."""
        self.wish()
        return self

    def of(self, key: Key) -> KeyMerge:
        found = self.keys.get(key)
        if found is not None:
            return found
        return _NORMAL if self.default is MergeMode.NORMAL else KeyMerge(mode=self.default)

    def wish(self) -> list[object]:
        """The options in a form that can be hashed."""
        keys = sorted((key.encode(), _key_wish(how)) for key, how in self.keys.items())
        return [self.default.value, keys]


def _key_wish(how: KeyMerge) -> list[object]:
    contents = [None if one is None else encode_content(one) for one in (how.content, how.expected)]
    return [how.mode.value, *contents, how.expect_absent]


class _Meeting(NamedTuple):
    """Two sides at one key: where they parted, what the source wants, what the target has."""

    key: Key
    stored: bytes
    was: Value | None
    wanted: Value | None
    now: Value | None
    intents: list[bytes] | None
    is_ambiguous: bool
    """The common ancestors do not agree on where the sides parted."""


class Bringing:
    """Brings a difference, key by key, into an edit on the target."""

    def __init__(self, edit: Edit, history: History, formats: Formats, options: MergeOptions) -> None:
        self._edit, self._objects, self._formats = edit, history.objects, formats
        self._options = options
        self.results: dict[Key, MergedKey] = {}

    def bring(self, changes: Difference, intents: Intents, ambiguous: frozenset[bytes] = frozenset()) -> None:
        """Bring every key of a difference; conflicts are collected in the edit."""
        for stored, (was, wanted) in changes.items():
            if stored.startswith(RESERVED):
                continue
            now = self._edit.view.get(stored)
            replayed = intents.get(stored, [])
            self._bring(_Meeting(Key.decode(stored), stored, was, wanted, now, replayed, stored in ambiguous))

    def _bring(self, meeting: _Meeting) -> None:
        met = len(self._edit.conflicts)
        how = self._options.of(meeting.key)
        if self._is_as_expected(meeting, how) and how.mode is not MergeMode.DROP:
            if how.content is not None:
                sides = map(self._content, (meeting.was, meeting.wanted, meeting.now))
                self._edit.check_held(meeting.key, how.content, *sides)
                self._restore(meeting, how.content)
            elif meeting.now == meeting.wanted:
                pass
            elif how.mode is MergeMode.FORCE:
                self._restore(meeting, self._content(meeting.wanted))
            else:
                self._merge(meeting)
        self.results[meeting.key] = MergedKey(
            key=meeting.key,
            mode=how.mode,
            before=self._content(meeting.now),
            after=self._edit.content(meeting.stored),
            conflicts=tuple(self._edit.conflicts[met:]),
        )

    def _content(self, value: Value | None) -> AnyContent | None:
        return content_of(self._objects, value)

    def _is_as_expected(self, meeting: _Meeting, how: KeyMerge) -> bool:
        if how.expected is None and not how.expect_absent:
            return True
        found = self._content(meeting.now)
        if found == how.expected:
            return True
        self._edit.conflicts.append(compare(meeting.key, how.expected, found))
        return False

    def _merge(self, meeting: _Meeting) -> None:
        base, source, target = map(self._content, (meeting.was, meeting.wanted, meeting.now))
        managing = self._formats.managing(source or target or base)
        if managing is not None and not meeting.is_ambiguous:
            self._merge_managed(managing, meeting)
        elif meeting.now == meeting.was and not meeting.is_ambiguous:
            self._edit.put_value(meeting.stored, meeting.wanted)
        elif isinstance(source, Namespace) and isinstance(target, Namespace):
            self._edit.put(meeting.stored, _merge_namespaces(base, source, target))
        else:
            self._edit.conflicts.append(compare(meeting.key, base, target))

    def _merge_managed(self, managing: Format, meeting: _Meeting) -> None:
        """The table's format decides how the two sides meet."""
        base, source, target = map(self._content, (meeting.was, meeting.wanted, meeting.now))
        try:
            applied = managing.merge(self._edit.table(meeting.key, target), base, source, meeting.intents)
        except Refused as refused:
            self._edit.refuse(meeting.key, refused)
        else:
            self._edit.put_applied(meeting.stored, applied)

    def _restore(self, meeting: _Meeting, wanted: AnyContent | None) -> None:
        """Bring a key into a given state, by its format if it has one."""
        target = self._content(meeting.now)
        managing = self._formats.managing(wanted or target)
        if managing is None:
            identity = target.id if target is not None else None
            self._edit.put(meeting.stored, wanted, identity)
            return
        try:
            applied = managing.restore(self._edit.table(meeting.key, target), wanted)
        except Refused as refused:
            self._edit.refuse(meeting.key, refused)
        else:
            self._edit.put_applied(meeting.stored, applied)
            self._edit.add_opaque(meeting.stored, managing)

    def finish(self) -> None:
        """Check the result as a whole; refuse options for keys that were not part of it."""
        unused = [str(key) for key in self._options.keys if key not in self.results]
        if unused:
            raise InvalidRequest(f"nothing to merge at {', '.join(unused)}, but a way to merge it was given")
        met = len(self._edit.conflicts)
        self._edit.check_namespaces()
        for conflict in self._edit.conflicts[met:]:
            known = self.results.get(conflict.key, MergedKey(key=conflict.key))
            conflicts = (*known.conflicts, conflict)
            self.results[conflict.key] = msgspec.structs.replace(known, conflicts=conflicts)


def _merge_namespaces(base: AnyContent | None, source: Namespace, target: Namespace) -> Namespace:
    """Both sides have a namespace: the target's, with the properties that the source changed."""
    before = base.properties if isinstance(base, Namespace) else {}
    changed = {name: value for name, value in source.properties.items() if before.get(name) != value}
    gone = {name for name in before if name not in source.properties}
    kept = {name: value for name, value in target.properties.items() if name not in gone}
    return msgspec.structs.replace(target, properties={**kept, **changed})


class MergeRequest(Request):
    """Bring what a commit has and the branch has not, and record it as a parent."""

    event = Event.MERGE
    needs_preparation = True

    def __init__(
        self,
        history: History,
        formats: Formats,
        source: ObjectId,
        meta: CommitMeta,
        key: str,
        options: MergeOptions,
        expected_head: ObjectId | None = None,
    ) -> None:
        self._history, self._formats, self._source = history, formats, source
        self._meta, self.key, self._options = meta.check(), key, options.check()
        self.expected_head = expected_head
        self.author = meta.authors[0] if meta.authors else meta.committer
        self._plan: _Plan | None = None
        self.results: list[MergedKey] = []
        self.base: ObjectId | None = None

    @cached_property
    def digest(self) -> bytes:
        return object_id(
            encode(("merge", self._source, self.expected_head, self._meta.message, self._options.wish()))
        )

    def prepare(self, reference: Reference) -> None:
        self._plan = _plan(self._history, self._source, reference.head)

    def apply(self, chain: Chain, reference: Reference) -> list[Draft]:  # noqa: ARG002
        if chain.has_merge_drafts:
            raise NextBatch  # the common ancestor depends on a merge that has no id yet
        if self._plan is None or not self._plan.holds_at(chain):
            self._plan = _plan(self._history, self._source, chain.tip)
        plan = self._plan
        self.base = plan.base
        if plan.changes is None:
            self.results = []
            return []
        parents = {parent.encode() for key in plan.changes for parent in Key.decode(key).parents}
        chain.view.get_many(parents | plan.changes.keys())  # with one request a level
        edit = Edit(chain.objects, chain.view, self._formats)
        bringing = Bringing(edit, self._history, self._formats, self._options)
        bringing.bring(plan.changes, plan.intents, plan.ambiguous)
        bringing.finish()
        self.results = list(bringing.results.values())
        if edit.conflicts:
            raise MergeConflict(edit.conflicts)
        return [edit.draft(self._meta, self.key, (self._source,))]


class _Plan(NamedTuple):
    """What a merge has to bring, worked out against one head of the target."""

    head: ObjectId
    merges: int
    base: ObjectId
    changes: Difference | None
    """``None`` if the target has everything already."""
    intents: Intents
    ambiguous: frozenset[bytes]

    def holds_at(self, chain: Chain) -> bool:
        """Whether the plan still fits: the branch only grew since, and nothing was merged into it."""
        if chain.tip == self.head:
            return True
        return chain.contains(self.head) and chain.commit.merges == self.merges


def _plan(history: History, source: ObjectId, head: ObjectId) -> _Plan:
    commit, target = history.commit(source), history.commit(head)
    bases = history.merge_bases(head, source)
    if source in bases:
        return _Plan(head, target.merges, source, None, {}, frozenset())
    changes, ambiguous = _changes_since(history, bases, commit)
    return _Plan(head, target.merges, bases[0], changes, _intents_between(history, source, head), ambiguous)


def _changes_since(
    history: History, bases: Sequence[ObjectId], source: CommitObject
) -> tuple[Difference, frozenset[bytes]]:
    """What the source changed since the common ancestors, and the keys on which these do not agree.

    Several common ancestors exist where merges crossed. Each key's base is then what a merge of them would
    make of it; where that would be a conflict, the key is ambiguous and only equal sides merge.
    """
    objects = history.objects
    changes = diff_commits(objects, history.commit(bases[0]), source)
    if len(bases) == 1:
        return changes, frozenset()
    ambiguous: set[bytes] = set()
    virtual: dict[bytes, Value | None] = {}
    for other in bases[1:]:
        root = history.merge_bases(bases[0], other)[0]
        first, second = history.commit(bases[0]), history.commit(other)
        origin = state_of(objects, history.commit(root))
        for key, (mine, theirs) in diff_commits(objects, first, second).items():
            before = virtual.get(key, mine)
            was = origin.get(key)
            virtual[key] = theirs if before == was else before
            if was not in (before, theirs):
                ambiguous.add(key)
    state = state_of(objects, source)
    for key, was in virtual.items():
        wanted = state.get(key)
        if key in ambiguous or was != wanted:
            changes[key] = (was, wanted)
        else:
            changes.pop(key, None)
    return dict(sorted(changes.items())), frozenset(ambiguous)


def _intents_between(history: History, source: ObjectId, target: ObjectId) -> Intents:
    """The intents of all commits that the source has and the target has not."""
    gathered: Intents = {}
    for _, commit in history.only_in(source, target):
        _gather(history, commit, gathered)
    return gathered


def _gather(history: History, commit: CommitObject, gathered: Intents) -> None:
    for intent in history.objects.intents(commit):
        known = gathered.setdefault(intent.key, [])
        if intent.opaque:
            gathered[intent.key] = None
        elif known is not None:
            known.append(intent.data)


class TransplantRequest(Request):
    """Bring commits one by one, each as a commit of its own, landed by one swap."""

    event = Event.TRANSPLANT

    def __init__(
        self,
        history: History,
        formats: Formats,
        commits: Sequence[ObjectId],
        meta: CommitMeta,
        key: str,
        options: MergeOptions,
        expected_head: ObjectId | None = None,
        has: Callable[[ObjectId], bool] | None = None,
    ) -> None:
        """``has`` tells which commits the target has; merges of these are not brought again."""
        self._history, self._formats, self._commits = history, formats, tuple(commits)
        self._has = has
        self._meta, self.key, self._options = meta.check(), key, options.check()
        self.expected_head = expected_head
        self.author = meta.authors[0] if meta.authors else meta.committer
        self.results: list[MergedKey] = []
        _check_contiguous(history, self._commits)
        if meta.message and len(self._commits) > 1:
            raise InvalidRequest("a message can only be given for a single commit; others keep their own")

    @cached_property
    def digest(self) -> bytes:
        return object_id(
            encode(
                ("transplant", self._commits, self.expected_head, self._meta.message, self._options.wish())
            )
        )

    def apply(self, chain: Chain, reference: Reference) -> list[Draft]:  # noqa: ARG002
        below: View = chain.view
        drafts: list[Draft] = []
        results: dict[Key, MergedKey] = {}
        conflicts: list[Conflict] = []
        for one in self._commits:
            commit = self._history.commit(one)
            changes = self._changes(commit)
            edit = Edit(chain.objects, below, self._formats)
            self._bring(edit, commit, changes, results)
            if edit.conflicts:
                conflicts += edit.conflicts
                # What follows is judged as if this commit had landed: one conflict makes up no others.
                below = Overlay(edit.view, {key: wanted for key, (_, wanted) in changes.items()})
            elif edit.changed:
                self._keep_intents(edit, commit)
                drafts.append(edit.draft(self._describe(commit), self.key))
                below = edit.view
        self.results = list(results.values())
        unused = [str(key) for key in self._options.keys if key not in results]
        if unused:
            raise InvalidRequest(
                f"nothing to transplant at {', '.join(unused)}, but a way to do it was given"
            )
        if conflicts:
            raise MergeConflict(conflicts)
        return drafts

    def _bring(
        self, edit: Edit, commit: CommitObject, changes: Difference, results: dict[Key, MergedKey]
    ) -> None:
        """Bring one commit's changes; a key that several commits change has one result."""
        touched = {Key.decode(key) for key in changes if not key.startswith(RESERVED)}
        keys = {key: how for key, how in self._options.keys.items() if key in touched}
        bringing = Bringing(edit, self._history, self._formats, self._options._replace(keys=keys))
        bringing.bring(changes, self._intents(commit))
        bringing.finish()
        for key, result in bringing.results.items():
            if (known := results.get(key)) is not None:
                result = msgspec.structs.replace(
                    result, before=known.before, conflicts=known.conflicts + result.conflicts
                )
            results[key] = result

    def _changes(self, commit: CommitObject) -> Difference:
        """What a commit did. Of a merge of what the target has, only what it did besides."""
        changes = diff_commits(self._history.objects, self._history.commit(commit.parent), commit)
        for further in commit.further_parents:
            if self._has is not None and self._has(further):
                merged = state_of(self._history.objects, self._history.commit(further))
                theirs = merged.get_many(list(changes))
                changes = {
                    key: (theirs.get(key), wanted)
                    for key, (_, wanted) in changes.items()
                    if theirs.get(key) != wanted
                }
        return changes

    def _intents(self, commit: CommitObject) -> Intents:
        gathered: Intents = {}
        for further in commit.further_parents:
            gathered |= _intents_between(self._history, further, commit.parent)
        _gather(self._history, commit, gathered)
        return gathered

    def _keep_intents(self, edit: Edit, commit: CommitObject) -> None:
        """The new commit is no descendant of the old one, so it carries its intents itself."""
        for key, intents in self._intents(commit).items():
            managing = self._formats.managing(edit.content(key))
            if managing is None:
                continue
            if intents is None:
                edit.add_opaque(key, managing)
            for intent in intents or ():
                edit.add_intent(key, managing.name, intent)

    def _describe(self, commit: CommitObject) -> CommitMeta:
        return CommitMeta(
            message=self._meta.message or commit.message,
            authors=commit.authors,
            author_time_us=commit.author_time_us,
            signed_off_by=commit.signed_off_by,
            properties=commit.properties,
            committer=self._meta.committer or commit.committer,
        )


def _check_contiguous(history: History, commits: tuple[ObjectId, ...]) -> None:
    if not commits:
        raise InvalidRequest("no commits to transplant are given")
    before: ObjectId | None = None
    for one in commits:
        parent = history.commit(one).parent
        if before is not None and parent != before:
            raise InvalidRequest(
                f"the commits to transplant are not one after the other: {one.hex()[:8]} does not follow "
                f"{before.hex()[:8]}; give them oldest first"
            )
        before = one


class RevertRequest(Request):
    """Undo what one commit did, by a new commit."""

    event = Event.COMMIT

    def __init__(
        self,
        history: History,
        formats: Formats,
        commit: ObjectId,
        meta: CommitMeta,
        key: str,
        options: MergeOptions,
        expected_head: ObjectId | None = None,
    ) -> None:
        self._history, self._formats, self._commit = history, formats, commit
        self._meta, self.key, self._options = meta.check(), key, options.check()
        self.expected_head = expected_head
        self.author = meta.authors[0] if meta.authors else meta.committer
        self.results: list[MergedKey] = []

    @cached_property
    def digest(self) -> bytes:
        return object_id(
            encode(("revert", self._commit, self.expected_head, self._meta.message, self._options.wish()))
        )

    def apply(self, chain: Chain, reference: Reference) -> list[Draft]:
        commit = self._history.commit(self._commit)
        if not self._history.is_ancestor(self._commit, chain.tip):
            raise InvalidRequest(
                f"commit {self._commit.hex()[:8]} is not in the history of '{reference.name}'"
            )
        undo = diff_commits(self._history.objects, commit, self._history.commit(commit.parent))
        edit = Edit(chain.objects, chain.view, self._formats)
        reverting = _Reverting(edit, self._history, self._formats, self._options)
        reverting.bring(undo, {})
        reverting.finish()
        self.results = list(reverting.results.values())
        if edit.conflicts:
            raise MergeConflict(edit.conflicts)
        return [edit.draft(self._meta, self.key)] if edit.changed else []


class _Reverting(Bringing):
    """A managed table is not replayed but restored, if nothing came after."""

    def _merge_managed(self, managing: Format, meeting: _Meeting) -> None:  # noqa: ARG002
        if meeting.was == meeting.now:
            self._restore(meeting, self._content(meeting.wanted))
        else:
            was, now = self._content(meeting.was), self._content(meeting.now)
            self._edit.conflicts.append(compare(meeting.key, was, now))
