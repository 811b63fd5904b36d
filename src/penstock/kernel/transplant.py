"""Transplant and revert: repeating commits on another branch, and undoing one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from penstock.errors import InvalidRequest, MergeConflict
from penstock.kernel.bring import (
    Bringing,
    BringRequest,
    Intents,
    Meeting,
    MergeOptions,
    changes_between,
    gather_intents,
    intents_between,
)
from penstock.kernel.chain import Chain, Draft
from penstock.kernel.conflict import compare
from penstock.kernel.edit import Edit
from penstock.kernel.format import Format, Formats, PrepareAgain, Refused
from penstock.kernel.history import History
from penstock.kernel.landing import Landing
from penstock.kernel.objects import Objects
from penstock.kernel.state import Difference, Overlay, View, state_of
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict
from penstock.model.encoding import ObjectId, encode, object_id
from penstock.model.keys import Key
from penstock.model.merges import MergedKey
from penstock.model.objects import CommitObject, Value
from penstock.model.references import Event, Reference


class _Repeated(NamedTuple):
    """What comes of repeating commits."""

    drafts: list[Draft]
    results: dict[Key, MergedKey]
    conflicts: list[Conflict]
    landing: Landing


class TransplantRequest(BringRequest):
    """Bring commits one by one, each as a commit of its own, landed by one swap."""

    event = Event.TRANSPLANT
    is_repeated = True

    def __init__(
        self,
        history: History,
        formats: Formats,
        commits: Sequence[ObjectId],
        meta: CommitMeta,
        key: str,
        options: MergeOptions,
        if_head: ObjectId | None = None,
        has: Callable[[ObjectId], bool] | None = None,
    ) -> None:
        """``has`` tells which commits the target has; merges of these are not brought again."""
        super().__init__(history, formats, meta, key, options, if_head)
        self._commits, self._has = tuple(commits), has
        self.needs_preparation = bool(formats)
        self._differences: dict[ObjectId, Difference] = {}
        """What each commit did, once it was looked up."""
        _check_contiguous(history, self._commits)
        if meta.message and len(self._commits) > 1:
            raise InvalidRequest("a message can only be given for a single commit; others keep their own")

    @property
    def wish(self) -> bytes:
        return object_id(
            encode(("transplant", self._commits, self.if_head, self._meta.message, self._options.wish()))
        )

    def prepare(self, reference: Reference) -> None:
        if self.may_read or not any(self._managed(self._changes(one)) for one in self._commits):
            return
        view = state_of(self._history.objects, self._history.commit(reference.head))
        with suppress(PrepareAgain):
            self._repeat(self._history.objects, view, reference, may_read=True)

    def apply(self, chain: Chain, reference: Reference) -> list[Draft]:
        repeated = self._repeat(chain.objects, chain.view, reference, may_read=self.may_read)
        self.results = list(repeated.results.values())
        unused = [str(key) for key in self._options.keys if key not in repeated.results]
        if unused:
            raise InvalidRequest(
                f"nothing to transplant at {', '.join(unused)}, but a way to do it was given"
            )
        if repeated.conflicts:
            raise MergeConflict(repeated.conflicts)
        self._landing = repeated.landing
        return repeated.drafts

    def _repeat(self, objects: Objects, view: View, reference: Reference, *, may_read: bool) -> _Repeated:
        landed: dict[bytes, Value | None] = {}
        blobs: dict[ObjectId, bytes] = {}
        below = Overlay(view, landed)
        repeated = _Repeated([], {}, [], Landing(self._formats, reference.name))
        for one in self._commits:
            commit, changes = self._history.commit(one), self._changes(one)
            edit = self._edit(objects, below, reference, may_read, blobs)
            self._bring(edit, commit, changes, repeated.results)
            if edit.conflicts:
                repeated.conflicts.extend(edit.conflicts)
                # What follows is judged as if this commit had landed: one conflict makes up no others.
                landed.update((key, wanted) for key, (_, wanted) in changes.items())
            elif edit.changed:
                self._keep_intents(edit, commit)
                repeated.drafts.append(edit.draft(self._describe(commit), self.key))
                repeated.landing.add(edit.tables)
                landed.update(repeated.drafts[-1].changes)
                blobs.update(repeated.drafts[-1].blobs)
        return repeated

    def _bring(
        self, edit: Edit, commit: CommitObject, changes: Difference, results: dict[Key, MergedKey]
    ) -> None:
        """Bring one commit's changes; a key that several commits change has one result."""
        touched = {Key.decode(key) for key in changes}
        keys = {key: how for key, how in self._options.keys.items() if key in touched}
        bringing = Bringing(edit, self._formats, self._options._replace(keys=keys))
        bringing.bring(changes, self._intents(commit))
        bringing.finish()
        for key, result in bringing.results.items():
            if (known := results.get(key)) is not None:
                result = msgspec.structs.replace(
                    result, before=known.before, conflicts=known.conflicts + result.conflicts
                )
            results[key] = result

    def _changes(self, one: ObjectId) -> Difference:
        """What a commit did. Of a merge of what the target has, only what it did besides."""
        if one not in self._differences:
            self._differences[one] = self._difference(self._history.commit(one))
        return self._differences[one]

    def _difference(self, commit: CommitObject) -> Difference:
        changes = changes_between(self._history, self._history.commit(commit.parent), commit)
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
            if self._has is None or not self._has(further):  # or they were carried out there already
                gathered |= intents_between(self._history, further, commit.parent)
        gather_intents(self._history, commit, gathered)
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
                self._reverting(edit).bring(managed, {})

    def apply(self, chain: Chain, reference: Reference) -> list[Draft]:
        self._require_in(reference, chain.tip)
        edit = self._edit(chain.objects, chain.view, reference, self.may_read)
        reverting = self._reverting(edit)
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

    def _reverting(self, edit: Edit) -> _Reverting:
        return _Reverting(edit, self._formats, self._options)


class _Reverting(Bringing):
    """A managed table is not replayed but restored, if nothing came after or its format knows how."""

    def _merge_managed(self, managing: Format, meeting: Meeting) -> None:
        paths = self._options.of(meeting.key).paths
        if meeting.was == meeting.now and not paths:
            self._restore(meeting, self._content(meeting.wanted))
            return
        was, wanted, now = map(self._content, (meeting.was, meeting.wanted, meeting.now))
        table = self._edit.table(meeting.key, now, wanted)._replace(paths=paths)
        try:
            applied = managing.revert(table, was, wanted)
        except Refused as refused:
            self._edit.refuse(meeting.key, refused)
            return
        if applied is None:
            self._edit.conflicts.append(compare(meeting.key, was, now))
            return
        self._edit.put_applied(meeting.stored, applied)
        self._edit.add_opaque(meeting.stored, managing)
