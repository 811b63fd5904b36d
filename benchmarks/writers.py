"""Threads that write at the same time, and what they saw."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread
from time import perf_counter
from typing import NamedTuple, TypeAlias

Write: TypeAlias = Callable[[int, int], object]
"""One commit: by which thread, and its how many-th."""


class Written(NamedTuple):
    """How many writes ended within the time, per second, and how long each took, shortest first."""

    rate: float
    latencies_s: list[float]

    def latency_ms(self, part: float) -> float:
        """How long at most this part of the writes took."""
        return self.latencies_s[min(int(part * len(self.latencies_s)), len(self.latencies_s) - 1)] * 1000


def write_for(seconds: float, threads: int, write: Write) -> Written:
    """Let threads write, one commit after the other each, for a time."""
    return _drive(threads, write, seconds, None)


def write_each(count: int, threads: int, write: Write) -> Written:
    """Let threads write so many commits each."""
    return _drive(threads, write, None, count)


def _drive(threads: int, write: Write, seconds: float | None, count: int | None) -> Written:
    barrier = Barrier(threads + 1)
    ended: list[tuple[float, float]] = []
    problems: list[BaseException] = []
    deadline = float("inf")

    def run(thread: int) -> None:
        barrier.wait()
        number = 0
        try:
            while (now := perf_counter()) < deadline and (count is None or number < count):
                write(thread, number)
                ended.append((perf_counter(), now))
                number += 1
        except BaseException as problem:  # noqa: BLE001 - it is raised again where the threads are joined
            problems.append(problem)

    running = [Thread(target=run, args=(thread,)) for thread in range(threads)]
    for one in running:
        one.start()
    start = perf_counter()
    if seconds is not None:
        deadline = start + seconds
    barrier.wait()
    for one in running:
        one.join()
    if problems:
        raise problems[0]
    took = seconds if seconds is not None else perf_counter() - start
    in_time = sum(end <= start + took for end, _ in ended)
    return Written(in_time / took, sorted(end - begun for end, begun in ended))
