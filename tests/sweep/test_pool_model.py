"""Whatever happens to tables of files, and whenever they are swept: what a commit names can be read, what a
job wrote can be committed, and in the end nothing else is left."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import penstock
from penstock.errors import PenstockError
from penstock.formats.files.lake.answers import JobBegun
from penstock.formats.files.lake.calls import AbortJob, ListJobs
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.references import Kind
from tests.sweep.pool import Pool, swept
from tests.sweep.tables import LateClock

STEPS = 120
KEYS = ("a", "b")
TICK_DAYS = 0.15
GRACE_DAYS = 2.0

State = dict[str, dict[str, bytes]]


class Story:
    """A lake to which random things happen while days go by. Files look as if all were written on the first
    day, so that only what the lake knows keeps them."""

    def __init__(self, lake: Lake, clock: LateClock, drawn: random.Random) -> None:
        self.lake, self.clock, self.drawn, self.pool = lake, clock, drawn, Pool(lake)
        self.known: dict[str, State] = {}
        """What the tables had at every commit, as it was read when the commit was new."""
        self.running: dict[str, tuple[JobBegun, list[str]]] = {}
        self.landed = self.removed = self.number = 0

    def next(self) -> None:
        self.clock.days += TICK_DAYS
        steps, weights = zip(*self.steps.items(), strict=True)
        (step,) = self.drawn.choices(steps, weights)
        if step in (self.sweep, self.commit_job):
            step()
        else:
            with suppress(PenstockError):  # a key that is not there, a merge that conflicts: nothing happens
                step()
        for branch in self.lake.branches():
            self.note(branch.name)

    @property
    def steps(self) -> dict[Callable[[], object], int]:
        return {
            self.put: 6,
            self.replace: 4,
            self.remove: 3,
            self.copy: 3,
            self.abandon: 4,
            self.begin_job: 5,
            self.commit_job: 5,
            self.abort_job: 2,
            self.supersede_job: 2,
            self.branch: 3,
            self.merge: 3,
            self.drop: 1,
            self.delete: 2,
            self.revert: 1,
            self.expire: 2,
            self.sweep: 8,
        }

    def any_key(self) -> str:
        return self.drawn.choice(KEYS)

    def any_branch(self) -> str:
        return self.drawn.choice([one for one in self.lake.branches() if "/" not in one.name]).name

    def some_names(self) -> list[str]:
        self.number += 1
        folder = self.drawn.choice(("", "p=1/", "p=2/"))
        return [f"{folder}{self.number}-{each}" for each in range(self.drawn.randint(1, 4))]

    def put(self) -> None:
        self.pool.write(self.any_key(), *self.some_names(), branch=self.any_branch())

    def replace(self) -> None:
        replaced = (self.drawn.choice(("", "p=1/", "p=2/")),)
        self.pool.write(self.any_key(), *self.some_names(), branch=self.any_branch(), replaced=replaced)

    def remove(self) -> None:
        key, branch = self.any_key(), self.any_branch()
        self.pool.remove(key, self.drawn.choice(sorted(self.pool.read(key, branch)) or [""]), branch=branch)

    def copy(self) -> None:
        key, branch = self.any_key(), self.any_branch()
        source = self.drawn.choice(sorted(self.pool.read(key, branch)) or [""])
        self.pool.copy(key, source, f"copy-of/{source}", self.any_key(), branch)

    def abandon(self) -> None:
        self.pool.put(self.pool.folder(), *self.some_names())

    # -- jobs ----------------------------------------------------------------------------------------------

    def begin_job(self) -> None:
        begun = self.pool.begin(
            self.any_key(), branch=self.any_branch(), own_branch=self.drawn.random() < 0.3
        )
        self.take(begun)

    def take(self, begun: JobBegun) -> None:
        names = self.some_names()
        self.pool.put(self.pool.below(begun), *names)
        self.running[begun.job.id] = begun, names

    def any_job(self) -> str:
        return self.drawn.choice([*self.running])

    def commit_job(self) -> None:
        """A job whose time is not over can commit what it wrote, or is refused for what its branch has."""
        if not self.running:
            return
        begun, names = self.running.pop(self.any_job())
        written = {self.pool.below(begun) + name for name in names}
        assert written <= self.pool.files() or self.is_late(begun)
        with suppress(PenstockError):
            self.pool.commit(begun, *names)
            self.landed += 1

    def is_late(self, begun: JobBegun) -> bool:
        return begun.job.expires.timestamp() * 1e6 < self.clock()

    def abort_job(self) -> None:
        if self.running:
            job = self.any_job()
            del self.running[job]
            self.lake.do(AbortJob(id=job))

    def supersede_job(self) -> None:
        if self.running:
            begun, _ = self.running[self.any_job()]
            self.take(self.pool.begin(begun.job.key, begun.job.id, branch=begun.job.branch))

    # -- branches ------------------------------------------------------------------------------------------

    def branch(self) -> None:
        name = self.drawn.choice(("dev", "fix"))
        make = self.lake.tag(f"{name}-tag") if self.drawn.random() < 0.3 else self.lake.branch(name)
        make.create(at=self.any_branch())

    def merge(self) -> None:
        self.lake.merge(self.any_branch(), self.any_branch())

    def drop(self) -> None:
        self.lake.branch(self.any_branch()).drop(self.any_key())

    def delete(self) -> None:
        name = self.any_branch()
        if name != "main":
            self.lake.branch(name).delete()

    def revert(self) -> None:
        branch = self.any_branch()
        self.lake.revert(branch, on=branch)

    def expire(self) -> None:
        self.lake.keep_history(max_commits=self.drawn.randint(1, 4))
        self.lake.sweep()

    def sweep(self) -> None:
        self.removed += swept(self.lake).data_files
        self.check()

    # -- what must be so -----------------------------------------------------------------------------------

    def note(self, name: str) -> None:
        """Remember what a branch's newest commit has."""
        head = self.lake.branch(name).head
        if head not in self.known:
            self.known[head] = self.state(head)

    def state(self, commit: str) -> State:
        return {str(key): self.pool.read(str(key), commit) for key, _ in self.lake.at(commit).entries()}

    def commits(self) -> set[str]:
        """Those that are kept, as a process sees it that has none in memory."""
        found: set[str] = set()
        with penstock.open(self.lake.url, settings=self.lake.kernel.settings, clock=self.clock) as fresh:
            for name in [one.name for kind in (Kind.BRANCH, Kind.TAG) for one in fresh.references(kind)]:
                found.update(one.id for one in fresh.log(name, limit=None, all_parents=True))
        return found & self.known.keys()

    def check(self) -> None:
        """All commits that are kept have the files that they had."""
        for commit in self.commits():
            assert self.state(commit) == self.known[commit]

    def check_nothing_else_is_left(self) -> None:
        states = [self.known[commit] for commit in self.commits()]
        named = {data for state in states for files in state.values() for data in files.values()}
        there = {name.split("/", 2)[2].encode() for name in self.pool.files()}
        assert there == named


@pytest.mark.parametrize("number", range(3))
def test_nothing_that_is_needed_is_ever_removed_and_in_the_end_nothing_else_is_left(
    tmp_path: Path, seed: int, number: int
) -> None:
    clock = LateClock(GRACE_DAYS)
    settings = Settings(
        grace_s=0, data_grace_days=GRACE_DAYS, idempotency_days=GRACE_DAYS, nobody_writes=True
    )
    with penstock.open(
        tmp_path / "lake", create=True, author="tester", settings=settings, clock=clock
    ) as lake:
        story = Story(lake, clock, random.Random(seed * 100 + number))
        story.put()
        for _ in range(STEPS):
            story.next()
        assert story.removed > 0, "it was swept, and there was something to sweep"
        assert story.landed > 0, "and jobs have landed"
        clock.days += 20
        lake.sweep()
        story.sweep()
        story.check_nothing_else_is_left()
        assert lake.do(ListJobs(all=True)) == ()
        assert not [one.name for one in lake.branches() if one.name.startswith("jobs/")]
        assert lake.fsck().damages == ()
