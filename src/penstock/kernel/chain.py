"""A chain of commits that grows in memory: the head of a branch, and what is being added on top of it.

Small changes are not folded into the tree at once. A commit carries the newest of them in *segments*: lists
of changes in the order they were made, of which each commit counts as many as it has. The commits of one
batch share one segment, so that none of them stores a tree of its own; a new segment takes in the ones before
it that are no longer than itself, so that there are never more than a few. After ``FOLD_OPERATIONS``
changes they are folded into the tree, where changes that touch the same nodes share the cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.kernel import skip_pointers, tree
from penstock.kernel.lake_state import StateOverlay, TreeView
from penstock.kernel.objects import Objects, PendingObjects, split_value
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId, encode
from penstock.model.objects import CommitObject, Intent, Large, Segment, Value

FOLD_OPERATIONS: Final = 512
FOLD_BYTES: Final = 128 * 1024
WINDOW_COMMITS: Final = 4096
TOUCHED_MAX: Final = 10_000
"""Of how many keys a chain remembers which commit changed them last. There is a chain for each queue."""


class CommitDraft(NamedTuple):
    """A commit to be: what it changes and what its writer says."""

    changes: dict[bytes, Value | None]
    meta: CommitMeta
    key: str = ""
    further_parents: tuple[ObjectId, ...] = ()
    intents: tuple[Intent, ...] = ()
    blobs: Mapping[ObjectId, bytes] = MappingProxyType({})


class _SegmentPart(NamedTuple):
    """A segment, as far as it counts here."""

    id: ObjectId
    keys: list[bytes]
    values: list[Value | None]


class _OpenSegment:
    """The segment that the batch's commits share; what it takes in from before is known when it closes."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: list[Value | None] = []
        self.before: tuple[tuple[ObjectId, int], ...] = ()
        self.taken_in = 0
        self.id: ObjectId | None = None

    def recent_changes(self, count: int) -> tuple[tuple[ObjectId, int], ...]:
        """What a commit carries that has the first ``count`` changes of this segment."""
        if self.id is None or self.taken_in + count == 0:
            return self.before
        return (*self.before, (self.id, self.taken_in + count))


class _PendingCommit(NamedTuple):
    draft: CommitDraft
    root: ObjectId
    segment: _OpenSegment
    counted: int


class CommitChain:
    """The newest commit of a chain, its state, and the drafts on top of it; see ``build_commits``."""

    def __init__(self, objects: Objects, tip: ObjectId) -> None:
        self.objects = PendingObjects(objects)
        self.tip = tip
        self.commit = objects.get_commit(tip)
        self._root = self.commit.root
        self._runs = self._load_runs()
        self._drafts: list[_PendingCommit] = []
        self._overlay: dict[bytes, Value | None] = {}
        for run in self._runs:
            self._overlay.update(zip(run.keys, run.values, strict=True))
        self._count = sum(len(run.keys) for run in self._runs)
        self._bytes = sum(
            _measure_item(item) for run in self._runs for item in zip(run.keys, run.values, strict=True)
        )
        self._open = self._begin_segment()
        self._number = 0
        self._window: dict[ObjectId, int] = {tip: 0}
        self._touched: dict[bytes, int] = {}
        self._tree = TreeView(self.objects, self._root)
        self.view = StateOverlay(self._tree, self._overlay)
        self.is_cold = True
        """Whether nobody has looked at its tree yet."""

    def warm(self, keys: Collection[bytes]) -> None:
        """Bring what leads to some keys into memory, with one request a level of the tree."""
        self.is_cold = False
        tree.load_nodes(self.objects, self._root, [key for key in keys if key not in self._overlay])

    def _load_runs(self) -> list[_SegmentPart]:
        segments = self.objects.get_many([segment_id for segment_id, _ in self.commit.recent])
        return [
            _SegmentPart(segment_id, segments[segment_id].keys[:count], segments[segment_id].values[:count])
            for segment_id, count in self.commit.recent
        ]

    @property
    def has_drafts(self) -> bool:
        return bool(self._drafts)

    @property
    def has_merge_drafts(self) -> bool:
        return any(pending.draft.further_parents for pending in self._drafts)

    def contains_commit(self, commit: ObjectId) -> bool:
        """Whether a commit is known to be part of this chain; ``False`` says nothing."""
        return commit in self._window

    def has_grown_from(self, commit: ObjectId) -> bool:
        """Whether a commit leads here by first parents. One that is not kept any more counts as if it did."""
        if commit in (NO_COMMIT, self.tip) or commit in self._window:
            return True
        goal = self._read_link(commit)
        return (
            goal is None
            or skip_pointers.walk_back_to_depth(self._read_link, self.tip, goal.depth)[0] == commit
        )

    def is_key_unchanged_since(self, commit: ObjectId, key: bytes) -> bool:
        """Whether a key is known not to have changed since a commit; ``False`` says nothing."""
        number = self._window.get(commit)
        return number is not None and self._touched.get(key, 0) <= number

    def add_draft(self, draft: CommitDraft) -> None:
        """Put a draft on top."""
        self._number += 1
        self._touched.update(dict.fromkeys(draft.changes, self._number))
        self.objects.fresh.update(draft.blobs)
        self._count += len(draft.changes)
        self._bytes += sum(map(_measure_item, draft.changes.items()))
        self._overlay.update(draft.changes)
        if self._count > FOLD_OPERATIONS or self._bytes > FOLD_BYTES:
            self._fold_into_tree()
        else:
            self._open.keys.extend(draft.changes.keys())
            self._open.values.extend(draft.changes.values())
        self._drafts.append(_PendingCommit(draft, self._root, self._open, len(self._open.keys)))

    def _fold_into_tree(self) -> None:
        """Work everything not yet folded into the tree."""
        self._close_segment()
        self._root = tree.update_tree(self.objects, self._root, self._overlay)
        self._tree = self._tree.with_changes(self._root, self._overlay)
        self._overlay = {}
        self._runs, self._count, self._bytes = [], 0, 0
        self._open = self._begin_segment()
        self.view = StateOverlay(self._tree, self._overlay)

    def _begin_segment(self) -> _OpenSegment:
        started = _OpenSegment()
        started.before = tuple((run.id, len(run.keys)) for run in self._runs)
        return started

    def _close_segment(self) -> None:
        """Give the shared segment its final form, together with the shorter ones before it."""
        segment = self._open
        if not segment.keys:
            return
        keys, values = segment.keys, segment.values
        while self._runs and len(self._runs[-1].keys) <= len(keys):
            run = self._runs.pop()
            keys, values = run.keys + keys, run.values + values
        segment.taken_in = len(keys) - len(segment.keys)
        segment.before = tuple((run.id, len(run.keys)) for run in self._runs)
        segment.id = self.objects.add_object(Segment(keys, values))
        self._runs.append(_SegmentPart(segment.id, keys, values))

    def build_commits(self, now_us: int) -> list[tuple[ObjectId, CommitObject]]:
        """Turn the drafts into commits, oldest first; their objects are in ``objects.fresh``."""
        self._close_segment()
        sealed = []
        for pending in self._drafts:
            self.commit = self._build_commit(pending, now_us)
            self.tip = self.objects.add_object(self.commit)
            sealed.append((self.tip, self.commit))
        first = self._number - len(sealed) + 1
        if len(self._window) > WINDOW_COMMITS or len(self._touched) > TOUCHED_MAX:
            self._window = {}
            self._touched = {key: number for key, number in self._touched.items() if number >= first}
        self._window.update((commit_id, number) for number, (commit_id, _) in enumerate(sealed, first))
        self._drafts = []
        self._open = self._begin_segment()
        return sealed

    def _build_commit(self, pending: _PendingCommit, now_us: int) -> CommitObject:
        parent, draft = self.commit, pending.draft
        time_us = max(now_us, parent.time_us + 1)
        generation = parent.generation
        for further in draft.further_parents:
            generation = max(generation, self.objects.get_commit(further).generation)
        meta = draft.meta
        return CommitObject(
            parent=self.tip,
            further_parents=draft.further_parents,
            jump=skip_pointers.find_next_jump(self._read_link, self.tip),
            depth=parent.depth + 1,
            generation=generation + 1,
            merges=parent.merges + (1 if draft.further_parents else 0),
            root=pending.root,
            recent=pending.segment.recent_changes(pending.counted),
            time_us=time_us,
            committer=meta.committer,
            authors=meta.authors,
            author_time_us=meta.get_written_time_us(time_us),
            signed_off_by=meta.signed_off_by,
            message=meta.message,
            properties=meta.properties,
            key=draft.key,
            intents=self._keep_intents(draft.intents),
        )

    def _keep_intents(self, intents: tuple[Intent, ...]) -> Value:
        if not intents:
            return b""
        value, blobs = split_value(encode(intents))
        self.objects.fresh.update(blobs)
        return value

    def _read_link(self, commit_id: ObjectId) -> CommitObject | None:
        commit: CommitObject | None = self.objects.get_cached(commit_id) or self.objects.find(
            (commit_id,)
        ).get(commit_id)
        return commit

    def note_stored(self) -> None:
        """The sealed commits are stored and the branch has moved to them."""
        self.objects.note_stored()


def _measure_item(item: tuple[bytes, Value | None]) -> int:
    key, value = item
    size = (
        len(value) if isinstance(value, bytes) else 40 * len(value.parts) if isinstance(value, Large) else 0
    )
    return len(key) + size
