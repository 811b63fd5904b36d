"""The engine that publishes in the background, with a back end that puts numbers into a dict."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from penstock.errors import Denied, ForeignCommit, InvalidLog, InvalidRequest, PenstockError, Unavailable
from penstock.formats import publisher as module
from penstock.formats.delta import metrics
from penstock.formats.publisher import BackgroundPublisher, JobId, PublisherProfile, TableBacklog
from penstock.kernel.leases import Leases
from penstock.metrics.memory import Metrics
from penstock.model.keys import Key
from penstock.storage.places import Places
from penstock.stores.memory import MemoryStore
from penstock.testing.faults import Gate

WAIT_S = 30.0
AT_ONCE_S = 0.0
PROFILE = PublisherProfile(
    name="penstock-test-publisher",
    published="published",
    publishing="publishing",
    versions=metrics.UNPUBLISHED,
    seconds=metrics.UNPUBLISHED_SECONDS,
    errors=metrics.PUBLISH_ERRORS,
    foreign=metrics.FOREIGN,
)
TABLE = UUID(int=1)


class Number(NamedTuple):
    """Versions of a table up to a number."""

    number: int
    table: UUID = TABLE
    part: str = "log"
    location: str = "/w/t"

    @property
    def id(self) -> JobId:
        return JobId(self.table, self.part, self.part == "follow up")

    @property
    def key(self) -> Key:
        return Key(f"t{self.table.int}")


Hook = Callable[[Number], None]


class Copies(BackgroundPublisher[Number, TableBacklog]):
    """Numbers are copied to a dict, each after the one before it and never over another one."""

    def __init__(
        self, there: dict[tuple[UUID, int], str] | None = None, who: str = "me", **given: Any
    ) -> None:
        self.meter = Metrics()
        super().__init__(PROFILE, meter=self.meter, clock=lambda: 5_000_000, **given)
        self.there = {} if there is None else there
        self.who, self.lock = who, Lock()
        self.order: list[Number] = []
        self.at_task: Hook = lambda _: None
        self.dropped: set[UUID] = set()

    def merge_tasks(self, pending: Sequence[Number], task: Number, *, is_taken: bool) -> list[Number]:
        return [task]

    def publish_task(self, task: Number) -> None:
        self.at_task(task)
        for number in range(1, task.number + 1):
            with self.lock:
                if self.there.setdefault((task.table, number), self.who) == "somebody else":
                    raise ForeignCommit(f"{number} is somebody else's", version=number)
        self.order.append(task)

    def describe_task(self, task: Number, problem: PenstockError | None) -> TableBacklog | None:
        left = [number for number in range(1, task.number + 1) if (task.table, number) not in self.there]
        if not left:
            return None
        return TableBacklog(
            key=task.key,
            id=task.table,
            location=task.location,
            versions=len(left),
            since_us=left[0],
            problem=problem,
        )

    def is_dropped(self, pending: Sequence[Number]) -> bool:
        return pending[-1].table in self.dropped

    def numbers(self, table: UUID = TABLE) -> list[int]:
        return [number for one, number in self.there if one == table]

    def is_done(self, number: int, timeout_s: float = WAIT_S) -> bool:
        return self.wait_for(JobId(TABLE, "log"), lambda _: number in self.numbers(), timeout_s)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for before it is tried again."""
    monkeypatch.setattr(module, "PAUSE_MAX_S", 0.0)


@pytest.fixture
def engine() -> Iterator[Copies]:
    engine = Copies()
    yield engine
    engine.close(WAIT_S)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def fail_times(count: int, problem: PenstockError) -> Hook:
    left = iter(range(count))

    def fail(_: Number) -> None:
        if next(left, None) is not None:
            raise problem

    return fail


def pass_gate_at(gate: Gate, task: Number) -> Hook:
    return lambda given: gate() if given == task else None


# --- tasks ---


def test_what_is_added_is_published_and_its_job_is_forgotten(engine: Copies) -> None:
    engine.add_task(Number(3))
    assert engine.finish(WAIT_S) == {}
    assert engine.numbers() == [1, 2, 3]
    assert engine.jobs == {}


def test_a_task_that_comes_while_the_job_is_worked_on_is_published_after_it(
    engine: Copies, gate: Gate
) -> None:
    engine.at_task = pass_gate_at(gate, Number(1))
    engine.add_task(Number(1))
    gate.wait_until_reached()
    engine.add_task(Number(2))
    gate.open()
    assert engine.finish(WAIT_S) == {}
    assert engine.order == [Number(1), Number(2)]


def test_a_task_that_comes_as_the_queue_is_drained_is_not_left(engine: Copies) -> None:
    """From the work itself, at the last moment at which the job is still taken."""

    def add_next(task: Number) -> None:
        if task.number < 50:
            engine.add_task(Number(task.number + 1))

    engine.at_task = add_next
    engine.add_task(Number(1))
    assert engine.is_done(50)
    engine.close(WAIT_S)
    assert [task.number for task in engine.order] == list(range(1, 51))


def test_a_follow_up_waits_until_nothing_else_is_ready_and_is_waited_for(
    engine: Copies, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "THREADS_MAX", 1)
    tables = [UUID(int=number) for number in (2, 3)]
    engine.at_task = pass_gate_at(gate, Number(1))
    engine.add_task(Number(1))
    gate.wait_until_reached()
    engine.add_task(Number(1, part="follow up"))
    for table in tables:
        engine.add_task(Number(1, table))
    gate.open()
    assert engine.finish(WAIT_S) == {}
    assert [(task.table.int, task.part) for task in engine.order][-1] == (1, "follow up")
    assert len(engine.order) == 4


def test_what_a_caller_publishes_himself_needs_no_thread() -> None:
    engine = Copies(background=False)
    engine.add_task(Number(1))
    assert engine.publish_here(Number(2), WAIT_S) is None
    assert engine.order == [Number(2)], "the newest has what those before it have"
    engine.add_task(Number(3))
    assert engine.order == [Number(2)]
    assert [job.pending for job in engine.jobs.values()] == [[Number(3)]]


def test_what_is_done_by_others_is_taken_from_the_queue() -> None:
    engine = Copies(background=False)
    engine.add_task(Number(2))
    engine.discard_finished_tasks(Number(2).id, lambda task: task.number <= 1)
    assert [job.pending for job in engine.jobs.values()] == [[Number(2)]]
    engine.discard_finished_tasks(Number(2).id, lambda task: task.number <= 2)
    assert engine.jobs == {}


def test_what_earlier_processes_left_is_looked_up_and_waited_for(engine: Copies, gate: Gate) -> None:
    def look() -> None:
        gate()
        engine.add_task(Number(2))

    assert engine.await_catch_up(AT_ONCE_S), "nothing is looked up yet"
    engine.catch_up(look)
    gate.wait_until_reached()
    assert not engine.await_catch_up(AT_ONCE_S)
    gate.open()
    assert engine.await_catch_up(WAIT_S)
    assert engine.finish(WAIT_S) == {}
    assert engine.numbers() == [1, 2]


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_look_that_fails_is_reported_unless_the_lake_is_closed_meanwhile(
    engine: Copies,
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_closed: bool,
) -> None:
    monkeypatch.setattr(module, "CATCH_UP_END_S", AT_ONCE_S)

    def look() -> None:
        gate()
        raise Unavailable("the store is away")

    engine.catch_up(look)
    gate.wait_until_reached()
    if is_closed:
        engine.close(AT_ONCE_S)
    gate.open()
    assert engine.await_catch_up(WAIT_S)
    reported = ["it is not known which tables still have to be published: the store is away"]
    assert [record.message for record in caplog.records] == reported * (not is_closed)


def test_a_task_that_is_worked_on_stays_pending_until_its_thread_leaves_it(
    engine: Copies, gate: Gate
) -> None:
    engine.at_task = lambda _: gate()
    engine.add_task(Number(1))
    gate.wait_until_reached()
    engine.discard_finished_tasks(Number(1).id, lambda _: True)
    assert engine.finish(AT_ONCE_S) == {Key("t1"): None}
    gate.open()
    assert engine.finish(WAIT_S) == {}


# --- failures ---


def test_a_task_that_fails_is_tried_until_it_is_published(engine: Copies, quick: None) -> None:
    engine.at_task = fail_times(20, Unavailable("storage is away"))
    engine.add_task(Number(1))
    assert engine.finish(WAIT_S) == {}
    assert engine.numbers() == [1]
    assert engine.meter.snapshot().count(metrics.PUBLISH_ERRORS) == 20


def test_a_problem_is_logged_once_as_long_as_it_is_the_same(
    engine: Copies, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    engine.at_task = fail_times(5, Unavailable("storage is away"))
    engine.add_task(Number(1))
    assert engine.finish(WAIT_S) == {}
    assert [record.message for record in caplog.records] == ["not published: storage is away"]


def test_what_is_tried_again_in_vain_is_named_when_the_time_is_over(engine: Copies) -> None:
    problem = Unavailable("storage is away")
    engine.at_task = fail_times(1_000_000, problem)
    engine.add_task(Number(1))
    assert engine.finish(0.2) == {Key("t1"): problem}
    (behind,) = engine.list_unpublished()
    assert (behind.versions, behind.problem) == (1, problem)


def test_what_no_code_foresaw_is_tried_again_too(
    engine: Copies, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    left = iter((1, 2))

    def stumble(_: Number) -> None:
        if next(left, None) is not None:
            raise ZeroDivisionError("half a thing")

    engine.at_task = stumble
    engine.add_task(Number(1))
    assert engine.finish(WAIT_S) == {}
    assert {record.message for record in caplog.records} == {"publishing 't1' failed"}


def test_pauses_grow_up_to_a_bound_and_are_never_the_same_for_all() -> None:
    longest = Copies(uniform=lambda _, most: most)
    shortest = Copies(uniform=lambda least, _: least)
    tries = (1, 2, 3, 9, 10, 15, 10_000)
    assert [longest._retry_pause_s(count) for count in tries] == [0.1, 0.2, 0.4, 25.6, 30.0, 30.0, 30.0]
    assert [shortest._retry_pause_s(count) for count in tries] == [0.05, 0.1, 0.2, 12.8, 15.0, 15.0, 15.0]


def test_a_job_waits_as_long_as_its_pause_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that the test sets: no second passes."""
    now_s = 0.0
    engine = Copies(uniform=lambda _, most: most)
    monkeypatch.setattr(module, "elapsed_s", lambda: now_s)
    monkeypatch.setattr(engine, "_start_thread", lambda: None)  # which would take it
    engine.at_task = fail_times(3, Unavailable("away"))
    times = []
    for _ in range(3):
        engine.publish_here(Number(1), WAIT_S)
        (now_s, _, job) = engine._later.pop()
        times.append(now_s)
        job.is_queued = False
    assert times == pytest.approx([0.1, 0.3, 0.7])


# --- alarms ---


def make_alarm(engine: Copies, number: int = 1) -> ForeignCommit:
    engine.there[TABLE, number] = "somebody else"
    engine.add_task(Number(number))
    ((_, problem),) = engine.finish(WAIT_S).items()
    assert isinstance(problem, ForeignCommit)
    return problem


def test_an_alarm_is_kept_is_not_tried_again_by_itself_and_waits_for_nobody(
    engine: Copies, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    alarm = make_alarm(engine)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(engine.is_done, 2)
        assert not waiting.result(WAIT_S / 3), "nobody waits for an administrator"
    engine.add_task(Number(2), retry_alarm=False)
    assert engine.finish(WAIT_S) == {Key("t1"): alarm}
    snapshot = engine.meter.snapshot()
    assert (snapshot.count(metrics.PUBLISH_ERRORS), snapshot.count(metrics.FOREIGN)) == (1, 1)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("how", ["add", "publish_here"])
def test_an_alarm_ends_when_somebody_asks_again_and_the_cause_is_gone(engine: Copies, how: str) -> None:
    make_alarm(engine)
    engine.there.clear()
    if how == "add":
        engine.add_task(Number(1))
    else:
        assert engine.publish_here(Number(1), WAIT_S) is None
    assert engine.finish(WAIT_S) == {}
    assert engine.jobs == {}


def test_an_alarm_ends_when_another_process_has_done_the_last_task(engine: Copies) -> None:
    make_alarm(engine, 1)
    engine.there[TABLE, 1] = "another process"
    engine.discard_finished_tasks(Number(1).id, lambda task: task.number <= 1)
    assert engine.jobs == {}
    engine.add_task(Number(2), retry_alarm=False)
    assert engine.finish(WAIT_S) == {}
    assert engine.numbers() == [1, 2]


def test_an_alarm_stays_while_another_process_has_not_done_all_tasks(engine: Copies) -> None:
    alarm = make_alarm(engine, 2)
    engine.discard_finished_tasks(Number(2).id, lambda task: task.number <= 1)
    engine.add_task(Number(3), retry_alarm=False)
    assert engine.finish(WAIT_S) == {Key("t1"): alarm}


def test_an_alarm_ends_with_the_table_that_was_dropped(engine: Copies) -> None:
    make_alarm(engine)
    engine.dropped.add(TABLE)
    assert engine.finish(WAIT_S) == {}
    assert engine.jobs == {}


def test_an_alarm_that_comes_after_the_drop_ends_too(engine: Copies, gate: Gate) -> None:
    engine.at_task = pass_gate_at(gate, Number(1))
    engine.there[TABLE, 1] = "somebody else"
    engine.add_task(Number(1))
    gate.wait_until_reached()
    engine.dropped.add(TABLE)
    engine.forget_dropped()
    gate.open()
    assert engine.finish(WAIT_S) == {}


def test_what_is_pending_of_a_dropped_table_is_published_if_nothing_is_against_it(
    engine: Copies, quick: None
) -> None:
    engine.dropped.add(TABLE)
    engine.at_task = fail_times(3, Denied("for now"))
    engine.add_task(Number(1))
    engine.forget_dropped()
    assert engine.finish(WAIT_S) == {}
    assert engine.numbers() == [1]


def test_while_it_is_not_known_whether_a_table_was_dropped_its_alarm_stays(
    engine: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> bool:
        raise Unavailable("the store is away")

    alarm = make_alarm(engine)
    monkeypatch.setattr(engine, "is_dropped", fail)
    assert engine.finish(WAIT_S) == {Key("t1"): alarm}


def test_a_task_that_comes_while_it_is_asked_whether_the_table_was_dropped_is_kept(
    engine: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the commit that dropped it is reverted just then."""
    make_alarm(engine)

    def drop_and_revert(_: object) -> bool:
        engine.add_task(Number(2), retry_alarm=False)
        return True

    monkeypatch.setattr(engine, "is_dropped", drop_and_revert)
    engine.forget_dropped()
    assert [job.pending for job in engine.jobs.values()] == [[Number(2)]]


def test_a_table_that_became_another_one_is_forgotten_even_while_it_is_worked_on(
    engine: Copies, gate: Gate
) -> None:
    def stop(_: Number) -> None:
        gate()
        raise InvalidLog("its bytes are gone")

    engine.at_task = stop
    engine.add_task(Number(1))
    gate.wait_until_reached()
    engine.forget_table(TABLE)
    gate.open()
    assert engine.finish(WAIT_S) == {}
    assert engine.jobs == {}


def test_only_tables_with_others_commits_at_the_same_location_are_replaced(engine: Copies) -> None:
    make_alarm(engine)
    engine.forget_replaced(TABLE, "/w/t")
    engine.forget_replaced(UUID(int=9), "/w/other")
    assert len(engine.jobs) == 1
    engine.forget_replaced(UUID(int=9), "/w/t")
    assert engine.jobs == {}


def test_a_table_that_storage_keeps_waiting_is_not_replaced() -> None:
    engine = Copies(background=False)
    engine.at_task = fail_times(1, Unavailable("storage is away"))
    engine.publish_here(Number(1), WAIT_S)
    engine.forget_replaced(UUID(int=9), "/w/t")
    assert [job.pending for job in engine.jobs.values()] == [[Number(1)]]


# --- waiting ---


def test_who_waits_with_a_deadline_goes_when_it_is_over_and_leaves_nothing_behind(
    engine: Copies, gate: Gate
) -> None:
    engine.at_task = pass_gate_at(gate, Number(1))
    assert not engine.is_done(1, AT_ONCE_S)
    assert engine.jobs == {}
    engine.add_task(Number(1))
    gate.wait_until_reached()
    assert not engine.is_done(1, 0.05)
    assert isinstance(engine.publish_here(Number(2), 0.05), Unavailable)
    gate.open()
    assert engine.is_done(1)
    assert engine.finish(WAIT_S) == {}
    assert engine.order == [Number(1)], "what was not waited for is not added"


def test_who_waits_before_anything_is_added_is_woken_when_it_is_published(engine: Copies) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(engine.is_done, 2)
        while JobId(TABLE, "log") not in engine.jobs:
            assert not waiting.done()
        engine.add_task(Number(1))
        assert engine.wait_for(Number(1).id, lambda _: 1 in engine.numbers(), WAIT_S)
        engine.add_task(Number(2))
        assert waiting.result(WAIT_S)


def test_who_is_interrupted_while_waiting_for_a_turn_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(BaseException):
        """Somebody pressed a key."""

    def interrupt(_: object) -> bool:
        raise Interrupted

    engine = Copies(background=False)
    with engine.wait_for_job(Number(1).id) as job:
        monkeypatch.setattr(job.left, "wait", interrupt)
        with pytest.raises(Interrupted), engine.wait_for_job(Number(1).id):
            pytest.fail("the job is taken")
        assert job.helpers == 0
    assert engine.jobs == {}


# --- many at once ---


def test_of_many_threads_that_want_one_job_one_has_it_at_a_time(engine: Copies, gate: Gate) -> None:
    at_work, most, lock = 0, 0, Lock()

    def count(_: Number) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        gate()
        with lock:
            at_work -= 1

    engine.at_task = count
    with ThreadPoolExecutor(5) as threads:
        results = [threads.submit(engine.publish_here, Number(number), WAIT_S) for number in range(1, 6)]
        gate.wait_until_reached()
        while engine.jobs[Number(1).id].helpers < 4:
            assert not any(result.done() for result in results)
        gate.open()
        assert [result.result(WAIT_S) for result in results] == [None] * 5
    assert most == 1
    assert sorted(engine.numbers()) == [1, 2, 3, 4, 5]


def test_two_engines_at_one_task_leave_what_one_of_them_put(gate: Gate) -> None:
    there: dict[tuple[UUID, int], str] = {}
    first, second = Copies(there, "first"), Copies(there, "second")
    second.lock = first.lock
    first.at_task = lambda _: gate()
    first.add_task(Number(3))
    gate.wait_until_reached()
    second.add_task(Number(3))
    assert second.finish(WAIT_S) == {}
    gate.open()
    assert first.finish(WAIT_S) == {}
    assert there == {(TABLE, number): "second" for number in (1, 2, 3)}
    for engine in (first, second):
        engine.close(WAIT_S)


def test_where_storage_keeps_nobody_apart_a_lease_does(
    engine: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, store = Places(), MemoryStore()
    place = places.open_place(str(tmp_path))
    mine, other = (Copies(leases=Leases(store)) for _ in range(2))
    with mine.guard_place(place, "t", "busy") as guard:
        assert guard is None, "storage itself does"
    monkeypatch.setattr(type(place), "keeps_conditions", False)
    with engine.guard_place(place, "t", "busy") as guard:
        assert guard is not None, "without leases there is one process"
        guard()
    with mine.guard_place(place, "t", "another process is at it") as guard:
        assert guard is not None
        guard()
        with (
            pytest.raises(Unavailable, match="another process is at it"),
            other.guard_place(place, "t", "another process is at it"),
        ):
            pytest.fail("the lease is taken")
    with other.guard_place(place, "t", "busy") as guard:
        assert guard is not None
        guard()
    places.close()


# --- metrics ---


def test_what_is_pending_is_measured_and_nothing_is_left_of_it_at_the_end(engine: Copies, gate: Gate) -> None:
    engine.at_task = lambda _: gate()
    engine.add_task(Number(3))
    gate.wait_until_reached()
    engine.report_metrics()
    assert engine.meter.snapshot().gauge(metrics.UNPUBLISHED) == 3
    assert engine.meter.snapshot().gauge(metrics.UNPUBLISHED_SECONDS) == pytest.approx(5 - 1e-6)
    gate.open()
    assert engine.finish(WAIT_S) == {}
    assert engine.meter.snapshot().gauge(metrics.UNPUBLISHED) == 0, "without being asked"
    assert engine.meter.snapshot().gauge(metrics.UNPUBLISHED_SECONDS) == 0


def test_with_many_jobs_the_gauges_are_not_set_after_each(
    engine: Copies, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "THREADS_MAX", 1)
    monkeypatch.setattr(module, "MEASURE_S", WAIT_S)
    measured = []
    monkeypatch.setattr(engine, "report_metrics", lambda: measured.append(len(engine.jobs)))
    engine.at_task = lambda task: gate() if task.table.int == 1 else None
    for number in range(1, 2 * module.MEASURED_MAX + 1):
        engine.add_task(Number(1, UUID(int=number)))
    gate.open()
    assert engine.finish(WAIT_S) == {}
    assert sum(count > module.MEASURED_MAX for count in measured) <= 1
    assert len(measured) >= module.MEASURED_MAX


# --- the end ---


def test_what_is_queued_is_published_before_the_end(engine: Copies, gate: Gate) -> None:
    engine.at_task = pass_gate_at(gate, Number(1))
    engine.add_task(Number(1))
    gate.wait_until_reached()
    engine.add_task(Number(2))
    engine.add_task(Number(7, UUID(int=2)))
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(engine.close, WAIT_S)
        gate.open()
        closing.result(WAIT_S)
    assert {task.number for task in engine.order} == {1, 2, 7}
    assert not any(thread.is_alive() for thread in engine._threads)


def test_what_has_failed_is_tried_once_more_at_the_end(
    engine: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_MIN_S", 3600.0)
    monkeypatch.setattr(module, "PAUSE_MAX_S", 3600.0)
    engine.at_task = fail_times(1, Unavailable("storage is away"))
    assert isinstance(engine.publish_here(Number(1), WAIT_S), Unavailable)
    assert engine.order == []
    engine.close(WAIT_S)
    assert engine.order == [Number(1)]


def await_closing(engine: Copies, closing: Future[None]) -> None:
    while not engine.is_closing:
        assert not closing.done()


def test_what_fails_for_the_first_time_at_the_end_is_tried_once_more(engine: Copies, gate: Gate) -> None:
    fail = fail_times(1, Unavailable("storage is away"))

    def stop(task: Number) -> None:
        gate()
        fail(task)

    engine.at_task = stop
    engine.add_task(Number(1))
    gate.wait_until_reached()
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(engine.close, WAIT_S)
        await_closing(engine, closing)
        gate.open()
        closing.result(WAIT_S)
    assert engine.order == [Number(1)]


def test_the_end_waits_for_the_look_at_what_earlier_processes_left(
    engine: Copies, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CATCH_UP_END_S", WAIT_S)

    def look() -> None:
        gate()
        engine.add_task(Number(1))

    engine.catch_up(look)
    gate.wait_until_reached()
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(engine.close, WAIT_S)
        await_closing(engine, closing)
        gate.open()
        closing.result(WAIT_S)
    assert engine.order == [Number(1)]


def test_the_end_does_not_wait_for_a_table_that_was_forgotten(
    engine: Copies, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "THREADS_MAX", 1)
    engine.at_task = lambda _: gate()
    engine.add_task(Number(1))
    gate.wait_until_reached()
    other = Number(1, UUID(int=2))
    engine.add_task(other)
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(engine.close, WAIT_S)
        while not engine.changed._waiters:  # type: ignore[attr-defined]
            assert not closing.done()
        engine.forget_table(other.table)
        gate.open()
        closing.result(WAIT_S / 3)
    assert engine.order == [Number(1)]


def test_what_fails_at_the_end_is_not_tried_for_ever(engine: Copies, gate: Gate) -> None:
    always = fail_times(100, Unavailable("storage is away"))

    def stop(task: Number) -> None:
        gate()
        always(task)

    engine.at_task = stop
    engine.add_task(Number(1))
    gate.wait_until_reached()
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(engine.close, WAIT_S)
        gate.open()
        closing.result(WAIT_S)
    assert engine.meter.snapshot().count(metrics.PUBLISH_ERRORS) <= 3


def test_what_failed_in_a_callers_thread_is_tried_again_though_there_was_no_other(
    engine: Copies, quick: None
) -> None:
    engine.at_task = fail_times(1, Unavailable("storage is away"))
    assert isinstance(engine.publish_here(Number(1), WAIT_S), Unavailable)
    assert engine.is_done(1)


@pytest.mark.parametrize(
    "problem", [InvalidRequest("the lake was closed; open the lake again"), ValueError("there is no loop")]
)
def test_a_thread_that_outlives_the_end_reports_nothing(
    engine: Copies, gate: Gate, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    """The store is closed by then, and says so to a thread that still asks it."""

    def stop(_: Number) -> None:
        gate()
        raise problem

    engine.at_task = stop
    engine.add_task(Number(1))
    gate.wait_until_reached()
    engine.close(AT_ONCE_S)
    gate.open()
    for thread in engine._threads:
        thread.join(WAIT_S)
    assert engine.find_problem(Number(1).id) is not None
    assert [record.message for record in caplog.records] == []
    assert engine.order == []


def test_who_waits_is_let_go_at_the_end_and_who_publishes_is_told_that_it_came(
    engine: Copies, gate: Gate
) -> None:
    engine.at_task = lambda _: gate()
    engine.add_task(Number(1))
    gate.wait_until_reached()
    with ThreadPoolExecutor(3) as threads:
        waiting = threads.submit(engine.is_done, 1)
        finishing = threads.submit(engine.finish, WAIT_S)
        helping = threads.submit(engine.publish_here, Number(1), WAIT_S)
        engine.close(AT_ONCE_S)
        assert waiting.result(WAIT_S / 2) is False
        assert finishing.result(WAIT_S / 2) == {Key("t1"): None}
        problem = helping.result(WAIT_S / 2)
        assert isinstance(problem, Unavailable)
        assert "the lake was closed" in problem.message
    engine.add_task(Number(2))
    engine.close(AT_ONCE_S)
