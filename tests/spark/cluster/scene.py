"""A lake that drivers reach over a network, and what can be seen of it meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from penstock.errors import KeyNotFound
from penstock.formats.delta.lake.calls import CommitTables, CreateTable
from penstock.formats.files.lake.calls import WriteFiles
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import Call
from penstock.lake.lake import Lake
from tests.servers.proxy import Proxy

R = TypeVar("R")

LOOK_AGAIN_S = 0.05
WAIT_MAX_S = 120.0
LONG_AGO_S = 90 * 24 * 3600.0


class Stop:
    """A place that something comes to, and waits at until it is let go."""

    def __init__(self) -> None:
        self._reached, self._go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        assert self._go.wait(WAIT_MAX_S)

    def wait(self) -> None:
        assert self._reached.wait(WAIT_MAX_S), "nobody came"

    def go(self) -> None:
        self._go.set()


class Door:
    """The lake of the test that runs, as a server sees it: with something done before and after commits."""

    page_max: int | None = None

    def __init__(self) -> None:
        self.lake: Lake | None = None
        self.before: Callable[[], None] = _nothing
        self.after: Callable[[], None] = _nothing

    def open(self, lake: Lake) -> None:
        self.lake, self.before, self.after = lake, _nothing, _nothing

    @contextmanager
    def showing(self, lake: Lake) -> Iterator[None]:
        """Open to a lake while the block runs, and then to the one before it."""
        before = self.lake
        assert before is not None
        self.open(lake)
        yield
        self.open(before)

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        assert self.lake is not None
        is_commit = isinstance(call, CommitTables | CreateTable | WriteFiles)
        if is_commit:
            self.before()
        answer = self.lake.do(call, progress)
        if is_commit:
            self.after()
        return answer

    def close(self) -> None:
        pass


def _nothing() -> None:
    pass


class Scene:
    """A lake with its door, and the network before it."""

    def __init__(self, lake: Lake, door: Door, network: Proxy, directory: Path) -> None:
        self.lake, self.door, self.network, self.directory = lake, door, network, directory
        self._gates: list[Gate] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.network.port}"

    def ids(self, key: str = "orders", branch: str | None = None) -> list[int]:
        """The numbers in a table, in order, each as often as it is there."""
        try:
            rows = self.lake.table(key, branch).to_arrow(["id"])
        except KeyNotFound:
            return []
        return sorted(rows["id"].to_pylist())

    def leftovers(self, task: int | None = None) -> set[str]:
        """Data files below the table that no version of it has: all, or those of a task."""
        table = self.lake.table("orders")
        root = Path(table.location)
        there = {str(path.relative_to(root)) for path in root.rglob("*.parquet")}
        there = {name for name in there if not name.startswith("_delta_log/")}
        there -= {
            file.path for version in range(table.version + 1) for file in table.snapshot(version).files()
        }
        return there if task is None else {name for name in there if name.startswith(f"part-{task:05d}-")}

    def sweep(self) -> None:
        """Do what is done long after: what was left behind goes, and what is in the table stays."""
        before, root = self.ids(), Path(self.lake.table("orders").location)
        long_ago_s = time.time() - LONG_AGO_S
        for path in root.rglob("*.parquet*"):
            os.utime(path, (long_ago_s, long_ago_s))
        self.lake.sweep_tables("orders", remove_data=True)
        assert not self.leftovers()
        assert self.ids() == before

    def gate(self) -> Gate:
        """A file that a task waits for."""
        self._gates.append(Gate(self.directory / f"gate-{len(self._gates)}"))
        return self._gates[-1]

    def open_gates(self) -> None:
        """Let every attempt go on: one that waits when its test is over keeps a core from the next test."""
        for gate in self._gates:
            gate.go()

    @contextmanager
    def watched(self, *states: list[int], key: str = "orders") -> Iterator[None]:
        """A reader looks all the time, and must see one of these states, whole."""
        allowed = [sorted(state) for state in states]
        over = threading.Event()
        problems: list[Any] = []

        def look() -> None:
            try:
                while not over.wait(LOOK_AGAIN_S):
                    seen = self.ids(key)
                    if seen not in allowed:
                        problems.append(f"{len(seen)} rows, {len(set(seen))} different")
            except BaseException as problem:
                problems.append(problem)

        reader = threading.Thread(target=look)
        reader.start()
        try:
            yield
        finally:
            over.set()
            reader.join()
        assert not problems, problems


class Gate:
    """Files by which attempts say that they have come to a point, and one that lets them go on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def wait(self, attempt: int = 0) -> None:
        """Until an attempt is there."""
        wait_until(Path(f"{self._path}.{attempt}").exists)

    def wait_for_interrupt(self, attempt: int = 0) -> None:
        """Until Spark has told an attempt that is there to end: told while it writes, it removes its file."""
        wait_until(Path(f"{self._path}.{attempt}.interrupted").exists)

    def go(self) -> None:
        Path(f"{self._path}.go").touch()


def wait_until(happened: Callable[[], bool]) -> None:
    """Look again and again; fail if it does not come to pass."""
    deadline_s = time.monotonic() + WAIT_MAX_S
    while not happened():
        assert time.monotonic() < deadline_s, "it did not come to pass"
        time.sleep(LOOK_AGAIN_S)
