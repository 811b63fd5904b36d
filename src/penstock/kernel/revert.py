"""Revert: undoing what one commit did, where others may have come after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from penstock.errors import InvalidRequest, MergeConflict
from penstock.kernel.bring import (
    Bringing,
    BringRequest,
    Intents,
    Meeting,
    MergeOptions,
    asked_of,
    changes_between,
    gather_intents,
)
from penstock.kernel.chain import Chain, Draft
from penstock.kernel.conflict import compare, content_of
from penstock.kernel.edit import Edit
from penstock.kernel.format import Format, Formats, LaterCommit, PrepareAgain, Refused, Since
from penstock.kernel.history import History
from penstock.kernel.landing import Landing
from penstock.kernel.request import NextBatch
from penstock.kernel.state import Difference, state_of
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId, encode, object_id
from penstock.model.keys import Key
from penstock.model.merges import MergedKey
from penstock.model.objects import CommitObject, Intent
from penstock.model.references import Event, Reference


class RevertRequest(BringRequest):
    """Undo what one commit did, by a new commit."""

    event = Event.COMMIT
    needs_preparation = True

    def __init__(
        self,
        history: History,
        formats: Formats,
        commit: ObjectId,
        meta: CommitMeta,
        key: str,
        options: MergeOptions,
        if_head: ObjectId | None = None,
    ) -> None:
        super().__init__(history, formats, meta, key, options, if_head)
        self._commit = commit
        self._undo: Difference | None = None
        self._later = _Later(commit, {})

    @property
    def wish(self) -> bytes:
        return object_id(
            encode(("revert", self._commit, self.if_head, self._meta.message, self._options.wish()))
        )

    def prepare(self, reference: Reference) -> None:
        self._require_in(reference, reference.head)
        managed = self._managed(self._changes())
        if managed and not self.may_read:
            view = state_of(self._history.objects, self._history.commit(reference.head))
            edit = self._edit(self._history.objects, view, reference, may_read=True)
            with suppress(PrepareAgain):
                self._reverting(edit, reference.head).bring(managed, {})

    def apply(self, chain: Chain, reference: Reference) -> list[Draft]:
        self._require_in(reference, chain.tip)
        edit = self._edit(chain.objects, chain.view, reference, self.may_read)
        reverting = self._reverting(edit, None if chain.has_drafts else chain.tip)
        reverting.bring(self._changes(), {})
        reverting.finish()
        self.results = list(reverting.results.values())
        if edit.conflicts:
            raise MergeConflict(edit.conflicts, what="cannot revert")
        if not edit.changed:
            return []
        self._landing = Landing(self._formats, reference.name)
        self._landing.add(edit.tables)
        return [edit.draft(self._meta, self.key)]

    def _require_in(self, reference: Reference, head: ObjectId) -> None:
        if not self._history.is_ancestor(self._commit, head):
            raise InvalidRequest(
                f"commit {self._commit.hex()[:8]} is not in the history of '{reference.name}'"
            )

    def _changes(self) -> Difference:
        """What undoes the commit."""
        if self._undo is None:
            commit = self._history.commit(self._commit)
            self._undo = changes_between(self._history, commit, self._history.commit(commit.parent))
        return self._undo

    def _reverting(self, edit: Edit, head: ObjectId | None) -> _Reverting:
        return _Reverting(edit, self._formats, self._options, lambda key: self._since(head, key))

    def _since(self, head: ObjectId | None, key: bytes) -> Since:
        """What was done to a key between the commit and a head of the branch."""
        own: Intents = {}
        gather_intents(self._history, self._history.commit(self._commit), own)
        asked = self._asked(key, own.get(key, []))
        return Since(lambda: self._later_commits(head, key), tuple(asked or ()))

    def _later_commits(self, head: ObjectId | None, key: bytes) -> list[LaterCommit]:
        if head is None:
            raise NextBatch  # what came since depends on commits that have no id yet
        if self._later.head != head:
            self._later = self._look_since(head)
        return self._later.commits.get(key, [])

    def _look_since(self, head: ObjectId) -> _Later:
        """Look at the commits that are new since the last look; at all of them if the branch was moved."""
        known, history = self._later, self._history
        if not history.is_on_line(known.head, head):
            known = _Later(self._commit, {})
        for one, commit in history.only_in(head, known.head):
            intents: Intents = {}
            if commit.intents:
                gather_intents(history, commit, intents)
            is_merge = bool(commit.further_parents)
            if intents or is_merge:
                is_beside = not history.is_ancestor(self._commit, one)
                keys = self._changes().keys()
                for key in keys if is_merge else intents.keys() & keys:
                    later = self._later_commit(one, commit, key, intents.get(key, []), is_beside)
                    known.commits.setdefault(key, []).append(later)
        return known._replace(head=head)

    def _later_commit(
        self, one: ObjectId, commit: CommitObject, key: bytes, intents: list[Intent], is_beside: bool
    ) -> LaterCommit:
        parents = [self._history.link(parent) for parent in commit.parents]
        # Of one that has expired, it is not known what it did.
        asked = self._asked(key, intents) if None not in parents else None
        after, *before = (self._content_at(each, key) for each in (commit, *parents) if each is not None)
        met: list[AnyContent | None] = []
        if commit.further_parents and not is_beside and None not in parents:
            builds = [self._history.is_ancestor(self._commit, parent) for parent in commit.parents]
            met = [content for content, is_built in zip(before, builds, strict=True) if not is_built]
        author = commit.authors[0] if commit.authors else commit.committer
        named = one.hex(), author, commit.message
        return LaterCommit(
            tuple(before), after, None if asked is None else tuple(asked), is_beside, tuple(met), *named
        )

    def _asked(self, key: bytes, intents: list[Intent]) -> list[bytes] | None:
        """Of intents for a key, those for the table that is reverted there."""
        objects, (was, wanted) = self._history.objects, self._changes()[key]
        managing = self._formats.managing(*(content_of(objects, side) for side in (wanted, was)))
        return asked_of(managing, intents) if managing is not None else None

    def _content_at(self, commit: CommitObject, key: bytes) -> AnyContent | None:
        objects = self._history.objects
        return content_of(objects, state_of(objects, commit).get(key))


class _Later(NamedTuple):
    """The commits that came after one which is to be undone, up to a head of the branch, by key."""

    head: ObjectId
    commits: dict[bytes, list[LaterCommit]]


class _Reverting(Bringing):
    """A managed table is not replayed but restored, if nothing came after or its format knows how."""

    def __init__(
        self, edit: Edit, formats: Formats, options: MergeOptions, since: Callable[[bytes], Since]
    ) -> None:
        super().__init__(edit, formats, options)
        self._since = since

    def bring(self, changes: Difference, *args: Any, **kwargs: Any) -> None:
        """A table that the commit renamed gets its old name back as it is now, with all that came since."""
        for new, old in self._renamed(changes).items():
            now = self._edit.view.get(new)
            content = self._content(now)
            self._edit.put_value(new, None)
            self._edit.put_value(old, now)
            for stored, before, after in ((new, content, None), (old, None, content)):
                key = Key.decode(stored)
                self.results[key] = MergedKey(key=key, before=before, after=after)
            changes = {key: one for key, one in changes.items() if key not in (new, old)}
        super().bring(changes, *args, **kwargs)

    def _renamed(self, changes: Difference) -> dict[bytes, bytes]:
        """The new keys of tables that the commit only renamed and that are still there, with the old ones."""
        gone = {value: key for key, (was, value) in changes.items() if was is None and value is not None}
        found: dict[bytes, bytes] = {}
        for key, (was, wanted) in changes.items():
            if was is None or wanted is not None or was not in gone:
                continue
            names = key, gone[was]
            is_managed = self._formats.managing(self._content(was)) is not None
            is_normal = not any(Key.decode(one) in self._options.keys for one in names)
            is_free = self._edit.view.get(gone[was]) is None
            if is_managed and is_normal and is_free and self._is_one_table(was, self._edit.view.get(key)):
                found[key] = gone[was]
        return found

    def finish(self) -> None:
        """A namespace that the commit made stays if others have put something there since."""
        for key in self._edit.keep_filled_namespaces():
            if (known := self.results.get(key)) is not None:
                self.results[key] = msgspec.structs.replace(known, after=known.before)
        super().finish()

    def _merge_managed(self, managing: Format, meeting: Meeting) -> None:
        paths = self._options.of(meeting.key).paths
        is_as_it_was = meeting.was == meeting.now and not paths
        if is_as_it_was and not managing.repeats_states:
            self._restore(meeting, self._content(meeting.wanted))
            return
        was, wanted, now = map(self._content, (meeting.was, meeting.wanted, meeting.now))
        table = self._edit.table(meeting.key, now, wanted)._replace(paths=paths)
        try:
            self._refuse_erased(was, wanted)
            applied = managing.revert(table, was, wanted, self._since(meeting.stored))
        except Refused as refused:
            self._edit.refuse(meeting.key, refused)
            return
        if applied is None and is_as_it_was:
            self._restore(meeting, wanted)
            return
        if applied is None:
            self._edit.conflicts.append(compare(meeting.key, was, now))
            return
        self._edit.put_applied(meeting.stored, applied)
        self._edit.add_opaque(meeting.stored, managing)
