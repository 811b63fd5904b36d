"""Random appends, deletions, compactions and merges of three branches, held against sets of keys."""

from __future__ import annotations

import random
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.lance import state
from tests.chance import share
from tests.formats.lance.tables import delete, keys_of, keys_seen, opened, rows, write

lance = pytest.importorskip("lance")
BRANCHES = ("main", "dev", "feature")
STEPS = 30


class Then(NamedTuple):
    """What a branch had at a commit."""

    commit: str
    came: frozenset[int]
    went: frozenset[int]


class Sets:
    """What each branch should have: keys that came, and keys that went, and by which commits."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self._lake, self._chance = lake, random.Random(seed)
        self._next, self.merged, self.refused = 100, 0, 0
        self._came = {name: {1, 2, 3, 4, 5, 6} for name in BRANCHES}
        self._went: dict[str, set[int]] = {name: set() for name in BRANCHES}
        self._then: dict[str, Then] = {}
        self._written: list[frozenset[int]] = []
        """What was written together, and so was a fragment."""

    def wanted(self, branch: str) -> list[int]:
        return sorted(self._came[branch] - self._went[branch])

    def step(self) -> None:
        branch = self._chance.choice(BRANCHES)
        what = self._chance.random()
        if what < 0.25:
            fresh = range(self._next, self._next + self._chance.randint(1, 3))
            self._next = fresh.stop
            write(self._lake, branch, *fresh)
            self._came[branch] |= set(fresh)
            self._written.append(frozenset(fresh))
        elif what < 0.35 and (there := self.wanted(branch)):
            self._delete(branch, self._chance.sample(there, min(len(there), self._chance.randint(1, 2))))
        elif what < 0.5 and (whole := [one for one in self._written if one.issubset(self.wanted(branch))]):
            self._delete(branch, self._chance.choice(whole))
        elif what < 0.55:
            opened(self._lake, branch).optimize.compact_files()
        else:
            self._merge(self._chance.choice([one for one in BRANCHES if one != branch]), branch)
        assert keys_of(self._lake, branch) == self.wanted(branch)

    def _delete(self, branch: str, keys: Collection[int]) -> None:
        delete(self._lake, branch, *keys)
        self._went[branch] |= set(keys)

    def _merge(self, source: str, target: str) -> None:
        """A merge has all that came and went on either side, or it is refused and nothing has changed.

        Now and then it is of a state from a while ago, so that merges cross.
        """
        self._then.setdefault(source, self._now(source))
        then = self._then[source] if self._chance.random() < 0.4 else self._now(source)
        if self._chance.random() < 0.3:
            self._then[source] = self._now(source)
        try:
            self._lake.merge(then.commit, target)
        except MergeConflict:
            self.refused += 1
            return
        self.merged += 1
        self._came[target] |= then.came
        self._went[target] |= then.went

    def _now(self, branch: str) -> Then:
        came, went = self._came[branch], self._went[branch]
        return Then(self._lake.resolve(branch), frozenset(came), frozenset(went))


@pytest.mark.parametrize(("seed", "room"), [(0, 0), (2, 0), (21, state.STATE_MAX_BYTES), (26, 400)])
def test_branches_have_what_came_to_them_and_not_what_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, room: int
) -> None:
    """Wherever a table's versions are: in its tree at once, a few of them beside it, or as it is."""
    monkeypatch.setattr(state, "STATE_MAX_BYTES", room)
    with penstock.open(tmp_path / "lake") as lake:
        assert run(lake, seed, STEPS).merged > 0


@pytest.mark.reliability
@pytest.mark.parametrize("seed", share(range(100, 160), 5))
def test_many_branches_have_what_came_to_them_and_not_what_went(tmp_path: Path, seed: int) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        run(lake, seed, 60)


def run(lake: Lake, seed: int, steps: int) -> Sets:
    for keys in ((1, 2), (3, 4), (5, 6)):
        write(lake, "main", *keys, mode="create" if keys == (1, 2) else "append")
    opened(lake).create_scalar_index("k", "BTREE")
    for name in BRANCHES[1:]:
        lake.branch(name).create()
    sets = Sets(lake, seed)
    for _ in range(steps):
        sets.step()
    for name in BRANCHES:
        check_goes_on(lake, name, sets.wanted(name))
    assert keys_seen(lake) == sorted([*sets.wanted("main"), 10_000])
    assert lake.fsck().damages == ()
    return sets


def check_goes_on(lake: Lake, branch: str, wanted: list[int]) -> None:
    """What was merged can be written to by a handle from before, compacted, and read by its index."""
    stale = opened(lake, branch)
    assert found(lake, branch, *wanted[:3]) == wanted[:3]
    lance.write_dataset(rows(10_000), stale, mode="append")
    opened(lake, branch).optimize.compact_files()
    assert keys_of(lake, branch) == sorted([*wanted, 10_000])
    assert found(lake, branch, 10_000, *wanted[:3]) == [*wanted[:3], 10_000]


def found(lake: Lake, branch: str, *keys: int) -> list[int]:
    """Rows that are looked for by their keys: by an index, unless all rows that it knew are gone."""
    wanted = " or ".join(f"k = {key}" for key in (*keys, -1))
    return sorted(opened(lake, branch).to_table(filter=wanted)["k"].to_pylist())
