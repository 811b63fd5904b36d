"""Transplant: repeating commits on another branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from penstock.errors import CommitNotFound, InvalidRequest, MergeConflict
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.edit import Edit, LandingNotice
from penstock.kernel.format import Formats, LaterCommitLookup, PrepareAgain
from penstock.kernel.history import History
from penstock.kernel.lake_state import Difference, StateOverlay, StateView, iterate_differences, open_state
from penstock.kernel.later_commits import LaterCommits, OwnCommits
from penstock.kernel.merge import merge_plainly, plan_merge
from penstock.kernel.objects import Objects, read_content
from penstock.kernel.three_way import (
    Intents,
    MergeOptions,
    RenamedKey,
    ThreeWayApply,
    ThreeWayRequest,
    ThreeWayTerms,
    add_unseen,
    find_changes_between,
    find_former_keys,
    gather_intents,
    intents_of_format,
    list_intents_between,
)
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.keys import Key
from penstock.model.merges import MergedKey
from penstock.model.objects import CommitObject, Value
from penstock.model.references import Event, Reference


class _RepeatedCommits(NamedTuple):
    """What comes of repeating commits."""

    drafts: list[CommitDraft]
    results: dict[Key, MergedKey]
    conflicts: list[Conflict]
    landing: LandingNotice


class _CommitEffect(NamedTuple):
    """What a commit did."""

    changes: Difference
    intents: Intents
    unclear: frozenset[bytes] = frozenset()
    """Keys at which a merge was settled by somebody, so that it cannot be told on what else it rests."""
    renamed: Mapping[bytes, Value] = MappingProxyType({})
    """Keys of tables that it renamed, with what these were before."""


class TransplantRequest(ThreeWayRequest):
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
        terms: ThreeWayTerms,
        onto: ObjectId | None = None,
    ) -> None:
        """``onto`` is a commit of the target; what it has is not brought again by merges of it."""
        super().__init__(history, formats, meta, options, terms)
        self._commits, self._onto = tuple(commits), onto
        self.needs_preparation = bool(formats)
        self._done: dict[ObjectId, _CommitEffect] = {}
        """What each commit did, once it was looked up."""
        self._later: dict[ObjectId, LaterCommits] = {}
        _check_contiguous(history, self._commits)
        self._own = OwnCommits(history, formats, history.read_commit(self._commits[0]).parent)
        self.brings_undone = onto is None
        if meta.message and len(self._commits) > 1:
            raise InvalidRequest(
                "a message can only be given for a single commit; several commits keep their own messages"
            )

    @property
    def fingerprint(self) -> bytes:
        return hash_object(
            encode(
                ("transplant", self._commits, self.if_head, self._meta.message, self._options.fingerprint())
            )
        )

    def prepare(self, reference: Reference) -> None:
        changes = (self._find_effect(commit_id, reference).changes for commit_id in self._commits)
        if self.may_read or not any(map(self._select_managed_changes, changes)):
            return
        view = open_state(self._history.objects, self._history.read_commit(reference.head))
        with suppress(PrepareAgain):
            self._repeat_commits(self._history.objects, view, reference, reference.head, may_read=True)

    def draft_commits(self, chain: CommitChain, reference: Reference) -> list[CommitDraft]:
        head = None if chain.has_drafts else chain.tip
        repeated = self._repeat_commits(chain.objects, chain.view, reference, head, may_read=self.may_read)
        self.results = list(repeated.results.values())
        unused = [str(key) for key in self._options.keys if key not in repeated.results]
        if unused:
            raise InvalidRequest(
                f"a merge mode was given for {', '.join(unused)}, which this transplant does not change"
            )
        if repeated.conflicts:
            what = "cannot transplant" if self._onto is None else "cannot rebase"
            raise MergeConflict(repeated.conflicts, subject=what)
        self._landing = repeated.landing
        return repeated.drafts

    def _repeat_commits(
        self,
        objects: Objects,
        view: StateView,
        reference: Reference,
        head: ObjectId | None,
        *,
        may_read: bool,
    ) -> _RepeatedCommits:
        landed: dict[bytes, Value | None] = {}
        blobs: dict[ObjectId, bytes] = {}
        below = StateOverlay(view, landed)
        repeated = _RepeatedCommits([], {}, [], LandingNotice(self._formats, reference.name))
        for commit_id in self._commits:
            commit, change = self._history.read_commit(commit_id), self._find_effect(commit_id, reference)
            edit = self._begin_edit(objects, below, reference, may_read, blobs)
            self._apply_commit(
                edit, change, repeated.results, self._later_commits_since(commit_id, reference, head), head
            )
            if edit.conflicts:
                repeated.conflicts.extend(edit.conflicts)
                # What follows is judged as if this commit had landed: one conflict makes up no others.
                landed.update((key, after) for key, (_, after) in change.changes.items())
            elif edit.has_changes or self._changes_nothing(commit):
                self._keep_intents(edit, change.intents)
                repeated.drafts.append(edit.make_draft(self._describe_commit(commit), self.key))
                repeated.landing.add_tables(edit.tables)
                landed.update(repeated.drafts[-1].changes)
                blobs.update(repeated.drafts[-1].blobs)
        return repeated

    def _changes_nothing(self, commit: CommitObject) -> bool:
        """Whether a commit changed nothing where it was made, and so is all that its writer said of it.

        It is repeated, unlike one whose changes the target has already.
        """
        if commit.further_parents:
            return False
        changes = iterate_differences(self._history.objects, self._history.read_commit(commit.parent), commit)
        return next(iter(changes), None) is None

    def _later_commits_since(
        self, commit_id: ObjectId, reference: Reference, head: ObjectId | None
    ) -> Callable[[bytes], LaterCommitLookup] | None:
        """What was done after a commit that the target has already; nothing if it has not."""
        if not self._formats or not self._history.is_ancestor(commit_id, head or reference.head):
            return None
        later = self._later.setdefault(commit_id, LaterCommits(self._history, self._formats, commit_id))
        return lambda key: later.look_up_commits(head, key)

    def _apply_commit(
        self,
        edit: Edit,
        own_change: _CommitEffect,
        results: dict[Key, MergedKey],
        since: Callable[[bytes], LaterCommitLookup] | None,
        head: ObjectId | None,
    ) -> None:
        """Bring one commit's changes; a key that several commits change has one result."""
        touched = {Key.decode(key) for key in own_change.changes}
        keys = {key: how for key, how in self._options.keys.items() if key in touched}
        options, own = self._options._replace(keys=keys), self._own
        bringing = ThreeWayApply(
            edit, self._formats, options, since, own=lambda key: own.look_up_commits(head, key)
        )
        renamed = {
            key: RenamedKey(before, own_change.intents.get(key, []))
            for key, before in own_change.renamed.items()
        }
        bringing.apply_difference(own_change.changes, own_change.intents, own_change.unclear, renamed=renamed)
        bringing.finish_keys()
        for key, result in bringing.results.items():
            if (known_result := results.get(key)) is not None:
                conflicts = known_result.conflicts + result.conflicts
                change = (
                    None if conflicts else bringing.summarize_change(key, known_result.before, result.after)
                )
                result = msgspec.structs.replace(
                    result, before=known_result.before, conflicts=conflicts, change=change
                )
            results[key] = result

    def _find_effect(self, commit_id: ObjectId, reference: Reference) -> _CommitEffect:
        """What a commit did. Of a merge of what the target has, only what it did besides."""
        if commit_id not in self._done:
            commit = self._history.read_commit(commit_id)
            parent = self._history.read_commit(commit.parent)
            changes, intents = find_changes_between(self._history, parent, commit), self._read_intents(commit)
            change = _CommitEffect(
                add_unseen(self._history, self._formats, changes, intents, commit), intents
            )
            for further in commit.further_parents:
                if self._is_in_target(further):
                    change = self._effect_beside_merge(change, commit.parent, further, reference)
                elif any(
                    self._is_in_target(commit_id)
                    for commit_id, _ in self._history.list_commits_only_in(further, commit.parent)
                ):
                    change = self._merge_effect_on_target(change, commit.parent, further, reference)
            places = find_former_keys(self._history, self._formats, change.changes, parent)
            renamed = {key: before for key, (before, _) in places.items()}
            self._done[commit_id] = change._replace(renamed=renamed)
        return self._done[commit_id]

    def _effect_beside_merge(
        self, change: _CommitEffect, parent: ObjectId, further: ObjectId, reference: Reference
    ) -> _CommitEffect:
        """What a merge did besides bringing what its source has: what a plain one would not have.

        It is told by how the result differs from the source, which the target has. That is also all that
        the first parent did; if some of it came from commits that the target has too, and may have undone,
        then a table whose files the kernel knows is a conflict.
        """
        history = self._history
        plain = self._simulate_plain_merge(parent, further, reference)
        theirs = open_state(history.objects, history.read_commit(further)).get_many(list(change.changes))
        changes = {
            key: (theirs.get(key), after)
            for key, (_, after) in change.changes.items()
            if theirs.get(key) != after and (key not in plain or plain[key] != after)
        }
        rests = any(
            self._is_in_target(commit_id) for commit_id, _ in history.list_commits_only_in(parent, further)
        )
        return change._replace(
            changes=changes, unclear=self._tables_of_known_files(changes) if rests else frozenset()
        )

    def _merge_effect_on_target(
        self, change: _CommitEffect, parent: ObjectId, further: ObjectId, reference: Reference
    ) -> _CommitEffect:
        """What a merge did whose source has some commits of the target: a merge of that with the target.

        The target may have undone what it has of the source. Where that merge is not all, since somebody
        settled the first one, or an order would have to be found, a table whose files the kernel knows is a
        conflict.
        """
        assert self._onto is not None, "or nothing is known"
        history = self._history
        plain = self._simulate_plain_merge(parent, further, reference)
        plan = plan_merge(history, self._formats, further, self._onto)
        is_apart = all(self._is_in_target(base) for base in history.merge_bases(further, parent))
        changes, intents, remaining = dict(change.changes), dict(change.intents), dict(change.changes)
        for key, (_, after) in change.changes.items():
            is_plain = key in plain and plain[key] == after
            if is_plain and is_apart and key not in plan.ambiguous and key not in plan.criss_cross:
                del changes[key], remaining[key]
                intents.pop(key, None)
                if key in (plan.changes or {}):
                    changes[key] = (plan.changes or {})[key]
                    intents[key] = plan.intents.get(key, [])
        return change._replace(
            changes=changes, intents=intents, unclear=self._tables_of_known_files(remaining)
        )

    def _simulate_plain_merge(
        self, parent: ObjectId, further: ObjectId, reference: Reference
    ) -> dict[bytes, Value | None]:
        """What a plain merge gives; that nothing is known of it where the history before it has expired."""
        try:
            return merge_plainly(self._history, self._formats, reference, further, parent)
        except CommitNotFound:
            return {}

    def _tables_of_known_files(self, changes: Difference) -> frozenset[bytes]:
        """Of some keys those of tables whose files the kernel knows."""
        objects, managing = self._history.objects, self._formats.find_managing_format
        return frozenset(
            key
            for key, (before, after) in changes.items()
            if (format_of := managing(read_content(objects, before if after is None else after))) is not None
            and format_of.merges_objects_only
        )

    def _is_in_target(self, commit_id: ObjectId) -> bool:
        """Whether the target has a commit, as far as that is told."""
        return self._onto is not None and self._history.is_ancestor(commit_id, self._onto)

    def _read_intents(self, commit: CommitObject) -> Intents:
        gathered: Intents = {}
        for further in commit.further_parents:
            if not self._is_in_target(further):  # or they were carried out there already
                gathered |= list_intents_between(self._history, further, commit.parent)
        gather_intents(self._history, commit, gathered)
        return gathered

    def _keep_intents(self, edit: Edit, gathered: Intents) -> None:
        """The new commit is no descendant of the old one, so it carries its intents itself."""
        for key, intents in gathered.items():
            managing = self._formats.find_managing_format(edit.find_content(key))
            if managing is None:
                continue
            own_intents = intents_of_format(managing, intents)
            if own_intents is None:
                edit.add_opaque(key, managing)
            for intent in own_intents or ():
                edit.add_intent(key, managing.name, intent)

    def _describe_commit(self, commit: CommitObject) -> CommitMeta:
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
    for commit_id in commits:
        parent = history.read_commit(commit_id).parent
        if before is not None and parent != before:
            raise InvalidRequest(
                f"the commits to transplant must be consecutive, oldest first: {commit_id.hex()[:8]} does "
                f"not follow {before.hex()[:8]}"
            )
        before = commit_id
