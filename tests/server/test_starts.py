"""Starts: reads of one caller begin a few at a time, by as few threads, whatever becomes of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.server import read_start_queue
from penstock.server.read_start_queue import AT_ONCE, ReadStarter
from penstock.server.threads import HandlerThreads

COUNT = 5 * AT_ONCE


class Reads:
    """Reads that wait at a gate, and what is known of those that have begun."""

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.threads: set[int] = set()
        self._now = self.most = 0
        self._lock = threading.Lock()

    def read(self, number: int) -> Callable[[], int]:
        def work() -> int:
            with self._lock:
                self.begun.append(number)
                self.threads.add(threading.get_ident())
                self._now += 1
                self.most = max(self.most, self._now)
            assert self.gate.acquire(timeout=30)
            with self._lock:
                self._now -= 1
            if number % 3 == 0:
                raise KeyError(number)
            return number

        return work

    def end(self, number: int) -> Callable[[], None]:
        return lambda: self.ended.append(number)


@pytest.fixture(autouse=True)
def _no_read_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_start_queue, "YOUNG_S", 3600.0)


async def wait_until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not what():  # noqa: ASYNC110 - threads do it
            await asyncio.sleep(0.001)


def test_all_reads_of_a_caller_are_done_by_a_few_threads_in_the_order_in_which_they_came() -> None:
    async def run() -> None:
        threads, reads = HandlerThreads(64), Reads()
        begun = ReadStarter(threads)
        futures = [begun.start_read("ada", reads.read(one), reads.end(one)) for one in range(COUNT)]
        await wait_until(lambda: len(reads.begun) == AT_ONCE)
        reads.gate.release(COUNT)
        answers = await asyncio.gather(*futures, return_exceptions=True)
        assert [one for one in answers if isinstance(one, int)] == [n for n in range(COUNT) if n % 3]
        assert sum(isinstance(one, KeyError) for one in answers) == len(range(0, COUNT, 3))
        assert sorted(reads.ended) == list(range(COUNT))
        assert reads.begun[:AT_ONCE] == list(range(AT_ONCE))
        assert (reads.most, len(reads.threads)) == (AT_ONCE, AT_ONCE)
        await wait_until(lambda: threads.busy == 0)
        assert not begun._lines, "nothing is kept of a caller whose reads have ended"
        threads.stop()

    asyncio.run(run())


def test_a_read_that_nobody_waits_for_any_more_is_not_begun() -> None:
    async def run() -> None:
        threads, reads = HandlerThreads(64), Reads()
        begun = ReadStarter(threads)
        futures = [begun.start_read("ada", reads.read(one), reads.end(one)) for one in range(COUNT)]
        await wait_until(lambda: len(reads.begun) == AT_ONCE)
        for future in futures[AT_ONCE : 2 * AT_ONCE]:
            future.cancel()
        reads.gate.release(COUNT)
        await asyncio.gather(*futures, return_exceptions=True)
        await wait_until(lambda: threads.busy == 0)
        assert sorted(reads.begun) == [*range(AT_ONCE), *range(2 * AT_ONCE, COUNT)]
        assert sorted(reads.ended) == list(range(COUNT)), "each gives its place back"
        threads.stop()

    asyncio.run(run())


def test_reads_that_come_while_others_end_are_all_done() -> None:
    """A thread may find nothing to do in the instant in which the next read comes."""

    async def run() -> None:
        threads, reads = HandlerThreads(64), Reads()
        begun = ReadStarter(threads)
        reads.gate.release(100_000)
        futures = []
        for one in range(3_000):
            futures.append(begun.start_read("ada", reads.read(one), reads.end(one)))
            if one % 7 == 0:
                await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await asyncio.gather(*futures, return_exceptions=True)
        await wait_until(lambda: threads.busy == 0)
        assert sorted(reads.ended) == list(range(3_000))
        assert not begun._lines
        threads.stop()

    asyncio.run(run())
