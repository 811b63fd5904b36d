"""Whatever happens to a lake, and whenever it is swept: what a reference leads to can be read."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import penstock
from penstock.errors import PenstockError
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.references import Kind
from tests.sweep.tables import LateClock, abandoned, data_files, ids, rows

STEPS = 40
KEYS = ("a", "b")

State = dict[str, list[int]]


class Story:
    """A lake to which random things happen. Every file looks older than the grace time as soon as it is
    written, and nothing else has any."""

    def __init__(self, lake: Lake, drawn: random.Random) -> None:
        self.lake, self.drawn = lake, drawn
        self.known: dict[str, State] = {}
        """What the tables had at every commit, as it was read when the commit was new."""
        self.left: dict[Path, set[str]] = {}
        """Files that were never committed, by the table's place."""
        self.removed = 0
        self.number = 0

    def next(self) -> None:
        steps, weights = zip(*self.steps.items(), strict=True)
        (step,) = self.drawn.choices(steps, weights)
        if step == self.sweep:
            step()
        else:
            with suppress(PenstockError):  # a key that is not there, a merge that conflicts: nothing happens
                step()
        for branch in self.lake.branches():
            self.note(branch.name)

    @property
    def steps(self) -> dict[Callable[[], object], int]:
        return {
            self.create: 4,
            self.append: 8,
            self.overwrite: 5,
            self.abandon: 5,
            self.branch: 3,
            self.merge: 3,
            self.drop: 1,
            self.delete: 2,
            self.revert: 1,
            self.upkeep: 2,
            self.expire: 1,
            self.sweep: 6,
        }

    def any_branch(self) -> str:
        return self.drawn.choice(self.lake.branches()).name

    def any_table(self) -> Table:
        there = [table for branch in self.lake.branches() for table in branch.tables()]
        return self.drawn.choice(there) if there else self.lake.table(KEYS[0])

    def some_rows(self) -> object:
        self.number += 1
        return rows(self.number)

    def create(self) -> None:
        self.lake.create_table(self.drawn.choice(KEYS), data=self.some_rows(), branch=self.any_branch())

    def append(self) -> None:
        self.any_table().append(self.some_rows())

    def overwrite(self) -> None:
        self.any_table().overwrite(self.some_rows())

    def abandon(self) -> None:
        table = self.any_table()
        root = Path(table.get_commits().location)
        folder = self.drawn.choice(("", "_penstock/data"))
        self.left.setdefault(root, set()).update(abandoned(self.lake, table, folder=folder))

    def branch(self) -> None:
        name = self.drawn.choice(("dev", "fix", "job"))
        make = self.lake.tag(f"{name}-tag") if self.drawn.random() < 0.3 else self.lake.branch(name)
        make.create(at=self.any_branch())

    def merge(self) -> None:
        self.lake.merge(self.any_branch(), self.any_branch())

    def drop(self) -> None:
        self.lake.branch(self.any_branch()).drop(self.drawn.choice(KEYS))

    def delete(self) -> None:
        name = self.any_branch()
        if name != "main":
            self.lake.branch(name).delete()

    def revert(self) -> None:
        branch = self.any_branch()
        self.lake.revert(branch, on=branch)

    def upkeep(self) -> None:
        key = self.drawn.choice(KEYS)
        self.lake.table(key).backfill_to_version()
        self.lake.delta.checkpoint(key)
        self.lake.delta.clean_log(key)

    def expire(self) -> None:
        self.lake.keep_history(max_commits=self.drawn.randint(1, 5))
        self.lake.sweep()

    def sweep(self) -> None:
        for one in self.lake.sweep_tables(remove_data=True):
            assert one.problem == ""
            root = Path(one.location)
            assert not self.left.pop(root, set()) & data_files(root)
            self.removed += one.data_files
        self.check()

    # -- what must be so ------------------------------------------------------------------------------------

    def note(self, name: str) -> None:
        """Remember what a branch's newest commit has."""
        head = self.lake.branch(name).head
        if head not in self.known:
            self.known[head] = self.state(head)

    def state(self, commit: str) -> State:
        return {str(key): ids(self.lake.table(key, commit)) for key, _ in self.lake.at(commit).entries()}

    def check(self) -> None:
        """All commits that are kept have the rows that they had, and older versions can be read."""
        names = [one.name for kind in (Kind.BRANCH, Kind.TAG) for one in self.lake.references(kind)]
        for name in names:
            for commit in self.lake.log(name, limit=None, all_parents=True):
                if commit.id in self.known:
                    assert self.state(commit.id) == self.known[commit.id]
            for key, _ in self.lake.at(name).entries():
                table = self.lake.table(key, name)
                log = table.get_commits()
                for version in range(max(0, log.published), log.latest_version + 1):
                    table.snapshot(version).to_arrow()


@pytest.mark.parametrize("number", range(3))
def test_nothing_that_a_reference_leads_to_is_ever_removed(tmp_path: Path, seed: int, number: int) -> None:
    settings = Settings(grace_s=0, data_grace_days=0.4, publish_wait_s=0.2, nobody_writes=True)
    with penstock.open(
        tmp_path / "lake", create=True, author="tester", settings=settings, clock=LateClock(0.5)
    ) as lake:
        story = Story(lake, random.Random(seed * 100 + number))
        for _ in range(STEPS):
            story.next()
        story.sweep()
        assert story.removed > 0, "it was swept, and there was something to sweep"
        assert lake.fsck().damages == ()
