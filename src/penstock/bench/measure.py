"""Writers at work for a while, and what they saw."""

from __future__ import annotations

from threading import Event, Thread
from time import perf_counter
from typing import Final

import msgspec

from penstock.bench.commit_strategies import CommitLoop, CommitStrategy
from penstock.bench.load import WriterLoad
from penstock.bench.tally_store import StoreTally, TallyStore

WARM_UP_MAX_S: Final = 30.0
POLL_S: Final = 0.01


class LoadMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a load within the measured time."""

    seconds: float
    latencies_s: tuple[float, ...]
    """Of every commit that was acknowledged within the time, the shortest first."""
    tally: StoreTally

    @property
    def commits(self) -> int:
        return len(self.latencies_s)

    @property
    def commits_per_s(self) -> float:
        """Commits a second."""
        return self.commits / self.seconds

    def latency_ms(self, share: float) -> float | None:
        """How long at most this part of the commits took."""
        if not self.latencies_s:
            return None
        return self.latencies_s[min(int(share * self.commits), self.commits - 1)] * 1000

    @property
    def commits_per_swap(self) -> float | None:
        return self.commits / self.tally.swaps if self.tally.swaps else None

    @property
    def calls_per_commit(self) -> float | None:
        """How often a commit, on average, waited for the store."""
        return self.tally.calls / self.commits if self.commits else None


class LoadWriters:
    """Threads that commit, one after the other each, until they are told to stop."""

    def __init__(self, load: WriterLoad, committing: CommitLoop, stop: Event) -> None:
        self._load, self._committing, self._stop = load, committing, stop
        self.landed: list[tuple[float, float]] = []
        """When each commit was acknowledged, and when it was begun."""
        self._problems: list[BaseException] = []
        self._go = Event()
        self._threads = [Thread(target=self._run_writer, args=(writer,)) for writer in range(load.writers)]

    def _run_writer(self, writer: int) -> None:
        self._go.wait()
        number = 0
        try:
            while not self._stop.is_set():
                branch, operation = self._load.branch(writer, number), self._load.next_operation(writer)
                begun = perf_counter()
                if self._committing.commit_once(writer, branch, operation):
                    self.landed.append((perf_counter(), begun))
                number += 1
        except BaseException as problem:  # noqa: BLE001 - it is raised again where the threads are joined
            self._problems.append(problem)
            self._stop.set()

    def start(self) -> None:
        """Let all begin at the same moment: threads that work already make it slow to start others."""
        for thread in self._threads:
            thread.start()
        self._go.set()

    def finish_writers(self) -> None:
        """Let each end the commit that it is at."""
        self._stop.set()
        self._go.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def warm_up(self, least_s: float) -> None:
        """Wait for so long, and until each writer has been everywhere once, if that does not take too long.

        By then the kernels hold in memory what they need, which takes a while where a store is far away.
        """
        self._stop.wait(least_s)
        end = perf_counter() + WARM_UP_MAX_S
        while not self._is_warm() and perf_counter() < end:
            self._stop.wait(POLL_S)
            if self._stop.is_set():
                return

    def _is_warm(self) -> bool:
        return all(
            tried >= self._load.round_commits(writer) for writer, tried in enumerate(self._committing.tries)
        )

    def raise_failure(self) -> None:
        """Raise what stopped a writer, if anything did."""
        if self._problems:
            raise self._problems[0]


def measure_writers(
    store: TallyStore, load: WriterLoad, strategy: CommitStrategy, seconds: float, warm_up_s: float
) -> LoadMeasurement:
    """Let the writers commit, and look at what they did between the end of the warm-up and the end.

    Whatever stops a writer stops all, and is raised here. Interrupted, it waits for the writers' last
    commits, so that nothing is written after it has returned.
    """
    stop = Event()
    writers = LoadWriters(load, strategy.start(store, load.writers, stop), stop)
    try:
        writers.start()
        writers.warm_up(warm_up_s)
        before, start = store.tally, perf_counter()
        stop.wait(seconds)
        after, end = store.tally, perf_counter()
    finally:
        writers.finish_writers()
    writers.raise_failure()
    latencies_s = sorted(ended - begun for ended, begun in writers.landed if start < ended <= end)
    return LoadMeasurement(seconds=end - start, latencies_s=tuple(latencies_s), tally=after - before)
