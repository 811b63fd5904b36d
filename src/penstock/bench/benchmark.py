"""A whole bench: every shape with every number of writers, both ways side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from penstock.bench.benchmark_lake import BenchmarkLake
from penstock.bench.commit_strategies import CommitStrategy
from penstock.bench.load import LoadShape, WriterLoad
from penstock.bench.measure import LoadMeasurement, measure_writers
from penstock.bench.tally_store import TallyStore

WRITERS: Final = (1, 16, 64)
SECONDS: Final = 5.0
WARM_UP_PART: Final = 0.2
"""How long the writers run at least before anything is counted, as a part of the time that is."""

Announce: TypeAlias = Callable[[LoadShape, int, CommitStrategy], None]
"""Called before each measurement."""


class BenchmarkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured."""

    shapes: tuple[LoadShape, ...] = tuple(LoadShape)
    writers: tuple[int, ...] = WRITERS
    naive: bool = True
    """Whether the naive loop is measured too."""
    seconds: float = SECONDS
    """How long each measurement takes."""

    @property
    def ways(self) -> tuple[CommitStrategy, ...]:
        return (
            (CommitStrategy.GROUP_COMMIT, CommitStrategy.NAIVE)
            if self.naive
            else (CommitStrategy.GROUP_COMMIT,)
        )

    @property
    def warm_up_s(self) -> float:
        return self.seconds * WARM_UP_PART

    @property
    def measurements(self) -> int:
        return len(self.shapes) * len(self.writers) * len(self.ways)

    @property
    def takes_s(self) -> float:
        """How long it takes at least, beside making and removing branches."""
        return self.measurements * (self.warm_up_s + self.seconds)


class BenchmarkComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One load, done by group commit and, if wanted, naively right after it."""

    shape: LoadShape
    writers: int
    group: LoadMeasurement
    naive: LoadMeasurement | None

    @property
    def times_naive(self) -> float | None:
        """How many times the naive loop's commits a second; nothing if that landed none."""
        return (
            self.group.commits_per_s / self.naive.commits_per_s
            if self.naive is not None and self.naive.commits
            else None
        )


def run_benchmark(
    site: BenchmarkLake, plan: BenchmarkPlan, announce: Announce = lambda *_: None
) -> Iterator[BenchmarkComparison]:
    """Measure one load after the other."""
    store = TallyStore(site.store)

    def measure_load(
        shape: LoadShape, writers: int, strategy: CommitStrategy, branches: Sequence[str]
    ) -> LoadMeasurement:
        announce(shape, writers, strategy)
        return measure_writers(
            store, WriterLoad(shape, writers, branches), strategy, plan.seconds, plan.warm_up_s
        )

    for shape in plan.shapes:
        branches = site.create_branches(shape.branches)
        for writers in plan.writers:
            measurements = [measure_load(shape, writers, way, branches) for way in plan.ways]
            naive = measurements[1] if len(measurements) > 1 else None
            yield BenchmarkComparison(shape=shape, writers=writers, group=measurements[0], naive=naive)
