"""Transplant and revert: repeating commits on another branch, and undoing one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from penstock.errors import InvalidRequest, MergeConflict
from penstock.kernel.bring import Bringing, Intents, Meeting, MergeOptions, gather_intents, intents_between
from penstock.kernel.chain import Chain, Draft
from penstock.kernel.conflict import compare
from penstock.kernel.edit import Edit
from penstock.kernel.format import Format, Formats
from penstock.kernel.history import History
from penstock.kernel.request import Request
from penstock.kernel.state import Difference, Overlay, diff_commits, state_of
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict
from penstock.model.encoding import ObjectId, encode, object_id
from penstock.model.keys import RESERVED, Key
from penstock.model.merges import MergedKey
from penstock.model.objects import CommitObject, Value
from penstock.model.references import Event, Reference


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

    @property
    def wish(self) -> bytes:
        return object_id(
            encode(
                ("transplant", self._commits, self.expected_head, self._meta.message, self._options.wish())
            )
        )

    def apply(self, chain: Chain, reference: Reference) -> list[Draft]:  # noqa: ARG002
        landed: dict[bytes, Value | None] = {}
        below = Overlay(chain.view, landed)
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
                landed.update((key, wanted) for key, (_, wanted) in changes.items())
            elif edit.changed:
                self._keep_intents(edit, commit)
                drafts.append(edit.draft(self._describe(commit), self.key))
                landed.update(drafts[-1].changes)
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


class RevertRequest(Request):
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
        expected_head: ObjectId | None = None,
    ) -> None:
        self._history, self._formats, self._commit = history, formats, commit
        self._meta, self.key, self._options = meta.check(), key, options.check()
        self.expected_head = expected_head
        self.author = meta.authors[0] if meta.authors else meta.committer
        self.results: list[MergedKey] = []

    @property
    def wish(self) -> bytes:
        return object_id(
            encode(("revert", self._commit, self.expected_head, self._meta.message, self._options.wish()))
        )

    def prepare(self, reference: Reference) -> None:
        if not self._history.is_ancestor(self._commit, reference.head):
            raise InvalidRequest(
                f"commit {self._commit.hex()[:8]} is not in the history of '{reference.name}'"
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

    def _merge_managed(self, managing: Format, meeting: Meeting) -> None:  # noqa: ARG002
        if meeting.was == meeting.now:
            self._restore(meeting, self._content(meeting.wanted))
        else:
            was, now = self._content(meeting.was), self._content(meeting.now)
            self._edit.conflicts.append(compare(meeting.key, was, now))
