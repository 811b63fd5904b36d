"""PostgreSQL under load: processes that are killed, connections that are cut, a server that crashes.

Nothing that was acknowledged is lost, nothing is applied twice, and whoever was left in doubt learns the
truth by asking again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.errors import OutcomeUnknown, PenstockError, Unavailable
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.stores import postgres_wire
from penstock.stores.port import Row, Store
from penstock.stores.postgres import PostgresStore
from penstock.testing import BROKEN, HistoryChecker, Recorder
from penstock.testing.broken import Broken
from penstock.testing.chain import read_chain
from penstock.testing.client import Client
from penstock.testing.contract_rows import swap
from penstock.testing.drill import new_lake
from penstock.testing.recorder import Answer, attempts
from penstock.testing.samples import row, sample
from penstock.testing.threads import at_once
from tests.chance import RecordCounts
from tests.reliability import processes
from tests.reliability.processes import check_lake, run_all
from tests.reliability.test_histories import threads_on
from tests.reliability.test_kills import AT_RANDOM, CHOSEN, QUICK, Kills
from tests.reliability.worker import Task, work
from tests.servers import postgresql, process
from tests.servers.proxy import Direction, Proxy
from tests.testing.test_broken import first_failure

WORKER = Path(__file__).with_name("postgres_worker.py")
PATIENT = Settings(write_timeout_s=60, tries_max=100_000)
HASTY = Settings(tries_max=1)


def at_port(url: str, port: int) -> str:
    """The same database behind another port."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}").geturl()


@contextmanager
def opened(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def lake(postgres_url: str) -> str:
    """The URL of a lake with an empty branch main."""
    with opened(postgres_url) as store:
        new_lake(store)
    return postgres_url


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    place = urlsplit(postgres_url)
    if place.hostname not in ("127.0.0.1", "localhost"):
        pytest.skip("the proxy stands before servers of this machine")
    with Proxy(place.port or 5432) as running:
        yield running


# -- histories -------------------------------------------------------------------------------------------


def histories(url: str, handles: int, threads: int, count: int, seed: int) -> HistoryChecker:
    stores: list[Store] = [PostgresStore(url) for _ in range(handles)]
    try:
        return threads_on(stores, threads, count, seed)
    finally:
        for store in stores:
            store.close()


@pytest.mark.parametrize("handles", [1, 3])
def test_threads_leave_one_history(handles: int, postgres_url: str, seed: int) -> None:
    checker = histories(postgres_url, handles, threads=8, count=20, seed=seed)
    assert any(one.answer is Answer.REFUSED for one in checker.attempts), "nobody met anybody"


@pytest.mark.reliability
@pytest.mark.parametrize("handles", [1, 3])
def test_threads_leave_one_history_for_long(handles: int, postgres_url: str, seed: int) -> None:
    histories(postgres_url, handles, threads=32, count=150, seed=seed)


# -- processes that are killed ---------------------------------------------------------------------------


class PostgresKills(Kills):
    """Rounds of killing on one lake in PostgreSQL."""

    def __init__(self, url: str, place: Path, seed: int) -> None:
        self._lake, self._place, self._chance = url, place, random.Random(seed)  # type: ignore[assignment]
        self.journals = []

    def _task(self, client: str, count: int, locking: bool, **special: Any) -> Task:
        journal = self._place / f"{client}.journal"
        self.journals.append(journal)
        return Task(
            lake=str(self._lake),
            journal=str(journal),
            client=client,
            count=count,
            seed=self._chance.randrange(2**32),
            locking=locking,
            **special,
        )


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes work on a lake in PostgreSQL."""
    monkeypatch.setattr(processes, "WORKER", WORKER)
    monkeypatch.setenv("PYTHONPATH", str(WORKER.parents[2]))


@pytest.fixture
def kills(lake: str, workers: None, tmp_path: Path, seed: int) -> PostgresKills:
    return PostgresKills(lake, tmp_path, seed)


@pytest.mark.parametrize("kill_at", QUICK)
def test_a_killed_process_leaves_a_whole_lake(kill_at: str, kills: PostgresKills) -> None:
    kills.round(kill_at, locking=True, count=30)


@pytest.mark.reliability
@pytest.mark.parametrize("locking", [True, False])
@pytest.mark.parametrize("kill_at", [*CHOSEN, AT_RANDOM])
def test_killed_processes_leave_a_whole_lake(kill_at: str, locking: bool, kills: PostgresKills) -> None:
    """12 times 10 kills."""
    for _ in range(10):
        kills.round(kill_at, locking, count=120)


def test_processes_leave_one_history(lake: str, workers: None, tmp_path: Path, seed: int) -> None:
    tasks = [
        Task(
            lake=lake,
            journal=str(tmp_path / f"process{number}.journal"),
            client=f"process{number}",
            count=60,
            seed=seed + number,
        )
        for number in range(2)
    ]
    assert run_all(tasks) == [0, 0]
    assert check_lake(lake, [Path(task.journal) for task in tasks]) > 60  # type: ignore[arg-type]


# -- connections that are cut in the middle of an advance ------------------------------------------------


class Cuts:
    """Advances over a connection that is cut somewhere in them, one after the other."""

    def __init__(self, far: PostgresStore, near: PostgresStore, proxy: Proxy, seed: int) -> None:
        self._far, self._near, self._proxy, self._chance = far, near, proxy, random.Random(seed)
        self._numbers = count()
        self.outcomes: Counter[tuple[str, str]] = Counter()

    def run(self, cuts: int) -> None:
        while self.outcomes.total() < cuts:
            self._advance(next(self._numbers))

    def _advance(self, number: int) -> None:
        before = self._near.reference("main")
        after = self._chance.choice(
            [row("main", data=b"%d" % number), row("main", "tag", b"%d" % number), None]
        )
        if before is None and after is None:
            after = row("main", data=b"anew")
        objects = sample(
            self._chance.choice([0, 3, 40]), f"advance {number}", self._chance.choice([20, 2000])
        )
        fresh = list(objects)[:2]
        direction: Direction = self._chance.choice(["to_server", "to_client"])
        most_bytes = 1500 + sum(map(len, objects.values())) if direction == "to_server" else 300
        with self._far.turn("main") as turn:
            assert turn.row == before
            cut = self._proxy.cut_after(direction, self._chance.randrange(most_bytes))
            try:
                outcome = "swapped" if turn.advance(objects, after, fresh).swapped else "lost"
            except OutcomeUnknown:
                outcome = "unknown"
            except Unavailable:
                outcome = "unavailable"
        self._proxy.forget_cut()
        truth = self._settled()
        assert truth in (before, after)
        landed = truth == after
        assert outcome != "lost"
        assert landed or outcome != "swapped", "an acknowledged swap is gone"
        assert not landed or outcome != "unavailable", "what surely did not happen has happened"
        found = self._near.fetch(list(objects))
        assert found == (objects if landed else {}), "all of an advance, or nothing of it"
        if cut.happened:
            self.outcomes[outcome, "landed" if landed else "nothing"] += 1

    def _settled(self) -> Row | None:
        """The row once whoever still holds it is done."""
        with self._near.turn("main") as turn:
            return turn.row


@pytest.fixture
def cuts(postgres_url: str, proxy: Proxy, seed: int) -> Iterator[Cuts]:
    with opened(postgres_url) as near, opened(at_port(postgres_url, proxy.port)) as far:
        yield Cuts(far, near, proxy, seed)


def test_an_advance_that_is_cut_happens_whole_or_not_at_all_and_nothing_wrong_is_said(cuts: Cuts) -> None:
    cuts.run(60)
    assert {("unknown", "landed"), ("unknown", "nothing")} <= cuts.outcomes.keys(), cuts.outcomes


@pytest.mark.reliability
def test_a_thousand_advances_that_are_cut_happen_whole_or_not_at_all(
    cuts: Cuts, record_counts: RecordCounts
) -> None:
    cuts.run(1000)
    record_counts({" and ".join(outcome): times for outcome, times in cuts.outcomes.items()})


def test_an_answer_that_is_swallowed_leaves_the_outcome_unknown(
    postgres_url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = at_port(postgres_url, proxy.port)
    with opened(postgres_url) as near, opened(f"{address}?connect_timeout=2") as far:
        with far.turn("main") as turn:
            monkeypatch.setattr(postgres_wire, "ANSWER_TIMEOUT_S", 0.1)
            proxy.fall_silent()
            with pytest.raises(OutcomeUnknown, match="no answer within"):
                turn.advance(sample(3), row("main"))
        with pytest.raises(Unavailable):
            far.reference("main")
        monkeypatch.undo()
        proxy.speak()
        assert near.reference("main") == row("main")
        assert far.reference("main") == row("main")
        assert swap(far, row("main", data=b"2")).swapped


def test_a_database_that_cannot_be_reached_for_a_while_is_used_again_at_once(
    postgres_url: str, proxy: Proxy
) -> None:
    with opened(at_port(postgres_url, proxy.port)) as far:
        swap(far, row("main"))
        proxy.refuse()
        proxy.cut_all()
        with pytest.raises(Unavailable, match="cannot be reached"):
            far.reference("main")
        with pytest.raises(Unavailable, match="cannot be reached"), far.turn("main"):
            pass
        proxy.accept()
        assert far.reference("main") == row("main")


# -- kernels whose connections are cut -------------------------------------------------------------------


class CutKernels:
    """Clients of several kernels on one lake, whose connections are cut while they work."""

    def __init__(self, lake: str, proxy: Proxy, seed: int) -> None:
        self._lake, self._proxy, self._chance = lake, proxy, random.Random(seed)
        self._recorders: list[Recorder] = []

    def run(self, cuts: int) -> Counter[Answer]:
        """Let them work until so many connections were cut; then settle what is in doubt, and check."""
        far = at_port(self._lake, self._proxy.port)
        stores = [PostgresStore(url) for url in (far, far, self._lake)]
        kernels = [
            Kernel(store, (), how) for store, how in zip(stores, (PATIENT, HASTY, PATIENT), strict=True)
        ]
        done = Event()
        try:
            workers = [partial(self._work, kernels[number % 3], number, done) for number in range(6)]
            at_once(*workers, partial(self._cut, cuts, done))
            self._settle(kernels[2])
            return self._check(kernels[2])
        finally:
            for store in stores:
                store.close()

    def _work(self, kernel: Kernel, number: int, done: Event) -> None:
        for part in count():
            if done.is_set():
                return
            recorder = Recorder(f"client{number}-{part}")
            self._recorders.append(recorder)
            work(Client(kernel, recorder), random.Random(f"{number} {part}"), 5)

    def _cut(self, cuts: int, done: Event) -> None:
        try:
            before = self._proxy.cuts
            while self._proxy.cuts < before + cuts:
                direction: Direction = self._chance.choice(["to_server", "to_client"])
                self._proxy.delay(self._chance.choice([0.0, 0.0, 0.001]))
                if not self._proxy.cut_after(direction, self._chance.randrange(6000)).wait(5.0):
                    self._proxy.cut_all()
        finally:
            self._proxy.delay(0.0)
            self._proxy.forget_cut()
            done.set()

    def _settle(self, kernel: Kernel) -> None:
        """Make every request again whose client was left in doubt."""
        heir = Recorder("heir")
        client = Client(kernel, heir)
        for attempt in self._attempts():
            if attempt.answer is Answer.UNKNOWN:
                with suppress(PenstockError):
                    client.repeat(attempt.call)
        self._recorders.append(heir)
        assert {one.answer for one in attempts(heir.events)} <= {Answer.OK, Answer.REFUSED}

    def _attempts(self) -> list[Any]:
        return attempts(event for recorder in self._recorders for event in recorder.events)

    def _check(self, kernel: Kernel) -> Counter[Answer]:
        checker = HistoryChecker(event for recorder in self._recorders for event in recorder.events)
        violations = checker.check(read_chain(kernel))
        assert not violations, "\n".join(map(str, violations[:20]))
        assert fsck(kernel).damages == ()
        return Counter(one.answer for one in checker.attempts)


def test_kernels_whose_connections_are_cut_leave_one_history(lake: str, proxy: Proxy, seed: int) -> None:
    answers = CutKernels(lake, proxy, seed).run(cuts=25)
    assert answers[Answer.OK] > 25, answers


@pytest.mark.reliability
def test_kernels_whose_connections_are_cut_for_long_leave_one_history(
    lake: str, proxy: Proxy, seed: int, record_counts: RecordCounts
) -> None:
    answers = CutKernels(lake, proxy, seed).run(cuts=600)
    record_counts({f"answers {answer.value}": times for answer, times in answers.items()})
    assert answers[Answer.UNKNOWN] > 0, "nobody was left in doubt"


# -- a server that crashes -------------------------------------------------------------------------------


class Crashing:
    """A PostgreSQL server of its own that can be killed and started again on what it left."""

    def __init__(self, server: postgresql.PostgresServer) -> None:
        self.url, self._port, self._directory = server.url, server.port, server.process.directory
        self._running, self._started = server.process, list[process.Process]()

    def crash(self) -> None:
        """Kill every process of the server at once; nothing is flushed, nobody is told."""
        pid = self._running.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        for each in (pid, *map(int, children)):
            wait_for_end(each)

    def start(self) -> None:
        program = postgresql.installed_programs() / "postgres"
        settings = [part for name, each in postgresql.SETTINGS.items() for part in ("-c", f"{name}={each}")]
        self._running = process.start(
            [program, "-D", self._directory / "data", "-p", str(self._port), *settings],
            self._directory,
            user="postgres" if os.geteuid() == 0 else "",
            stop_signal=signal.SIGQUIT,
        )
        self._started.append(self._running)
        self._running.wait_until(lambda: postgresql.answers(self.url))

    def stop(self) -> None:
        for each in self._started:
            each.stop()


def wait_for_end(pid: int) -> None:
    """Until a process is gone, or dead and only not yet buried."""
    deadline = time.monotonic() + 30
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def crashing() -> Iterator[Crashing]:
    try:
        with postgresql.started() as server:
            running = Crashing(server)
            try:
                yield running
            finally:
                running.stop()
    except process.Missing as missing:
        pytest.skip(str(missing))


def crash_under_load(crashing: Crashing, crashes: int, seed: int) -> Counter[Answer]:
    chance = random.Random(seed)
    stores = [PostgresStore(crashing.url) for _ in range(2)]
    new_lake(stores[0])
    kernels = [Kernel(store, (), PATIENT) for store in stores]
    recorders = [Recorder(f"client{number}") for number in range(6)]
    done = Event()

    def run(number: int) -> None:
        client, mine = Client(kernels[number % 2], recorders[number]), random.Random(seed + number)
        for part in count():
            if done.is_set():
                return
            client.recorder.client = f"client{number}-{part}"
            work(client, mine, 5)

    def crash() -> None:
        try:
            for _ in range(crashes):
                goal = sum(len(recorder.events) for recorder in recorders) + chance.randrange(300, 600)
                wait_until(lambda goal=goal: sum(len(recorder.events) for recorder in recorders) > goal)  # type: ignore[misc]
                crashing.crash()
                crashing.start()
            goal = sum(len(recorder.events) for recorder in recorders) + 300
            wait_until(lambda: sum(len(recorder.events) for recorder in recorders) > goal)
        finally:
            done.set()

    try:
        at_once(*(partial(run, number) for number in range(6)), crash)
        fresh = Kernel(stores[0])
        checker = HistoryChecker(event for recorder in recorders for event in recorder.events)
        violations = checker.check(read_chain(fresh))
        assert not violations, "\n".join(map(str, violations[:20]))
        assert fsck(fresh).damages == ()
        return Counter(one.answer for one in checker.attempts)
    finally:
        for store in stores:
            store.close()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.005)


def test_a_server_that_crashes_under_load_loses_nothing(crashing: Crashing, seed: int) -> None:
    answers = crash_under_load(crashing, 1, seed)
    assert answers[Answer.OK] > 100, answers


@pytest.mark.reliability
def test_a_server_that_crashes_again_and_again_loses_nothing(
    crashing: Crashing, seed: int, record_counts: RecordCounts
) -> None:
    answers = crash_under_load(crashing, 10, seed)
    record_counts({f"answers {answer.value}": times for answer, times in answers.items()})


def test_a_server_that_does_not_look_after_the_disk_is_named(crashing: Crashing) -> None:
    with opened(crashing.url) as store, psycopg.connect(crashing.url, autocommit=True) as administrator:
        assert store.check() == []
        administrator.execute("ALTER SYSTEM SET full_page_writes = off")
        administrator.execute("SELECT pg_reload_conf()")
        wait_until(lambda: store.check() != [])
        (problem,) = store.check()
        assert "full_page_writes off" in problem


# -- what is broken on purpose ---------------------------------------------------------------------------


@pytest.mark.reliability
@pytest.mark.parametrize(
    "broken", [one for one in BROKEN if "contract" in one.noticed_by], ids=lambda broken: broken.mistake
)
def test_what_is_broken_is_noticed_by_the_contract(broken: Broken, postgres_url: str) -> None:
    assert contract_on(postgres_url, broken.wrap) is not None, f"it {broken.mistake}"


@pytest.mark.reliability
def test_the_contract_notices_nothing_else(postgres_url: str) -> None:
    assert contract_on(postgres_url, lambda store: store) is None


def contract_on(url: str, wrap: Callable[[Store], Store]) -> str | None:
    handles: list[Store] = []

    def open_handle() -> Store:
        for store in handles[:-1]:
            store.close()
        handles[:-1] = []
        handles.append(wrap(PostgresStore(url)))
        return handles[-1]

    try:
        return first_failure(open_handle)
    finally:
        for store in handles:
            store.close()
