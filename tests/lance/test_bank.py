"""Money moves between two Lance tables, by several processes at once, one of which is killed.

A transfer is one transaction over both tables. Whoever reads both at one commit finds all the money, and
every transfer in both tables or in none.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.lake.lake import Lake
from tests.lance.bank_worker import SCHEMA, TABLES, Task
from tests.lance.processes import finish, started

pytest.importorskip("lance")

WORKER = "tests.lance.bank_worker"
ACCOUNTS = 4
BALANCE = 1000
ALL_MONEY = len(TABLES) * ACCOUNTS * BALANCE


class Seen(NamedTuple):
    """Both tables, as a reader found them."""

    money: int
    transfers: tuple[Counter[str], ...]
    """How often each transfer is in each of the tables."""


def make_bank(place: Path) -> None:
    import lance

    rows = [{"account": one, "balance": BALANCE, "transfers": []} for one in range(ACCOUNTS)]
    with penstock.open(place) as lake:
        lake.branch().create_namespace(TABLES[0][0])
        for table in TABLES:
            namespace = lake.lance()
            lance.write_dataset(
                pa.Table.from_pylist(rows, schema=SCHEMA), namespace_client=namespace, table_id=table
            )


def look(namespace: Any) -> Seen:
    import lance

    rows = [lance.dataset(namespace_client=namespace, table_id=one).to_table().to_pylist() for one in TABLES]
    return Seen(
        sum(row["balance"] for table in rows for row in table),
        tuple(Counter(name for row in table for name in row["transfers"]) for table in rows),
    )


def check(seen: Seen) -> None:
    left, right = seen.transfers
    assert seen.money == ALL_MONEY, "money was made or lost"
    assert left == right, f"a transfer is half done: {(left - right) + (right - left)}"
    doubled = [name for name, count in left.items() if count != 1]
    assert not doubled, f"transfers were made twice: {doubled}"


class Reader:
    """Reads both tables at one commit, again and again, and remembers what was wrong."""

    def __init__(self, place: Path) -> None:
        self._place, self._ended = place, Event()
        self.reads, self.commits, self.problems = 0, set[str](), list[BaseException]()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with penstock.open(self._place, create=False) as lake:
                before: Counter[str] = Counter()
                while not self._ended.is_set():
                    before = self._read(lake, before)
        except BaseException as problem:  # it is raised again by the test
            self.problems.append(problem)

    def _read(self, lake: Lake, before: Counter[str]) -> Counter[str]:
        commit = lake.branch().head
        seen = look(lake.lance(commit))
        check(seen)
        gone = before - seen.transfers[0]
        assert not gone, f"transfers are gone: {gone}"
        self.commits.add(commit)
        self.reads += 1
        return seen.transfers[0]


def landed(journal: Path) -> dict[str, int]:
    """The transfers that were said to have landed, and how often each had met a conflict."""
    lines = (line.split() for line in journal.read_text().splitlines())
    return {line[1]: int(line[2]) for line in lines if line[0] == "landed"}


def begun(journal: Path) -> set[str]:
    lines = (line.split() for line in journal.read_text().splitlines()) if journal.exists() else ()
    return {line[1] for line in lines if line[0] == "begun"}


def kill_while_it_works(victim: subprocess.Popen[str], journal: Path, chance: random.Random) -> None:
    """Kill a process somewhere in one of its first transfers."""
    wanted, deadline = chance.randrange(2, 6), time.monotonic() + 60
    while len(begun(journal)) < wanted:
        assert victim.poll() is None, victim.communicate()[1]
        assert time.monotonic() < deadline, "the victim does nothing"
        time.sleep(0.001)
    time.sleep(chance.random() * 0.1)  # where in the transfer is left to chance
    victim.kill()
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL


def move_money(tmp_path: Path, seed: int, each: int, victims: int) -> None:
    chance = random.Random(seed)
    place = tmp_path / "lake"
    make_bank(place)

    def task(name: str, count: int) -> Task:
        return Task(
            lake=str(place),
            journal=str(tmp_path / f"{name}.journal"),
            name=name,
            count=count,
            accounts=ACCOUNTS,
            seed=chance.randrange(2**32),
        )

    steady = [task(f"steady{number}", each) for number in range(3)]
    doomed = [task(f"doomed{number}", 10_000) for number in range(victims)]
    with Reader(place) as reader, started(WORKER, [*steady, *doomed]) as workers:
        for worker, one in zip(workers[len(steady) :], doomed, strict=True):
            kill_while_it_works(worker, Path(one.journal), chance)
        for worker in workers[: len(steady)]:
            finish(worker)
    if reader.problems:
        raise reader.problems[0]
    assert len(reader.commits) > 1, "nothing was read while money moved"
    finished = [landed(Path(one.journal)) for one in steady]
    assert [len(one) for one in finished] == [each] * len(steady)
    assert sum(sum(one.values()) for one in finished) > 0, "nobody ever met anybody"
    must = {name for one in (*steady, *doomed) for name in landed(Path(one.journal))}
    may = {name for one in (*steady, *doomed) for name in begun(Path(one.journal))}
    with penstock.open(place, create=False) as lake:
        seen = look(lake.lance())
        check(seen)
        assert must <= set(seen.transfers[0]) <= may, "a transfer is lost, or nobody's"
        damages = lake.fsck().damages
        assert not damages, damages[:5]


@pytest.mark.verify
def test_no_transfer_is_lost_doubled_or_half_done_by_processes_that_meet_and_die(
    tmp_path: Path, seed: int
) -> None:
    move_money(tmp_path, seed, each=20, victims=1)


@pytest.mark.reliability
def test_no_transfer_of_many_is_lost_doubled_or_half_done(tmp_path: Path, seed: int) -> None:
    move_money(tmp_path, seed, each=170, victims=3)
