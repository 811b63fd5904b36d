"""Bringing a difference between two commits onto a third: what merge, transplant and revert share.

All three ask the same question per key: what was it where the difference starts (*was*), what should it
become (*wanted*), and what is it on the target *now*? Where only one side changed it the answer is plain.
Where both did, the table's format replays what the other side intended, or it is a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from penstock.errors import InvalidRequest
from penstock.kernel.conflict import compare, content_of
from penstock.kernel.edit import Edit
from penstock.kernel.format import Format, Formats, Refused
from penstock.kernel.history import History
from penstock.kernel.state import Difference
from penstock.model.content import AnyContent, Namespace, encode_content
from penstock.model.encoding import ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.merges import KeyMerge, MergedKey, MergeMode
from penstock.model.objects import CommitObject, Value

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


class Meeting(NamedTuple):
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
            self._bring(Meeting(Key.decode(stored), stored, was, wanted, now, replayed, stored in ambiguous))

    def _bring(self, meeting: Meeting) -> None:
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

    def _is_as_expected(self, meeting: Meeting, how: KeyMerge) -> bool:
        if how.expected is None and not how.expect_absent:
            return True
        found = self._content(meeting.now)
        if found == how.expected:
            return True
        self._edit.conflicts.append(compare(meeting.key, how.expected, found))
        return False

    def _merge(self, meeting: Meeting) -> None:
        base, source, target = map(self._content, (meeting.was, meeting.wanted, meeting.now))
        managing = self._formats.managing(source or target or base)
        if managing is not None and not meeting.is_ambiguous:
            self._merge_managed(managing, meeting)
        elif meeting.now == meeting.was and not meeting.is_ambiguous:
            self._edit.put_value(meeting.stored, meeting.wanted)
        elif isinstance(source, Namespace) and isinstance(target, Namespace):
            before = None if meeting.is_ambiguous else base  # or it would depend on which ancestor came first
            self._edit.put(meeting.stored, _merge_namespaces(before, source, target))
        else:
            self._edit.conflicts.append(compare(meeting.key, base, target))

    def _merge_managed(self, managing: Format, meeting: Meeting) -> None:
        """The table's format decides how the two sides meet."""
        base, source, target = map(self._content, (meeting.was, meeting.wanted, meeting.now))
        try:
            applied = managing.merge(self._edit.table(meeting.key, target), base, source, meeting.intents)
        except Refused as refused:
            self._edit.refuse(meeting.key, refused)
        else:
            self._edit.put_applied(meeting.stored, applied)

    def _restore(self, meeting: Meeting, wanted: AnyContent | None) -> None:
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


def intents_between(history: History, source: ObjectId, target: ObjectId) -> Intents:
    """The intents of all commits that the source has and the target has not."""
    gathered: Intents = {}
    for _, commit in history.only_in(source, target):
        gather_intents(history, commit, gathered)
    return gathered


def gather_intents(history: History, commit: CommitObject, gathered: Intents) -> None:
    for intent in history.objects.intents(commit):
        known = gathered.setdefault(intent.key, [])
        if intent.opaque:
            gathered[intent.key] = None
        elif known is not None:
            known.append(intent.data)
