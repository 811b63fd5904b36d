"""Merge: bringing what one commit has and a branch has not, and recording it as a parent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from penstock.errors import MergeConflict
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.edit import Edit, EditContext
from penstock.kernel.format import Formats, PrepareAgain
from penstock.kernel.history import History
from penstock.kernel.isolation import check_reads
from penstock.kernel.lake_state import Difference, open_state
from penstock.kernel.later_commits import OwnCommits
from penstock.kernel.objects import read_content
from penstock.kernel.request import NextBatch
from penstock.kernel.three_way import (
    CrissCrossIntents,
    Intents,
    MergeOptions,
    RenamedKey,
    ThreeWayApply,
    ThreeWayRequest,
    ThreeWayTerms,
    add_unseen,
    find_changes_between,
    find_former_keys,
    list_intents_between,
    read_values_at_bases,
)
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.keys import Key
from penstock.model.objects import CommitObject, Intent, Value
from penstock.model.references import Event, Reference


class MergeRequest(ThreeWayRequest):
    """Bring what a commit has and the branch has not, and record it as a parent."""

    event = Event.MERGE
    needs_preparation = True

    def __init__(
        self,
        history: History,
        formats: Formats,
        source: ObjectId,
        meta: CommitMeta,
        options: MergeOptions,
        terms: ThreeWayTerms,
    ) -> None:
        super().__init__(history, formats, meta, options, terms)
        self._source = source
        self._own = OwnCommits(history, formats, source)
        self._plan: MergePlan | None = None
        self.base: ObjectId | None = None

    @property
    def fingerprint(self) -> bytes:
        return hash_object(
            encode(("merge", self._source, self.if_head, self._meta.message, self._options.fingerprint()))
        )

    def prepare(self, reference: Reference) -> None:
        plan = self._plan = plan_merge(self._history, self._formats, self._source, reference.head)
        if plan.changes is None or self.may_read:
            return
        managed = self._select_managed_changes(plan.changes)
        if managed or self._options.reads is not None:
            head = self._history.read_commit(reference.head)
            view = open_state(self._history.objects, head)
            edit = self._begin_edit(self._history.objects, view, reference, may_read=True)
            with suppress(PrepareAgain):
                self._check_reads(edit, plan.changes, head)
                plan.apply_difference(self._three_way_apply(edit, plan, reference.head), managed)

    def draft_commits(self, chain: CommitChain, reference: Reference) -> list[CommitDraft]:
        if chain.has_merge_drafts:
            raise NextBatch  # the common ancestor depends on a merge that has no id yet
        if self._plan is None or not self._plan.still_fits(chain):
            self._plan = plan_merge(self._history, self._formats, self._source, chain.tip)
        plan = self._plan
        if plan.criss_cross and chain.has_drafts:
            raise NextBatch  # what the target did since depends on commits that have no id yet
        self.base = plan.base
        if plan.changes is None:
            self.results = []
            return []
        parents = {parent.encode() for key in plan.changes for parent in Key.decode(key).parents}
        chain.view.get_many(parents | plan.changes.keys())  # with one request a level
        edit = self._begin_edit(chain.objects, chain.view, reference, self.may_read)
        if chain.has_drafts and self._options.reads is not None and self._options.reads.lists:
            raise NextBatch  # what came and went is told by commits, and some have no id yet
        self._check_reads(edit, plan.changes, chain.commit)
        three_way = self._three_way_apply(edit, plan, None if chain.has_drafts else chain.tip)
        plan.apply_difference(three_way, plan.changes)
        three_way.finish_keys()
        self.results = list(three_way.results.values())
        if edit.conflicts:
            raise MergeConflict(edit.conflicts)
        if plan.is_nothing and self._options.reads is None:
            return []
        return [self._make_draft(edit, reference, (self._source,))]

    def _check_reads(self, edit: Edit, changes: Difference, head: CommitObject) -> None:
        """Note in an edit, before anything is brought, what the source has read and is not so any more."""
        if self._options.reads is not None:
            check_reads(self._history, self._formats, edit, self._options.reads, changes, head)

    def _three_way_apply(self, edit: Edit, plan: MergePlan, head: ObjectId | None) -> ThreeWayApply:
        own, theirs = self._own, OwnCommits(self._history, self._formats, plan.head)
        return ThreeWayApply(
            edit,
            self._formats,
            self._options,
            own=lambda key: own.look_up_commits(head, key),
            theirs=lambda key: theirs.look_up_commits(self._source, key),
        )


class MergePlan(NamedTuple):
    """What a merge has to bring, worked out against one head of the target."""

    head: ObjectId
    merges: int
    base: ObjectId
    changes: Difference | None
    """``None`` if the target has everything already."""
    intents: Intents
    ambiguous: frozenset[bytes]
    criss_cross: dict[bytes, CrissCrossIntents]
    renamed: dict[bytes, RenamedKey]
    bases: dict[bytes, tuple[Value | None, ...]]
    """What tables and namespaces are in each of the common ancestors, if there are several."""

    @property
    def is_nothing(self) -> bool:
        """Whether the source took back all that it changed, so that later merges would not miss a commit.

        They would where a format replays what was done to a table: then the merge is recorded.
        """
        return not self.changes and not self.intents

    def apply_difference(self, three_way: ThreeWayApply, changes: Difference) -> None:
        """Bring some of the changes."""
        three_way.apply_difference(
            changes, self.intents, self.ambiguous, self.criss_cross, self.renamed, self.bases
        )

    def still_fits(self, chain: CommitChain) -> bool:
        """Whether the plan still fits: the branch only grew since, and nothing was merged into it."""
        if chain.tip == self.head:
            return True
        return (
            not self.criss_cross and chain.contains_commit(self.head) and chain.commit.merges == self.merges
        )


def plan_merge(history: History, formats: Formats, source: ObjectId, head: ObjectId) -> MergePlan:
    """What a merge has to bring; ``CommitNotFound`` if the common history has expired."""
    commit, target = history.read_commit(source), history.read_commit(head)
    bases = history.merge_bases(head, source)
    if source in bases:
        return MergePlan(head, target.merges, source, None, {}, frozenset(), {}, {}, {})
    changes, ambiguous = _find_source_changes(history, bases, commit)
    intents = list_intents_between(history, source, head) if formats else {}
    changes = add_unseen(history, formats, changes, intents, commit)
    criss_cross = _find_criss_cross(history, bases, source, head) if intents else {}
    places = find_former_keys(history, formats, changes, history.read_commit(bases[0]))
    renamed = {
        stored: RenamedKey(
            before,
            None if criss_cross or len(bases) > 1 else _list_source_intents(history, source, head, table_id),
        )
        for stored, (before, table_id) in places.items()
    }
    values_by_key = read_values_at_bases(history, formats, changes, bases) if len(bases) > 1 else {}
    return MergePlan(
        head, target.merges, bases[0], changes, intents, ambiguous, criss_cross, renamed, values_by_key
    )


def _list_source_intents(history: History, source: ObjectId, head: ObjectId, table: UUID) -> list[Intent]:
    """The intents for a table of all commits that the source has and the target has not, under any key."""
    intents: list[Intent] = []
    for _, commit in history.list_commits_only_in(source, head):
        view = open_state(history.objects, commit)
        for intent in history.objects.read_intents(commit):
            content = read_content(history.objects, view.get(intent.key))
            if content is not None and content.id == table:
                intents.append(intent)
    return intents


def merge_plainly(
    history: History, formats: Formats, reference: Reference, source: ObjectId, target: ObjectId
) -> dict[bytes, Value | None]:
    """What a merge of two commits gives if nobody settles anything, for the keys at which it is no conflict.

    Only keys that are no managed tables, or whose format goes by kernel objects alone. Nothing is stored.
    ``CommitNotFound`` if the history before them has expired.
    """
    objects = history.objects
    plan = plan_merge(history, formats, source, target)
    changes = {
        stored: (before, after)
        for stored, (before, after) in (plan.changes or {}).items()
        if (
            managing := formats.find_managing_format(
                read_content(objects, before if after is None else after)
            )
        )
        is None
        or managing.merges_objects_only
    }
    view = open_state(objects, history.read_commit(target))
    edit = Edit(objects, view, formats, EditContext(reference, {}, may_read=True))
    own, theirs = OwnCommits(history, formats, source), OwnCommits(history, formats, target)
    three_way = ThreeWayApply(
        edit,
        formats,
        MergeOptions(),
        own=lambda key: own.look_up_commits(target, key),
        theirs=lambda key: theirs.look_up_commits(source, key),
    )
    plan.apply_difference(three_way, changes)
    refused = {key.encode() for key, result in three_way.results.items() if result.conflicts}
    return {key: edit.view.get(key) for key in changes if key not in refused}


def _find_criss_cross(
    history: History, bases: Sequence[ObjectId], source: ObjectId, head: ObjectId
) -> dict[bytes, CrissCrossIntents]:
    """The keys that the source had begun to change before the sides met, with what each side did to them."""
    commit, base_commit = history.read_commit(source), history.read_commit(bases[0])
    if len(bases) == 1 and commit.merges == base_commit.merges and history.is_on_line(bases[0], source):
        return {}
    earlier: Intents = {}
    for commit_id, source_commit in history.list_commits_only_in(source, head):
        if source_commit.intents and not all(history.is_ancestor(base, commit_id) for base in bases):
            for intent in history.objects.read_intents(source_commit):
                earlier.setdefault(intent.key, []).append(intent)
    since = list_intents_between(history, head, source) if earlier else {}
    return {key: CrissCrossIntents(intents, since.get(key, [])) for key, intents in earlier.items()}


def _find_source_changes(
    history: History, bases: Sequence[ObjectId], source: CommitObject
) -> tuple[Difference, frozenset[bytes]]:
    """What the source changed since the common ancestors, and the keys on which these do not agree.

    Several common ancestors exist where merges crossed. Each key's base is then what a merge of them would
    make of it; where that would be a conflict, the key is ambiguous and only equal sides merge.
    """
    objects = history.objects
    changes = find_changes_between(history, history.read_commit(bases[0]), source)
    if len(bases) == 1:
        return changes, frozenset()
    ambiguous: set[bytes] = set()
    virtual: dict[bytes, Value | None] = {}
    for other in bases[1:]:
        root = history.merge_bases(bases[0], other)[0]
        first, second = history.read_commit(bases[0]), history.read_commit(other)
        origin = open_state(objects, history.read_commit(root))
        for key, (mine, theirs) in find_changes_between(history, first, second).items():
            before = virtual.get(key, mine)
            old_value = origin.get(key)
            virtual[key] = theirs if before == old_value else before
            if old_value not in (before, theirs):
                ambiguous.add(key)
    state = open_state(objects, source)
    for key, old_value in virtual.items():
        after = state.get(key)
        if key in ambiguous or old_value != after:
            changes[key] = (old_value, after)
        else:
            changes.pop(key, None)
    return dict(sorted(changes.items())), frozenset(ambiguous)
