"""Random histories in which commits are merged, repeated and undone across branches, held against rule K2.

Every job that overwrites writes two files to each partition, so that it can be told whose a partition is: it
has the two files of one job, beside whatever was appended, or none. No history may end with those of two.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

import penstock
from penstock import Lake
from penstock.errors import CommitConflict, InvalidRequest, MergeConflict
from penstock.formats.files.lake.calls import ListFiles
from penstock.model.keys import Key
from tests.chance import RecordCounts, share
from tests.formats.files.lakes import EVENTS, new_store, write

BRANCHES = ("main", "dev", "fix")
DAYS = ("day=0/", "day=1/", "day=2/")
KINDS = ("overwrite", "partitions", "append", "append", "remove", "merge", "merge", "merge", "transplant")
KINDS_OF_HISTORIES = (*KINDS, "rebase", "revert", "revert an older one")

Files = dict[str, str]
"""Where the file at each path lies."""


def listed(lake: Lake, ref: str) -> Files:
    return {one.path: one.address for one in lake.do(ListFiles(key=Key.parse(EVENTS), at=ref, limit=None))}


def overwrite_of(job: int, days: list[str]) -> list[str]:
    return [f"{day}{job:03}.{part}" for day in days for part in (1, 2)]


class Crossing:
    """One history, a step after the other."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self._lake, self._random = lake, Random(seed)
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        write(self._lake, *overwrite_of(0, list(DAYS)), replaced=[""])
        self._first = self._lake.branch("main").head  # it made the table, which stays
        for branch in BRANCHES[1:]:
            self._lake.branch(branch).create()
        for job in range(1, self._random.randint(8, 22)):
            self._step(job)

    def _step(self, job: int) -> None:
        kind, branch = self._random.choice(KINDS_OF_HISTORIES), self._random.choice(BRANCHES)
        source = self._random.choice([one for one in BRANCHES if one != branch])
        before = {one: listed(self._lake, one) for one in BRANCHES}
        try:
            self._act(kind, job, branch, source)
        except (CommitConflict, MergeConflict):
            self.counts[f"{kind}: conflict"] += 1
            assert {one: listed(self._lake, one) for one in BRANCHES} == before
            return
        self.counts[kind] += 1
        after = {one: listed(self._lake, one) for one in BRANCHES}
        assert all(after[one] == before[one] for one in BRANCHES if one != branch)
        _check_partitions(after[branch])
        if kind == "merge":
            assert after[branch].items() <= before[source].items() | before[branch].items()
            assert before[source].items() & before[branch].items() <= after[branch].items()

    def _act(self, kind: str, job: int, branch: str, source: str) -> None:
        lake, random = self._lake, self._random
        days = random.sample(DAYS, random.randint(1, 2))
        appended = [path for path in listed(lake, branch) if path.endswith("more")]
        if kind == "overwrite":
            write(lake, *overwrite_of(job, list(DAYS)), branch=branch, replaced=[""])
        elif kind == "partitions":
            write(lake, *overwrite_of(job, days), branch=branch, replaced=days)
        elif kind == "append":
            write(lake, f"{days[0]}{job:03}.more", branch=branch)
        elif kind == "remove" and appended:
            write(lake, removed=[random.choice(appended)], branch=branch)
        elif kind == "merge":
            lake.merge(source, branch)
        elif kind == "transplant":
            lake.transplant(source, branch)
        elif kind == "rebase" and branch != "main":
            lake.rebase(branch, source)
        elif kind.startswith("revert"):
            last = [one.id for one in lake.log(branch, limit=6) if one.id != self._first]
            chosen = last[:1] if kind == "revert" else random.sample(last[1:], min(1, len(last[1:])))
            for one in chosen:
                lake.revert(one, branch)


def _check_partitions(files: Files) -> None:
    for day in DAYS:
        overwritten = [path for path in files if path.startswith(day) and not path.endswith("more")]
        jobs = {path.removeprefix(day).split(".")[0] for path in overwritten}
        assert len(jobs) <= 1, f"{day} is a union: {overwritten}"
        assert len(overwritten) in (0, 2), f"{day} is torn: {overwritten}"


def check_crossing(seed: int) -> Counter[str]:
    with penstock.open(new_store()) as lake:
        crossing = Crossing(lake, seed)
        crossing.run()
        assert lake.fsck().damages == ()
        return crossing.counts


def test_sixty_crossing_histories_have_no_partition_of_two_jobs() -> None:
    counts = sum((check_crossing(seed) for seed in range(60)), Counter[str]())
    assert min(counts[kind] for kind in KINDS_OF_HISTORIES) > 10
    assert min(counts[f"{kind}: conflict"] for kind in ("merge", "transplant", "rebase")) > 0


@pytest.mark.reliability
@pytest.mark.parametrize("hundreds", share(range(1, 16)))
def test_many_crossing_histories_have_no_partition_of_two_jobs(
    hundreds: int, record_counts: RecordCounts
) -> None:
    for seed in range(hundreds * 100, hundreds * 100 + 100):
        record_counts(check_crossing(seed))


# -- undoing, against all other writes in a row ------------------------------------------------------------


Asked = tuple[str, dict[str, Any], Files]
"""A write: its commit, what was asked, and what came."""


def _random_writes(lake: Lake, random: Random, count: int, branch: str = "main") -> list[Asked]:
    """Write to a table a few times."""
    done = []
    for number in range(count):
        there = listed(lake, branch)
        folder = random.choice(("", "a/", "a/b/", "c/"))
        asked: dict[str, Any] = {"replaced": [folder] if random.random() < 0.4 else []}
        left = [path for path in there if not path.startswith(tuple(asked["replaced"]))]
        if left and random.random() < 0.3:
            asked["removed"] = [random.choice(left)]
        else:
            asked["put"] = [f"{folder}{random.choice(('x', f'{branch}-{number}'))}"]
        write(lake, branch=branch, **asked)
        now = listed(lake, branch)
        done.append((lake.branch(branch).head, asked, {path: now[path] for path in asked.get("put", ())}))
    return done


def _in_a_row(first: Files | None, writes: list[Asked], undone: Asked | None = None) -> Files | None:
    """What a table becomes without one of some writes; ``None`` if one of the others cannot be."""
    files = first
    for one in writes:
        if one is undone or files is None:
            continue
        _, asked, come = one
        files = {path: at for path, at in files.items() if not path.startswith(tuple(asked["replaced"]))}
        if not files.keys() >= set(asked.get("removed", ())):
            return None
        files = {path: at for path, at in files.items() if path not in asked.get("removed", ())} | come
    return files


def check_undoing(seed: int) -> bool:
    """Undo one of a few writes; whether it could be told what must come of it."""
    random = Random(seed)
    with penstock.open(new_store()) as lake:
        write(lake, "x", "a/x", "a/b/x", "c/x")
        first = listed(lake, "main")
        writes = _random_writes(lake, random, random.randint(3, 7))
        undone = random.choice(writes)
        try:
            lake.revert(undone[0])
        except (MergeConflict, InvalidRequest):
            return False
        expected = _in_a_row(first, writes, undone)
        assert expected is None or listed(lake, "main") == expected
        return expected is not None


def test_k2_undoing_a_write_is_as_if_it_had_never_been() -> None:
    assert sum(check_undoing(seed) for seed in range(150)) > 60


@pytest.mark.reliability
def test_k2_undoing_one_of_very_many_writes_is_as_if_it_had_never_been() -> None:
    assert sum(check_undoing(seed) for seed in range(150, 3000)) > 1000


def _merged(origin: Files, theirs: Files, ours: Files, replaced: list[str]) -> Files | None:
    """What a merge makes of ours; ``None`` if it is a conflict."""
    found: Files = {}
    for path in {*origin, *theirs, *ours}:
        was, wanted, now = origin.get(path), theirs.get(path), ours.get(path)
        if path.startswith(tuple(replaced)) or was == now:
            taken = wanted
        elif wanted in (was, now):
            taken = now
        else:
            return None
        if taken is not None:
            found[path] = taken
    return found


def check_undoing_beside_a_branch(seed: int) -> str:
    """Undo one of a few writes, of which some came by a merge; whose it was, or that it is a conflict."""
    random = Random(seed)
    with penstock.open(new_store()) as lake:
        write(lake, "x", "a/x", "a/b/x", "c/x")
        first = listed(lake, "main")
        before = _random_writes(lake, random, random.randint(0, 2))
        lake.branch("dev").create()
        ours = _random_writes(lake, random, random.randint(0, 3))
        theirs = _random_writes(lake, random, random.randint(1, 3), "dev")
        try:
            lake.merge("dev")
        except MergeConflict:
            return "conflict"
        later = _random_writes(lake, random, random.randint(0, 3))
        sides = {"before": before, "ours": ours, "theirs": theirs, "later": later}
        whose = random.choice([side for side, writes in sides.items() if writes])
        undone = random.choice(sides[whose])
        try:
            lake.revert(undone[0])
        except (MergeConflict, InvalidRequest):
            return "conflict"
        origin = _in_a_row(first, before, undone)
        left, right = (_in_a_row(origin, writes, undone) for writes in (ours, theirs))
        if origin is None or left is None or right is None:
            return "undefined"
        replaced = [one for each in theirs if each is not undone for one in each[1]["replaced"]]
        expected = _in_a_row(_merged(origin, right, left, replaced), later, undone)
        assert expected is None or listed(lake, "main") == expected, seed
        return "undefined" if expected is None else whose


def test_k2_undoing_a_write_is_so_also_where_a_merge_came_between() -> None:
    counts = Counter(check_undoing_beside_a_branch(seed) for seed in range(100))
    assert min(counts[whose] for whose in ("before", "ours", "theirs", "later")) > 5


@pytest.mark.reliability
@pytest.mark.parametrize("thousands", share(range(1, 5)))
def test_k2_undoing_one_of_many_writes_is_so_also_where_a_merge_came_between(
    thousands: int, record_counts: RecordCounts
) -> None:
    seeds = range(thousands * 1000, thousands * 1000 + 1000)
    counts = Counter(check_undoing_beside_a_branch(seed) for seed in seeds)
    record_counts(counts)
    assert min(counts[whose] for whose in ("before", "ours", "theirs", "later")) > 50


def test_an_overwrite_that_stands_in_part_does_not_come_again_where_it_was_undone_and_overwritten() -> None:
    with penstock.open(new_store()) as lake:
        write(lake, *overwrite_of(0, list(DAYS)), replaced=[""])
        lake.branch("dev").create()
        write(lake, *overwrite_of(1, list(DAYS)), branch="dev", replaced=[""])
        lake.transplant("dev")
        lake.revert("main")
        write(lake, *overwrite_of(2, [DAYS[1]]), replaced=[DAYS[1]])
        lake.revert("main~1")
        expected = sorted([*overwrite_of(1, [DAYS[0], DAYS[2]]), *overwrite_of(2, [DAYS[1]])])
        assert sorted(listed(lake, "main")) == expected
        lake.transplant("dev")
        assert sorted(listed(lake, "main")) == expected
