"""Two ways to land the same commits: Penstock's queue, and the loop that everybody writes first."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from threading import Event
from typing import Final

from penstock.bench.tally_store import TallyStore
from penstock.errors import OutcomeUnknown, TryAgainError
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.operations import Put
from penstock.stores.port import AdvanceResult, Row, Turn
from penstock.stores.wrapped import WrappedStore

META: Final = CommitMeta(message="bench", authors=("bench",))


class CommitStrategy(StrEnum):
    """How commits land."""

    GROUP_COMMIT = "group commit"
    NAIVE = "naive"

    def start(self, store: TallyStore, writers: int, stop: Event) -> CommitLoop:
        """Begin, with nothing in memory."""
        if self is CommitStrategy.NAIVE:
            return NaiveLoop(store, writers, stop)
        return GroupCommit(store, writers)


class CommitLoop(ABC):
    """A way at work, for some writers."""

    def __init__(self, writers: int) -> None:
        self.tries = [0] * writers
        """How often each writer has tried to land a commit, in vain or not."""

    @abstractmethod
    def commit_once(self, writer: int, branch: str, operation: Put) -> bool:
        """Land one commit; whether it landed, which it always has unless the time was up before."""


class GroupCommit(CommitLoop):
    """All writers share one kernel: what waits while a swap is under way lands by the next one, together."""

    def __init__(self, store: TallyStore, writers: int) -> None:
        super().__init__(writers)
        self._kernel = Kernel(store)

    def commit_once(self, writer: int, branch: str, operation: Put) -> bool:
        self._kernel.commit(branch, [operation], META)
        self.tries[writer] += 1
        return True


class NaiveLoop(CommitLoop):
    """Each writer on its own, as programs are that know nothing of each other.

    Read the head, build a commit on it, store its objects, swap; if somebody was faster, wait a random part
    of a time that doubles, and begin anew. The waits are the kernel's own. Who got no answer begins anew too,
    and may land the same twice: without a receipt nobody can tell.
    """

    def __init__(self, store: TallyStore, writers: int, stop: Event) -> None:
        super().__init__(writers)
        self._stop = stop
        settings = Settings(batch_max=1, tries_max=1)
        self._kernels = [Kernel(NaiveStore(store), settings=settings) for _ in range(writers)]

    def commit_once(self, writer: int, branch: str, operation: Put) -> bool:
        kernel = self._kernels[writer]
        wait_ms = kernel.settings.backoff_min_ms
        while not self._stop.is_set():
            try:
                kernel.commit(branch, [operation], META)
                return True
            except (TryAgainError, OutcomeUnknown):
                time.sleep(random.uniform(0, wait_ms) / 1000)
                wait_ms = min(wait_ms * 2, kernel.settings.backoff_max_ms)
            finally:
                self.tries[writer] += 1
        return False


class NaiveStore(WrappedStore):
    """Reads the row without a lock and compares it at the swap. For one writer."""

    def __init__(self, inner: TallyStore) -> None:
        super().__init__(inner)
        self.tallied = inner

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:  # noqa: ARG002 - it reads
        yield _NaiveTurn(self, name, self.inner.reference(name))


class _NaiveTurn(Turn):
    def __init__(self, store: NaiveStore, name: str, row: Row | None) -> None:
        self._store, self._name, self.row = store, name, row

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        tallied = self._store.tallied
        with tallied.turn(self._name, self.row) as turn:
            if turn.row == self.row:
                return turn.advance(objects, row, fresh)
        lost = AdvanceResult(False)
        tallied.count_swap(lost)
        return lost
