"""Random writes, compactions, transplants, rebases and merges of Lance branches, held against sets of rows.

A row of the model is a key with a value that was never written before. So what a merge must come to follows
from sets of rows, whatever Lance did with fragments: what the source has, without what it does not have any
more of the states that both come from.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.model.content import encode_checked_content
from tests.chance import RecordCounts, share, times
from tests.formats.lance.tables import ITEMS, content, opened

lance = pytest.importorskip("lance")
BRANCHES = ("main", "dev", "feature")
Row: TypeAlias = tuple[int, float]
Rows: TypeAlias = frozenset[Row]
LANDED_MIN = 0.9
"""Of the merges that Lance's own rules would let through."""


class Commit(NamedTuple):
    """A commit of the model."""

    id: str
    rows: Rows
    parents: tuple[str, ...]
    had: Rows
    """All rows that it or a commit before it had."""
    same: str | None
    """A commit from elsewhere whose very versions of the table it has, if it took them as they are."""


class Counters(NamedTuple):
    """What came of merges, transplants and rebases."""

    landed: Counter[str]
    conflicts: Counter[str]
    """Refused, and the model has a conflict too."""
    refused: Counter[str]
    """Refused, by kind and reason, though the rows go together."""

    def add(self, other: Counters) -> None:
        for mine, others in zip(self, other, strict=True):
            mine.update(others)


class Conflict(Exception):
    """Two sides of the model do not go together."""


class Model:
    """A lake with one table, and what each of its commits should have."""

    def __init__(self, lake: Lake, seed: int, rows: int) -> None:
        """``rows`` are there when the branches are made: of few, more are changed on both sides."""
        self._lake, self._chance, self._rows = lake, random.Random(seed), rows
        self._keys, self._values = 100, 0.0
        self._commits: dict[str, Commit] = {}
        self._contents: dict[bytes, str] = {}
        self._heads: dict[str, str] = {}
        self.counters = Counters(Counter(), Counter(), Counter())

    def begin(self) -> None:
        rows = self._fresh(self._rows)
        lance.write_dataset(
            arrow(rows[: self._rows * 3 // 4]), namespace_client=self._lake.lance(), table_id=[ITEMS]
        )
        self._advance("main", frozenset(rows[: self._rows * 3 // 4]), ())
        self._append("main", rows[self._rows * 3 // 4 :])
        for name in BRANCHES[1:]:
            self._lake.branch(name).create()
            self._heads[name] = self._heads["main"]

    def step(self) -> None:
        branch = self._chance.choice(BRANCHES)
        other = self._chance.choice([one for one in BRANCHES if one != branch])
        what = self._chance.random()
        there = sorted(self._head(branch).rows)
        some = self._chance.sample(there, min(len(there), self._chance.randint(1, 2)))
        if what < 0.28:
            self._append(branch, self._fresh(self._chance.randint(1, 3)))
        elif what < 0.40 and some:
            self._delete(branch, some)
        elif what < 0.52 and some:
            self._update(branch, some)
        elif what < 0.60:
            self._compact(branch)
        elif what < 0.68:
            self._transplant(other, branch)
        elif what < 0.73 and branch != "main":
            self._rebase(branch, other)
        else:
            self._merge(other, branch)
        assert stored(self._lake, branch) == sorted(self._head(branch).rows)

    def check(self) -> None:
        """Every commit reads as it did, and so does the table for who does not ask the lake."""
        for one in self._commits.values():
            assert stored(self._lake, one.id) == sorted(one.rows)
        self._lake.finish_background()
        found = lance.dataset(content(self._lake).location).to_table()
        assert rows_in(found) == sorted(self._head("main").rows)
        for name in BRANCHES:
            self._check_goes_on(name)
        assert self._lake.fsck().damages == ()

    def _check_goes_on(self, branch: str) -> None:
        """What was merged can be written to by a handle from before, and compacted."""
        stale, rows = opened(self._lake, branch), self._fresh(1)
        lance.write_dataset(arrow(rows), stale, mode="append")
        opened(self._lake, branch).optimize.compact_files()
        assert stored(self._lake, branch) == sorted([*self._head(branch).rows, *rows])

    # -- writing -------------------------------------------------------------------------------------------

    def _fresh(self, count: int) -> list[Row]:
        self._keys += count
        return [(key, self._value()) for key in range(self._keys - count, self._keys)]

    def _value(self) -> float:
        self._values += 1.0
        return self._values

    def _append(self, branch: str, rows: list[Row]) -> None:
        lance.write_dataset(
            arrow(rows), namespace_client=self._lake.lance(branch), table_id=[ITEMS], mode="append"
        )
        self._advance(branch, self._head(branch).rows | {*rows}, (self._heads[branch],))

    def _delete(self, branch: str, rows: list[Row]) -> None:
        opened(self._lake, branch).delete(where(rows))
        self._advance(branch, self._head(branch).rows - {*rows}, (self._heads[branch],))

    def _update(self, branch: str, rows: list[Row]) -> None:
        value = self._value()
        opened(self._lake, branch).update({"v": str(value)}, where=where(rows))
        left = self._head(branch).rows - {*rows}
        self._advance(branch, left | {(key, value) for key, _ in rows}, (self._heads[branch],))

    def _compact(self, branch: str) -> None:
        opened(self._lake, branch).optimize.compact_files()
        rows = self._head(branch).rows
        self._read_commits(branch)
        assert self._head(branch).rows == rows

    # -- bringing ------------------------------------------------------------------------------------------

    def _merge(self, source: str, target: str) -> None:
        there, here = self._head(source), self._head(target)
        try:
            self._lake.merge(source, target)
        except MergeConflict as problem:
            if self._note_refusal("merge", problem, there, here) and self._chance.random() < 0.5:
                self._fork_anew(source if source != "main" else target)
            return
        self.counters.landed["merge"] += 1
        if self._lake.branch(target).head == here.id:
            assert self._merged(there, here, sorted(here.rows)) == here.rows, "it brought nothing"
            return
        self._advance(target, self._merged(there, here, stored(self._lake, target)), (here.id, there.id))

    def _merged(self, there: Commit, here: Commit, rows: list[Row]) -> Rows:
        """The rows that a merge must come to. What a branch took as it was, both have had in common too."""
        try:
            found = merged(self._bases(there.id, here.id), there, here)
        except Conflict:
            found = None
        if found is None or sorted(found) != rows:
            return merged(self._bases(there.id, here.id, with_same=True), there, here)
        return found

    def _fork_anew(self, branch: str) -> None:
        """Give up a branch: as long as it is there, the same conflict would come again and again."""
        self._lake.branch(branch).delete()
        self._lake.branch(branch).create()
        self._heads[branch] = self._heads["main"]

    def _transplant(self, source: str, target: str) -> None:
        there, here = self._head(source), self._head(target)
        if len(there.parents) != 1 or {there.id, there.same} & self._ancestors(here.id):
            return
        (parent,) = there.parents
        base = self._commits[parent].rows
        try:
            self._lake.transplant([there.id], target)
        except MergeConflict as problem:
            self._note_refusal("transplant", problem, there, here, [there])
            return
        self.counters.landed["transplant"] += 1
        if self._lake.branch(target).head != here.id:
            self._advance(target, merged([base], there, here), (here.id,))
        else:
            assert merged([base], there, here) == here.rows

    def _rebase(self, branch: str, onto: str) -> None:
        """Each of its own commits is repeated; what a merge among them did is for the kernel to find."""
        there, here = self._head(branch), self._head(onto)
        own = self._own_commits(there.id, here.id)
        try:
            self._lake.rebase(branch, onto)
        except MergeConflict as problem:
            if own is not None:
                self._note_refusal("rebase", problem, there, here, own)
            return
        self.counters.landed["rebase"] += 1
        self._read_commits(branch)
        rows = self._head(branch).rows
        assert len({key for key, _ in rows}) == len(rows)
        assert rows <= self._rows_that_may_be(there) | self._rows_that_may_be(here)
        if own is not None:
            assert rows == self._repeated(own, here)

    def _rows_that_may_be(self, commit: Commit) -> Rows:
        """The rows that may come of repeating what a commit comes from."""
        return commit.rows

    def _own_commits(self, branch: str, onto: str) -> list[Commit] | None:
        """The commits that only a branch has, oldest first; ``None`` if there are merges among them."""
        found: list[Commit] = []
        known = self._ancestors(onto)
        while branch not in known:
            found.append(self._commits[branch])
            if len(found[-1].parents) != 1:
                return None
            (branch,) = found[-1].parents
        return found[::-1]

    def _repeated(self, commits: Iterable[Commit], here: Commit) -> Rows:
        for commit in commits:
            (parent,) = commit.parents
            rows = merged([self._commits[parent].rows], commit, here)
            here = here._replace(rows=rows, had=here.had | rows)
        return here.rows

    def _note_refusal(
        self, kind: str, problem: MergeConflict, there: Commit, here: Commit, own: list[Commit] | None = None
    ) -> bool:
        """Whether there is a conflict. ``own`` are commits that were to be repeated; else all was to come."""
        try:
            if own is None:
                found = merged(self._bases(there.id, here.id), there, here)
            else:
                found = self._repeated(own, here)
        except Conflict as conflict:
            self.counters.conflicts[f"{kind}: {conflict}"] += 1
            return True
        if back := (found & here.had) - here.rows:
            assert back <= there.rows
            self.counters.conflicts[f"{kind}: rows that were removed here would come back"] += 1
            return True
        self.counters.refused[f"{kind}: {problem.conflicts[0].why.partition(' (')[0]}"] += 1
        return False

    # -- commits -------------------------------------------------------------------------------------------

    def _head(self, branch: str) -> Commit:
        return self._commits[self._heads[branch]]

    def _advance(self, branch: str, rows: Iterable[Row], parents: tuple[str, ...]) -> None:
        self._heads[branch] = self._lake.branch(branch).head
        self._note(self._heads[branch], frozenset(rows), parents)

    def _read_commits(self, branch: str) -> None:
        """Note the commits that one call has made, with the rows that they have."""
        new = []
        for commit in self._lake.log(branch):
            if commit.id in self._commits:
                break
            new.append(commit)
        for commit in reversed(new):
            self._note(commit.id, frozenset(stored(self._lake, commit.id)), commit.parents)
        self._heads[branch] = self._lake.branch(branch).head

    def _note(self, commit: str, rows: Rows, parents: tuple[str, ...]) -> None:
        known = [self._commits[one].had for one in parents if one in self._commits]
        same = self._contents.setdefault(encode_checked_content(content(self._lake, commit)), commit)
        other = None if same == commit else same
        self._commits[commit] = Commit(commit, rows, parents, rows.union(*known), other)

    def _ancestors(self, commit: str, *, with_same: bool = False) -> set[str]:
        found: set[str] = set()
        rest = [commit]
        while rest:
            one = self._commits.get(rest.pop())
            if one is not None and one.id not in found:
                found.add(one.id)
                rest.extend(one.parents)
                rest.extend([one.same] if with_same and one.same is not None else ())
        return found

    def _only_in(self, one: str, other: str) -> set[str]:
        return self._ancestors(one) - self._ancestors(other)

    def _bases(self, one: str, other: str, *, with_same: bool = False) -> list[Rows]:
        """The rows of the common ancestors that no other common one comes from."""
        ancestors = {each: self._ancestors(each, with_same=with_same) for each in self._commits}
        both = ancestors[one] & ancestors[other]
        below = {each for commit in both for each in ancestors[commit] - {commit}}
        return [self._commits[each].rows for each in both - below]


def merged(bases: list[Rows], source: Commit, target: Commit) -> Rows:
    """The three-way merge of rows. ``Conflict`` if a key was changed on both sides, and not to the same."""
    base: Rows = frozenset().union(*bases)
    found = (target.rows | (source.rows - base)) - (base - source.rows)
    keys = Counter(key for key, _ in found)
    if max(keys.values(), default=0) > 1:
        raise Conflict("a key was updated on both sides")
    shared = frozenset.intersection(*bases)
    for key, _ in shared - source.rows - target.rows:
        there, here = ({row for row in side.rows if row[0] == key} for side in (source, target))
        if there != here:
            raise Conflict("a key was updated on one side, and deleted on the other")
    return found


def arrow(rows: Iterable[Row]) -> pa.Table:
    keys, values = zip(*rows, strict=True)
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.float64())})


def rows_in(table: pa.Table) -> list[Row]:
    return sorted(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def stored(lake: Lake, ref: str) -> list[Row]:
    return rows_in(opened(lake, ref).to_table())


def where(rows: Iterable[Row]) -> str:
    return f"k in ({', '.join(str(key) for key, _ in rows)})"


def run(path: Path, seed: int, steps: int) -> Counters:
    """Every third history is of a small table."""
    with penstock.open(path) as lake:
        model = Model(lake, seed, 40 if seed % 3 else 6)
        model.begin()
        for _ in range(steps):
            model.step()
        model.check()
    return model.counters


def report(counters: Counters, seeds: Iterable[int]) -> float:
    """Print what came of merges; the share that landed of those that Lance's own rules let through."""
    landed, refused = counters.landed["merge"], count_of(counters.refused, "merge")
    print(f"seeds {sorted(seeds)}")
    for name, counter in zip(Counters._fields, counters, strict=True):
        for what, number in counter.most_common():
            print(f"  {name:10} {number:5} {what}")
    return landed / max(1, landed + refused)


def count_of(counter: Counter[str], kind: str) -> int:
    return sum(number for what, number in counter.items() if what.startswith(f"{kind}:"))


def test_merges_land_and_have_the_rows_of_a_three_way_merge(tmp_path: Path) -> None:
    seeds, counters = (0, 1, 2), Counters(Counter(), Counter(), Counter())
    for seed in seeds:
        counters.add(run(tmp_path / str(seed), seed, 30))
    assert report(counters, seeds) >= LANDED_MIN


@pytest.mark.reliability
@pytest.mark.parametrize("start", share(range(100, 160, 10)))
def test_nine_of_ten_merges_land_in_long_histories(
    tmp_path: Path, start: int, record_counts: RecordCounts
) -> None:
    seeds, counters = range(start, start + times(10)), Counters(Counter(), Counter(), Counter())
    for seed in seeds:
        counters.add(run(tmp_path / str(seed), seed, 120))
    for name, counter in zip(Counters._fields, counters, strict=True):
        record_counts({f"{name}: {what}": number for what, number in counter.items()})
    assert report(counters, seeds) >= LANDED_MIN
