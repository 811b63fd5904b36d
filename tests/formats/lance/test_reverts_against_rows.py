"""Random writes, compactions, merges, transplants, rebases and reverts of Lance branches, held against rows.

What a revert must come to follows key by key from three states: a key that is as the commit left it becomes
what it was before, one that is as it was before stays, and any other one was changed since and is a conflict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from tests.chance import RecordCounts, share, times
from tests.formats.lance.tables import content
from tests.formats.lance.test_merges_against_rows import (
    BRANCHES,
    Commit,
    Conflict,
    Counters,
    Model,
    Rows,
    count_of,
    merged,
    rows_in,
    stored,
)

lance = pytest.importorskip("lance")
LANDED_MIN = 0.9
"""Of the reverts that the model has no conflict for."""
REVERTS = 0.3
"""Of all steps."""
AGAIN = "transplant of a reverted commit"


class RevertModel(Model):
    """A lake with one table of which commits are reverted, and what each of its commits should have."""

    def __init__(self, lake: Lake, seed: int, rows: int) -> None:
        super().__init__(lake, seed, rows)
        self._undone: dict[str, list[str]] = {name: [] for name in BRANCHES}
        self._reverts: dict[str, str] = {}
        """Reverts, each with the commit that it undoes."""

    def step(self) -> None:
        what = self._chance.random()
        if what >= REVERTS:
            super().step()
            return
        branch = self._chance.choice(BRANCHES)
        if what < REVERTS / 5 and self._undone[branch]:
            self._transplant_again(self._chance.choice(self._undone[branch]), branch)
        else:
            self._revert(branch)
        assert stored(self._lake, branch) == sorted(self._head(branch).rows)
        if branch == "main":
            self._lake.finish_background()
            direct = lance.dataset(content(self._lake).location).to_table()
            assert rows_in(direct) == sorted(self._head("main").rows)

    def _revert(self, branch: str) -> None:
        here = self._head(branch)
        ancestors = self._ancestors(here.id)
        choices = [one for one in self._commits.values() if one.id in ancestors and one.parents]
        if not choices:
            return
        commit = self._chance.choice(choices[-8:] if self._chance.random() < 0.7 else choices)
        before = self._commits[commit.parents[0]]
        preview = self._lake.revert(commit.id, branch, dry_run=True)
        assert self._lake.branch(branch).head == here.id
        try:
            self._lake.revert(commit.id, branch)
        except MergeConflict as problem:
            assert preview.conflicts
            self._note_revert(problem, before.rows, commit.rows, here.rows)
            return
        assert not preview.conflicts
        expected = reverted(before.rows, commit.rows, here.rows)
        self.counters.landed["revert"] += 1
        if self._lake.branch(branch).head == here.id:
            assert expected == here.rows, "it undid nothing"
            return
        self._undone[branch].append(commit.id)
        self._advance(branch, expected, (here.id,))
        self._reverts[self._heads[branch]] = commit.id

    def _note_revert(self, problem: MergeConflict, before: Rows, after: Rows, now: Rows) -> None:
        try:
            reverted(before, after, now)
        except Conflict as conflict:
            self.counters.conflicts[f"revert: {conflict}"] += 1
        else:
            self.counters.refused[f"revert: {_reason(problem)}"] += 1

    def _transplant_again(self, commit: str, branch: str) -> None:
        """Repeat a commit that was reverted."""
        there, here = self._commits[commit], self._head(branch)
        if len(there.parents) != 1:
            return
        base = self._commits[there.parents[0]]
        try:
            self._lake.transplant([commit], branch)
        except MergeConflict as problem:
            self._note_again(problem, base, there, here)
            return
        if self._lake.branch(branch).head == here.id:
            self._check_stands(base, there, here)
            self.counters.landed[f"{AGAIN}: nothing to do"] += 1
            return
        self.counters.landed[AGAIN] += 1
        self._advance(branch, merged([base.rows], there, here), (here.id,))

    def _check_stands(self, base: Commit, there: Commit, here: Commit) -> None:
        """A commit does nothing if it is there. Of a key that is as it was before the commit, this holds only
        if others deleted what the commit had inserted: anything else was undone, and is to be done again."""
        was, done, now = (dict[int, float](one.rows) for one in (base, there, here))
        for key in {key for key, _ in base.rows ^ there.rows}:
            if now.get(key) == was.get(key):
                assert key not in was, f"{key} is as it was before the commit"
                assert (key, done[key]) in self._removed_for_good(here), f"{key} was inserted, and reverted"

    def _note_again(self, problem: MergeConflict, base: Commit, there: Commit, here: Commit) -> None:
        try:
            found = merged([base.rows], there, here)
        except Conflict as conflict:
            self.counters.conflicts[f"{AGAIN}: {conflict}"] += 1
            return
        # Refused it may be where deletions by others would have to be told from what was reverted.
        if (found - here.rows) & self._removed_for_good(here):
            self.counters.conflicts[f"{AGAIN}: rows that no revert removed would come back"] += 1
            return
        self.counters.refused[f"{AGAIN}: {_reason(problem)}"] += 1

    def _removed_for_good(self, commit: Commit) -> Rows:
        """The rows that something else than a revert has removed, in all that a commit comes from, and that
        did not come back since."""
        found: Rows = frozenset()
        ancestors = self._ancestors(commit.id)
        for each in ancestors:
            one = self._commits[each]
            if len(one.parents) == 1 and self._removes_for_good(each):
                gone = self._commits[one.parents[0]].rows - one.rows
                for other in ancestors if gone else ():
                    if other != each and each in self._ancestors(other):
                        gone -= self._commits[other].rows
                found |= gone
        return found

    def _removes_for_good(self, commit: str) -> bool:
        """Whether what a commit removes was not only undone. Who undoes the undoing of a deletion deletes."""
        undone = self._reverts.get(commit)
        if undone is None:
            return True
        again = self._reverts.get(undone)
        return again is not None and self._removes_for_good(again)

    def _rows_that_may_be(self, commit: Commit) -> Rows:
        """A commit may be among them that brings rows back, and not the merge that had removed them."""
        return commit.had

    def _fork_anew(self, branch: str) -> None:
        super()._fork_anew(branch)
        self._undone[branch] = []


def reverted(before: Rows, after: Rows, now: Rows) -> Rows:
    """The rows without what became of others. ``Conflict`` if a key of these was changed since."""
    was, done, here = map(dict[int, float], (before, after, now))
    found = dict(here)
    for key in {key for key, _ in before ^ after}:
        if here.get(key) == was.get(key):
            continue
        if here.get(key) != done.get(key):
            raise Conflict(_what_happened(was, done, here, key))
        if key in was:
            found[key] = was[key]
        else:
            del found[key]
    return frozenset(found.items())


def _reason(problem: MergeConflict) -> str:
    """Why something was refused, without the numbers and names that differ each time."""
    return "".join(each for each in problem.conflicts[0].why.partition(" (")[0] if not each.isdigit())


def _what_happened(was: dict[int, float], done: dict[int, float], here: dict[int, float], key: int) -> str:
    if key not in here:
        return "a key that the commit updated was deleted since"
    if key not in was:
        return "a key that the commit inserted was updated since"
    return "a key that the commit updated or deleted has another value now"


def run(path: Path, seed: int, steps: int) -> Counters:
    with penstock.open(path) as lake:
        model = RevertModel(lake, seed, 40 if seed % 3 else 6)
        model.begin()
        for _ in range(steps):
            model.step()
        model.check()
    return model.counters


def report(counters: Counters, seeds: Iterable[int]) -> float:
    """Print what came of reverts; the share that landed of those that the model has no conflict for."""
    landed, refused = counters.landed["revert"], count_of(counters.refused, "revert")
    print(f"seeds {sorted(seeds)}")
    for name, counter in zip(Counters._fields, counters, strict=True):
        for what, number in counter.most_common():
            print(f"  {name:10} {number:5} {what}")
    return landed / max(1, landed + refused)


def test_reverts_land_and_have_the_rows_that_the_commit_found(tmp_path: Path) -> None:
    seeds, counters = (0, 1, 2), Counters(Counter(), Counter(), Counter())
    for seed in seeds:
        counters.add(run(tmp_path / str(seed), seed, 30))
    assert report(counters, seeds) >= LANDED_MIN


@pytest.mark.reliability
@pytest.mark.parametrize("start", share(range(200, 260, 10)))
def test_nine_of_ten_reverts_land_in_long_histories(
    tmp_path: Path, start: int, record_counts: RecordCounts
) -> None:
    seeds, counters = range(start, start + times(10)), Counters(Counter(), Counter(), Counter())
    for seed in seeds:
        counters.add(run(tmp_path / str(seed), seed, 120))
    for name, counter in zip(Counters._fields, counters, strict=True):
        record_counts({f"{name}: {what}": number for what, number in counter.items()})
    assert report(counters, seeds) >= LANDED_MIN
