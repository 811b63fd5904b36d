"""Transplant: repeating commits on another branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from penstock.errors import CommitNotFound, InvalidRequest, MergeConflict
from penstock.kernel.bring import (
    Bringing,
    BringRequest,
    BringTerms,
    Intents,
    MergeOptions,
    Renamed,
    add_unseen,
    asked_of,
    changes_between,
    gather_intents,
    intents_between,
    old_places,
)
from penstock.kernel.chain import Chain, Draft
from penstock.kernel.conflict import content_of
from penstock.kernel.edit import Edit
from penstock.kernel.format import Formats, PrepareAgain, Since
from penstock.kernel.history import History
from penstock.kernel.landing import LandingNotice
from penstock.kernel.later_commits import LaterCommits
from penstock.kernel.merge import merge_plainly, plan_merge
from penstock.kernel.objects import Objects
from penstock.kernel.state import Difference, Overlay, View, differing, state_of
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
    landing: LandingNotice


class _Done(NamedTuple):
    """What a commit did."""

    changes: Difference
    intents: Intents
    unclear: frozenset[bytes] = frozenset()
    """Keys at which a merge was settled by somebody, so that it cannot be told on what else it rests."""
    renamed: Mapping[bytes, Value] = MappingProxyType({})
    """Keys of tables that it renamed, with what these were before."""


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
        options: MergeOptions,
        terms: BringTerms,
        onto: ObjectId | None = None,
    ) -> None:
        """``onto`` is a commit of the target; what it has is not brought again by merges of it."""
        super().__init__(history, formats, meta, options, terms)
        self._commits, self._onto = tuple(commits), onto
        self.needs_preparation = bool(formats)
        self._done: dict[ObjectId, _Done] = {}
        """What each commit did, once it was looked up."""
        self._later: dict[ObjectId, LaterCommits] = {}
        _check_contiguous(history, self._commits)
        if meta.message and len(self._commits) > 1:
            raise InvalidRequest("a message can only be given for a single commit; others keep their own")

    @property
    def wish(self) -> bytes:
        return object_id(
            encode(("transplant", self._commits, self.if_head, self._meta.message, self._options.wish()))
        )

    def prepare(self, reference: Reference) -> None:
        done = (self._did(one, reference).changes for one in self._commits)
        if self.may_read or not any(map(self._managed, done)):
            return
        view = state_of(self._history.objects, self._history.commit(reference.head))
        with suppress(PrepareAgain):
            self._repeat(self._history.objects, view, reference, reference.head, may_read=True)

    def apply(self, chain: Chain, reference: Reference) -> list[Draft]:
        head = None if chain.has_drafts else chain.tip
        repeated = self._repeat(chain.objects, chain.view, reference, head, may_read=self.may_read)
        self.results = list(repeated.results.values())
        unused = [str(key) for key in self._options.keys if key not in repeated.results]
        if unused:
            raise InvalidRequest(
                f"nothing to transplant at {', '.join(unused)}, but a way to do it was given"
            )
        if repeated.conflicts:
            what = "cannot transplant" if self._onto is None else "cannot rebase"
            raise MergeConflict(repeated.conflicts, what=what)
        self._landing = repeated.landing
        return repeated.drafts

    def _repeat(
        self, objects: Objects, view: View, reference: Reference, head: ObjectId | None, *, may_read: bool
    ) -> _Repeated:
        landed: dict[bytes, Value | None] = {}
        blobs: dict[ObjectId, bytes] = {}
        below = Overlay(view, landed)
        repeated = _Repeated([], {}, [], LandingNotice(self._formats, reference.name))
        for one in self._commits:
            commit, done = self._history.commit(one), self._did(one, reference)
            edit = self._edit(objects, below, reference, may_read, blobs)
            self._bring(edit, done, repeated.results, self._since(one, reference, head))
            if edit.conflicts:
                repeated.conflicts.extend(edit.conflicts)
                # What follows is judged as if this commit had landed: one conflict makes up no others.
                landed.update((key, wanted) for key, (_, wanted) in done.changes.items())
            elif edit.changed or self._changes_nothing(commit):
                self._keep_intents(edit, done.intents)
                repeated.drafts.append(edit.draft(self._describe(commit), self.key))
                repeated.landing.add(edit.tables)
                landed.update(repeated.drafts[-1].changes)
                blobs.update(repeated.drafts[-1].blobs)
        return repeated

    def _changes_nothing(self, commit: CommitObject) -> bool:
        """Whether a commit changed nothing where it was made, and so is all that its writer said of it.

        It is repeated, unlike one whose changes the target has already.
        """
        if commit.further_parents:
            return False
        changes = differing(self._history.objects, self._history.commit(commit.parent), commit)
        return next(iter(changes), None) is None

    def _since(
        self, one: ObjectId, reference: Reference, head: ObjectId | None
    ) -> Callable[[bytes], Since] | None:
        """What was done after a commit that the target has already; nothing if it has not."""
        if not self._formats or not self._history.is_ancestor(one, head or reference.head):
            return None
        later = self._later.setdefault(one, LaterCommits(self._history, self._formats, one))
        return lambda key: later.since(head, key)

    def _bring(
        self,
        edit: Edit,
        done: _Done,
        results: dict[Key, MergedKey],
        since: Callable[[bytes], Since] | None,
    ) -> None:
        """Bring one commit's changes; a key that several commits change has one result."""
        touched = {Key.decode(key) for key in done.changes}
        keys = {key: how for key, how in self._options.keys.items() if key in touched}
        bringing = Bringing(edit, self._formats, self._options._replace(keys=keys), since)
        renamed = {key: Renamed(was, done.intents.get(key, [])) for key, was in done.renamed.items()}
        bringing.bring(done.changes, done.intents, done.unclear, renamed=renamed)
        bringing.finish()
        for key, result in bringing.results.items():
            if (known := results.get(key)) is not None:
                conflicts = known.conflicts + result.conflicts
                change = None if conflicts else bringing.summarize(key, known.before, result.after)
                result = msgspec.structs.replace(
                    result, before=known.before, conflicts=conflicts, change=change
                )
            results[key] = result

    def _did(self, one: ObjectId, reference: Reference) -> _Done:
        """What a commit did. Of a merge of what the target has, only what it did besides."""
        if one not in self._done:
            commit = self._history.commit(one)
            parent = self._history.commit(commit.parent)
            changes, intents = changes_between(self._history, parent, commit), self._intents(commit)
            done = _Done(add_unseen(self._history, self._formats, changes, intents, commit), intents)
            for further in commit.further_parents:
                if self._knows(further):
                    done = self._besides(done, commit.parent, further, reference)
                elif any(self._knows(each) for each, _ in self._history.only_in(further, commit.parent)):
                    done = self._anew(done, commit.parent, further, reference)
            places = old_places(self._history, self._formats, done.changes, parent)
            renamed = {key: was for key, (was, _) in places.items()}
            self._done[one] = done._replace(renamed=renamed)
        return self._done[one]

    def _besides(self, done: _Done, parent: ObjectId, further: ObjectId, reference: Reference) -> _Done:
        """What a merge did besides bringing what its source has: what a plain one would not have.

        It is told by how the result differs from the source, which the target has. That is also all that
        the first parent did; if some of it came from commits that the target has too, and may have undone,
        then a table whose files the kernel knows is a conflict.
        """
        history = self._history
        plain = self._plain(parent, further, reference)
        theirs = state_of(history.objects, history.commit(further)).get_many(list(done.changes))
        changes = {
            key: (theirs.get(key), wanted)
            for key, (_, wanted) in done.changes.items()
            if theirs.get(key) != wanted and (key not in plain or plain[key] != wanted)
        }
        rests = any(self._knows(one) for one, _ in history.only_in(parent, further))
        return done._replace(changes=changes, unclear=self._unclear(changes) if rests else frozenset())

    def _anew(self, done: _Done, parent: ObjectId, further: ObjectId, reference: Reference) -> _Done:
        """What a merge did whose source has some commits of the target: a merge of that with the target.

        The target may have undone what it has of the source. Where that merge is not all, since somebody
        settled the first one, or an order would have to be found, a table whose files the kernel knows is a
        conflict.
        """
        assert self._onto is not None, "or nothing is known"
        history = self._history
        plain = self._plain(parent, further, reference)
        plan = plan_merge(history, self._formats, further, self._onto)
        is_apart = all(self._knows(one) for one in history.merge_bases(further, parent))
        changes, intents, left = dict(done.changes), dict(done.intents), dict(done.changes)
        for key, (_, wanted) in done.changes.items():
            is_plain = key in plain and plain[key] == wanted
            if is_plain and is_apart and key not in plan.ambiguous and key not in plan.crossed:
                del changes[key], left[key]
                intents.pop(key, None)
                if key in (plan.changes or {}):
                    changes[key] = (plan.changes or {})[key]
                    intents[key] = plan.intents.get(key, [])
        return done._replace(changes=changes, intents=intents, unclear=self._unclear(left))

    def _plain(self, parent: ObjectId, further: ObjectId, reference: Reference) -> dict[bytes, Value | None]:
        """What a plain merge gives; that nothing is known of it where the history before it has expired."""
        try:
            return merge_plainly(self._history, self._formats, reference, further, parent)
        except CommitNotFound:
            return {}

    def _unclear(self, changes: Difference) -> frozenset[bytes]:
        """Of some keys those of tables whose files the kernel knows."""
        objects, managing = self._history.objects, self._formats.managing
        return frozenset(
            key
            for key, (was, wanted) in changes.items()
            if (format_of := managing(content_of(objects, was if wanted is None else wanted))) is not None
            and format_of.merges_objects_only
        )

    def _knows(self, one: ObjectId) -> bool:
        """Whether the target has a commit, as far as that is told."""
        return self._onto is not None and self._history.is_ancestor(one, self._onto)

    def _intents(self, commit: CommitObject) -> Intents:
        gathered: Intents = {}
        for further in commit.further_parents:
            if not self._knows(further):  # or they were carried out there already
                gathered |= intents_between(self._history, further, commit.parent)
        gather_intents(self._history, commit, gathered)
        return gathered

    def _keep_intents(self, edit: Edit, gathered: Intents) -> None:
        """The new commit is no descendant of the old one, so it carries its intents itself."""
        for key, intents in gathered.items():
            managing = self._formats.managing(edit.content(key))
            if managing is None:
                continue
            asked = asked_of(managing, intents)
            if asked is None:
                edit.add_opaque(key, managing)
            for intent in asked or ():
                edit.add_intent(key, managing.name, intent)

    def _describe(self, commit: CommitObject) -> CommitMeta:
        return CommitMeta(
            message=self._meta.message or commit.message,
            authors=commit.authors,
            author_time_us=commit.author_time_us,
            is_dated=True,
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
