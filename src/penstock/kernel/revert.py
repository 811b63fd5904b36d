"""Revert: undoing what one commit did, where others may have come after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from penstock.errors import InvalidRequest, MergeConflict
from penstock.kernel.bring import (
    Bringing,
    BringRequest,
    Intents,
    Meeting,
    MergeOptions,
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
from penstock.model.objects import CommitObject
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
            raise MergeConflict(edit.conflicts)
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
        if head is None:
            raise NextBatch  # what came since depends on commits that have no id yet
        if self._later.head != head:
            self._later = self._look_since(head)
        own: Intents = {}
        gather_intents(self._history, self._history.commit(self._commit), own)
        return Since(tuple(self._later.commits.get(key, ())), tuple(own.get(key) or ()))

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
                    later = self._later_commit(commit, key, intents.get(key, []), is_beside)
                    known.commits.setdefault(key, []).append(later)
        return known._replace(head=head)

    def _later_commit(
        self, commit: CommitObject, key: bytes, intents: list[bytes] | None, is_beside: bool
    ) -> LaterCommit:
        parents = [self._history.link(one) for one in commit.parents]
        if None in parents:  # it has expired, and with it what the commit did
            intents = None
        after, *before = (self._content_at(one, key) for one in (commit, *parents) if one is not None)
        met: list[AnyContent | None] = []
        if commit.further_parents and not is_beside and None not in parents:
            builds = [self._history.is_ancestor(self._commit, one) for one in commit.parents]
            met = [content for content, is_built in zip(before, builds, strict=True) if not is_built]
        asked = None if intents is None else tuple(intents)
        return LaterCommit(tuple(before), after, asked, is_beside, tuple(met))

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

    def _merge_managed(self, managing: Format, meeting: Meeting) -> None:
        paths = self._options.of(meeting.key).paths
        is_as_it_was = meeting.was == meeting.now and not paths
        if is_as_it_was and not managing.repeats_states:
            self._restore(meeting, self._content(meeting.wanted))
            return
        was, wanted, now = map(self._content, (meeting.was, meeting.wanted, meeting.now))
        table = self._edit.table(meeting.key, now, wanted)._replace(paths=paths)
        try:
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
