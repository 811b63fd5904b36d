"""The sweep engine's argument for its safety, in a world of files that is too simple to be wrong.

While a sweep runs, writers write and commit, old files come back by reverts, history expires, the lake is
forked, and further sweeps begin: at random, between any two steps of the sweep. No file that a retained
commit or a fork references may be gone, and at the end all that nothing references is. Engines that are
broken on purpose have to be caught.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from penstock.lake.sweep_engine import Listing, SweepEngine, SweepTally, SweptFolder
from penstock.storage.buckets import BucketEntry, EntityTag
from penstock.storage.places import Place
from penstock.storage.sweep_decisions import JudgedFile, SweepDecision

GRACE_US = 1000
SKEW_US = GRACE_US // 2 - 1
"""By so much clocks differ: writers have half of the grace period, the other half is for this."""
ROUNDS = 100
FILES_MAX = 30


class Lost(AssertionError):
    """A file is gone that a retained commit references."""


class Fork:
    """A copy of the world's commits; the world cannot ask it what these are."""

    def __init__(self) -> None:
        self.until_us: int | None = None
        """What its note says; nothing while it is under way."""
        self.commits: list[frozenset[str]] | None = None


class World:
    """Files with their times, commits, and writers who are yet to commit."""

    def __init__(self, drawn: random.Random) -> None:
        self.drawn, self.now_us = drawn, GRACE_US * 10
        self.files: dict[str, int] = {}
        self.commits: list[frozenset[str]] = []
        """The retained ones, oldest first. The last is the head."""
        self.writers: list[tuple[str, int]] = []
        """The file of each, and until when it may be committed."""
        self.forks: list[Fork] = []
        self.depth = self.count = self.removed = 0
        self.removing: set[Folder] = set()
        """Sweeps that have looked again, and are about to remove."""

    def step(self) -> None:
        """Something happens, or nothing does."""
        deeds = (self.write, self.commit, self.commit, self.commit_late, self.revert, self.expire, self.wait)
        self.drawn.choice((*deeds, self.fork, self.sweep, self.rest))()

    def rest(self) -> None:
        """Nothing happens."""

    def wait(self) -> None:
        self.now_us += self.drawn.randrange(GRACE_US // 3)

    def write(self) -> None:
        """The storage has another clock than the lake. A writer reckons by the lake's."""
        if len(self.files) > FILES_MAX:
            return  # what forks keep adds up
        self.count += 1
        name = f"{self.count:06}"
        self.files[name] = self.now_us + self.drawn.randint(-SKEW_US, SKEW_US)
        self.writers.append((name, self.now_us + GRACE_US // 2))

    def commit(self) -> None:
        """A writer commits; too late is refused. Some remove what was there."""
        if self.writers:
            name, until_us = self.writers.pop(self.drawn.randrange(len(self.writers)))
            if self.now_us <= until_us:
                kept = {one for one in self.head if self.drawn.random() < 0.7}
                self.commits.append(frozenset({*kept, name}))

    def commit_late(self) -> None:
        """A file is committed that is too old to be, as a foreign writer may: it stays, if it was not yet
        being removed."""
        if (late := self.files.keys() - self.referenced) and not self.removing:
            self.commits.append(self.head | {self.drawn.choice(sorted(late))})

    def revert(self) -> None:
        if self.commits:
            self.commits.append(self.drawn.choice(self.commits))

    def expire(self) -> None:
        del self.commits[: max(0, len(self.commits) - self.drawn.randint(1, 5))]

    def fork(self) -> None:
        """A fork begins, by its note, or goes on: it copies commits, is complete, and is removed some day."""
        if not self.forks:
            self.forks.append(Fork())
        elif (fork := self.forks[-1]).commits is None:
            fork.commits = [*self.commits]
        elif fork.until_us is None:
            fork.until_us = self.now_us + SKEW_US
        else:
            self.forks.clear()

    def pinned_us(self) -> int:
        self.step()
        return max((2**63 if one.until_us is None else one.until_us for one in self.forks), default=-1)

    def sweep(self) -> None:
        """Another sweep begins, and ends, while one goes on."""
        if self.depth < 2:
            self.depth += 1
            sweep(self, SweepEngine)
            self.depth -= 1

    @property
    def head(self) -> frozenset[str]:
        return self.commits[-1] if self.commits else frozenset()

    @property
    def referenced(self) -> set[str]:
        return {name for commit in self.commits for name in commit}

    def check(self) -> None:
        of_forks = {name for fork in self.forks for commit in fork.commits or () for name in commit}
        if lost := (self.referenced | of_forks) - self.files.keys():
            raise Lost(sorted(lost))


class Folder:
    """The one folder of a world. Between any two steps of a sweep, other things happen."""

    def __init__(self, world: World) -> None:
        self.world, self.known = world, set[str]()

    def gather_references(self) -> None:
        self.world.step()
        self.known |= self.world.referenced

    def judge_files(self, listing: Listing) -> Iterator[JudgedFile]:
        before_us = self.world.now_us - GRACE_US
        for entry in listing(cast("Place", self), ""):
            self.world.removing.discard(self)
            if entry.key in self.known:
                yield JudgedFile(entry, SweepDecision.KEPT)
            else:
                yield JudgedFile(
                    entry, SweepDecision.DATA if entry.modified_us < before_us else SweepDecision.WAITING
                )

    def entries(self, _folder: str) -> Iterator[BucketEntry]:
        for name in sorted(self.world.files):
            self.world.step()
            if name in self.world.files:
                yield BucketEntry(name, 1, self.world.files[name], cast("EntityTag", None))

    def gather_new_references(self) -> None:
        self.world.step()
        self.known |= self.world.referenced
        self.world.removing.add(self)
        self.world.step()

    def judge_file_again(self, candidate: JudgedFile) -> SweepDecision:
        return SweepDecision.KEPT if candidate.entry.key in self.known else candidate.fate

    def delete_files(self, files: Sequence[JudgedFile]) -> None:
        for one in files:
            self.world.step()
            self.world.removed += self.world.files.pop(one.entry.key, None) is not None
            self.world.check()
        self.world.removing.discard(self)

    def tidy_after_sweep(self, tally: SweepTally) -> None:
        self.world.removing.discard(self)
        self.world.check()


def sweep(world: World, kind: type[SweepEngine]) -> None:
    batch = world.drawn.choice((1, 2, 100))
    engine = kind(remove_data=True, dry_run=False, pinned_us=world.pinned_us, batch=batch)
    engine.sweep_folder(Folder(world), SweepTally())


def live(seed: int, kind: type[SweepEngine]) -> World:
    """A life of a world; at the end nothing is left that nothing references."""
    world = World(random.Random(seed))
    for _ in range(ROUNDS):
        world.step()
        if world.drawn.random() < 0.3:
            sweep(world, kind)
        world.check()
    world.writers.clear()
    world.forks.clear()
    world.now_us += 3 * GRACE_US
    world.step = world.rest  # type: ignore[method-assign]
    sweep(world, kind)
    assert world.files.keys() == world.referenced
    return world


@pytest.mark.parametrize("number", range(20))
def test_no_file_that_a_retained_commit_references_is_removed(seed: int, number: int) -> None:
    assert live(seed * 1000 + number, SweepEngine).removed > 0, "there was something to sweep"


# -- engines that are broken on purpose --------------------------------------------------------------------


class _NeverAgain:
    """A folder that is not looked at again."""

    def __init__(self, folder: SweptFolder) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> object:
        return getattr(self._folder, name)

    def gather_new_references(self) -> None:
        """Not done."""


class LooksOnce(SweepEngine):
    """References are gathered before the listing only."""

    def sweep_folder(self, folder: SweptFolder, tally: SweepTally) -> None:
        super().sweep_folder(cast("SweptFolder", _NeverAgain(folder)), tally)


class ListsFirst(SweepEngine):
    """Files are judged before references are known, and not again."""

    def sweep_folder(self, folder: SweptFolder, tally: SweepTally) -> None:
        judged = [*folder.judge_files(self._list_entries)]
        folder.gather_references()
        folder.delete_files([one for one in judged if one.fate.is_to_go])
        for one in judged:
            tally.count_file(one)


class JudgesOnce(SweepEngine):
    """References are gathered again, and candidates are not judged by them."""

    def _remove_candidates(
        self, folder: SweptFolder, candidates: Sequence[JudgedFile], tally: SweepTally
    ) -> None:
        if candidates:
            folder.gather_new_references()
            folder.delete_files(candidates)


class RemovesYoungFiles(SweepEngine):
    """The grace period is not heeded."""

    def sweep_folder(self, folder: SweptFolder, tally: SweepTally) -> None:
        folder.gather_references()
        young = [one for one in folder.judge_files(self._list_entries) if one.fate is not SweepDecision.KEPT]
        self._remove_candidates(folder, [JudgedFile(one.entry, SweepDecision.DATA) for one in young], tally)


class RemovesOneBatch(SweepEngine):
    """What is beyond the first batch stays."""

    def _remove_candidates(
        self, folder: SweptFolder, candidates: Sequence[JudgedFile], tally: SweepTally
    ) -> None:
        if not tally.files[SweepDecision.DATA]:
            super()._remove_candidates(folder, candidates[:1], tally)


class IgnoresForks(SweepEngine):
    """Notes of forks are not looked for."""

    def _remove_candidates(
        self, folder: SweptFolder, candidates: Sequence[JudgedFile], tally: SweepTally
    ) -> None:
        self._pinned_us = lambda: -1
        super()._remove_candidates(folder, candidates, tally)


class LooksForForksOnce(SweepEngine):
    """Notes of forks are looked for at the beginning only."""

    def sweep_folder(self, folder: SweptFolder, tally: SweepTally) -> None:
        pinned_us = self._pinned_us()
        self._pinned_us = lambda: pinned_us
        super().sweep_folder(folder, tally)


BROKEN = [
    *(LooksOnce, ListsFirst, JudgesOnce, RemovesYoungFiles, RemovesOneBatch),
    *(IgnoresForks, LooksForForksOnce),
]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_engine_is_caught(seed: int, kind: type[SweepEngine]) -> None:
    def live_often() -> None:
        for number in range(60):
            live(seed * 1000 + number, kind)

    with pytest.raises(AssertionError):
        live_often()


@pytest.mark.parametrize(("remove_data", "dry_run"), [(False, False), (True, True), (False, True)])
def test_nothing_is_removed_that_was_not_to_be(remove_data: bool, dry_run: bool) -> None:
    world, tally = World(random.Random(1)), SweepTally()
    world.step = world.rest  # type: ignore[method-assign]
    world.files = {"old": 0, "young": world.now_us}
    engine = SweepEngine(remove_data=remove_data, dry_run=dry_run, pinned_us=lambda: -1)
    engine.sweep_folder(Folder(world), tally)
    assert world.files.keys() == {"old", "young"}
    assert (tally.names, tally.files[SweepDecision.WAITING], tally.youngest_us) == (["old"], 1, world.now_us)
