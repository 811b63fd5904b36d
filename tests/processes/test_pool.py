"""Functions in processes of their own: what comes back, what is bounded, and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import msgspec
import pytest

from penstock.errors import KeyNotFound, Throttled, TimedOut, Unavailable, WorkerLost, WorkTooLarge
from penstock.processes import pool as pool_module
from penstock.processes.limits import WorkerPoolLimits
from penstock.processes.pool import ProcessPool
from penstock.processes.process import FunctionFailed, WorkerProcess
from tests.processes.ends import Ending

HERE = "tests.processes.functions"
ROOT = Path(__file__).parents[2]
MEMORY_MAX_BYTES = 96 * 2**20


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes find the functions of this folder."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def pool(said: list[str]) -> Iterator[ProcessPool]:
    limits = WorkerPoolLimits(count_max=1, memory_max_bytes=MEMORY_MAX_BYTES, queue_max=1, timeout_s=60)
    found = ProcessPool(limits, say=said.append)
    yield found
    found.close()


def pid_of(pool: ProcessPool) -> int:
    return int(pool.run_function(f"{HERE}:tell_pid").body)


class Begun:
    """Waits in a process until a test lets it go on."""

    def __init__(self, pool: ProcessPool, caller: str = "") -> None:
        self._is_asked, self.goes_on = threading.Event(), threading.Event()
        self._caller = caller
        self.is_cancelled = threading.Event()
        self.pid = 0
        self.problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(pool,))
        self._thread.start()
        assert self._is_asked.wait(60)

    def _run(self, pool: ProcessPool) -> None:
        try:
            pool.run_function(
                f"{HERE}:hang",
                caller=self._caller,
                answer=self._answer,
                is_cancelled=self.is_cancelled.is_set,
            )
        except Exception as problem:
            self.problem = problem

    def _answer(self, pid: bytes) -> bytes:
        self.pid = int(pid)
        self._is_asked.set()
        assert self.goes_on.wait(60)
        return b""

    def end(self) -> Exception | None:
        self.goes_on.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.problem


# -- what comes back ---------------------------------------------------------------------------------------


def test_a_function_is_run_in_one_process_that_stays(pool: ProcessPool) -> None:
    assert not pool.processes
    output = pool.run_function(f"{HERE}:echo", b"head", b"body")
    assert (output.head, output.body, output.file) == (b"head", b"body", None)
    assert pid_of(pool) == pid_of(pool) == pool.processes[0] != os.getpid()


def test_a_function_asks_and_is_answered(pool: ProcessPool) -> None:
    assert pool.run_function(f"{HERE}:ask_twice", body=b"a", answer=lambda asked: asked + b"!").body == b"a!!"


def test_much_comes_back_as_a_file(pool: ProcessPool) -> None:
    few = pool.run_function(f"{HERE}:write_file", body=b"1000")
    assert (few.body, few.size_bytes) == (b"x" * 1000, 1000)
    many = pool.run_function(f"{HERE}:write_file", body=b"3000000")
    assert (many.head, many.body, many.size_bytes) == (b"many", b"", 3_000_000)
    assert many.file is not None
    with many.file as file:
        assert file.read() == b"x" * 3_000_000
    echoed = pool.run_function(f"{HERE}:echo", body=b"y" * 3_000_000)
    assert echoed.file is not None
    with echoed.file as file:
        assert file.read() == b"y" * 3_000_000


def test_an_error_of_penstock_comes_back_as_it_was_raised(pool: ProcessPool) -> None:
    before = pid_of(pool)
    with pytest.raises(KeyNotFound, match=r"there is no 'a\.b'") as raised:
        pool.run_function(f"{HERE}:refuse")
    assert raised.value.details == {"key": "a.b"}
    with pytest.raises(FunctionFailed, match="ZeroDivisionError: a bug"):
        pool.run_function(f"{HERE}:fail")
    with pytest.raises(FunctionFailed, match="nobody listens there"):
        pool.run_function(f"{HERE}:meet_closed_port")
    assert pid_of(pool) == before


# -- what is bounded ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["fill_memory", "fill_memory_at_once"])
def test_a_function_that_needs_too_much_memory_is_ended(
    pool: ProcessPool, said: list[str], function: str
) -> None:
    before = Ending(pid_of(pool))
    with pytest.raises(WorkTooLarge, match=r"needed more than 100,663,296 bytes .*\(memory_max_bytes\)"):
        pool.run_function(f"{HERE}:{function}")
    before.wait()
    assert pool.run_function(f"{HERE}:echo", body=b"goes on").body == b"goes on"
    assert "needed more than 100,663,296 bytes" in said[0]


def test_a_function_that_takes_too_long_is_ended(pool: ProcessPool) -> None:
    process = Ending(pid_of(pool))
    pool.limits = msgspec.structs.replace(pool.limits, timeout_s=0.2)
    with pytest.raises(WorkTooLarge, match=r"took longer than 0.2 s, this server's limit \(timeout_s\)"):
        pool.run_function(f"{HERE}:hang", answer=lambda _: b"")
    process.wait()


def test_work_that_nobody_waits_for_any_longer_is_ended(pool: ProcessPool) -> None:
    begun = Begun(pool)
    process = Ending(begun.pid)
    begun.is_cancelled.set()
    assert isinstance(begun.end(), TimedOut)
    process.wait()


def test_work_that_is_not_done_in_time_is_ended(pool: ProcessPool) -> None:
    process = Ending(pid_of(pool))
    with pytest.raises(TimedOut):
        pool.run_function(f"{HERE}:hang", answer=lambda _: b"", deadline_s=monotonic() + 0.2)
    process.wait()


def test_of_those_who_wait_for_a_process_only_so_many_may(pool: ProcessPool) -> None:
    begun = Begun(pool)
    found: list[bytes] = []
    waiting = threading.Thread(
        target=lambda: found.append(pool.run_function(f"{HERE}:echo", body=b"waited").body)
    )
    waiting.start()
    while not pool.waiting:
        threading.Event().wait(0.001)
    with pytest.raises(
        Throttled, match="1 requests already wait for a row worker, as many as queue_max allows"
    ):
        pool.run_function(f"{HERE}:echo")
    begun.is_cancelled.set()
    begun.end()
    waiting.join(60)
    assert found == [b"waited"]


# -- processes that end ------------------------------------------------------------------------------------


def test_one_caller_does_not_keep_all_processes_from_others() -> None:
    limits = WorkerPoolLimits(count_max=2, memory_max_bytes=MEMORY_MAX_BYTES, timeout_s=60)
    pool = ProcessPool(limits)
    try:
        busy = Begun(pool, "greedy")
        with pytest.raises(TimedOut, match="no row worker was free in time"):
            pool.run_function(f"{HERE}:tell_pid", caller="greedy", deadline_s=monotonic() + 0.2)
        assert pool.run_function(f"{HERE}:tell_pid", caller="somebody else").body
        busy.is_cancelled.set()
        busy.end()
        assert pool.run_function(f"{HERE}:tell_pid", caller="greedy").body
    finally:
        pool.close()


def test_who_waits_has_another_process_before_one_that_was_killed_has_gone(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that held much memory may take long to end: its place is not kept for it."""
    may_end = threading.Event()
    end = WorkerProcess.end_process

    def end_late(process: WorkerProcess) -> None:
        assert may_end.wait(60)
        end(process)

    work = Begun(pool)
    monkeypatch.setattr(WorkerProcess, "end_process", end_late)
    work.is_cancelled.set()
    work.goes_on.set()
    try:
        assert pid_of(pool) != work.pid
    finally:
        may_end.set()
    assert isinstance(work.end(), TimedOut)


def test_one_caller_leaves_half_of_the_line_to_others() -> None:
    limits = WorkerPoolLimits(count_max=1, queue_max=4, memory_max_bytes=MEMORY_MAX_BYTES, timeout_s=60)
    pool = ProcessPool(limits)
    refused: list[Throttled] = []

    def wait() -> None:
        try:
            pool.run_function(f"{HERE}:tell_pid", caller="greedy", answer=lambda _: b"")
        except Throttled as problem:
            refused.append(problem)

    try:
        busy = Begun(pool, "greedy")
        threads = [threading.Thread(target=wait) for _ in range(6)]
        for thread in threads:
            thread.start()
        while pool.waiting + len(refused) < len(threads):
            threading.Event().wait(0.01)
        assert "requests of this caller already wait for a row worker" in str(refused[0])
        assert 0 < pool.waiting < limits.queue_max
        waits = threading.Thread(target=pool.run_function, args=(f"{HERE}:tell_pid",))  # of somebody else
        waits.start()
        busy.is_cancelled.set()
        busy.end()
        for thread in [*threads, waits]:
            thread.join(60)
    finally:
        pool.close()


def test_a_process_that_crashes_is_replaced(pool: ProcessPool, said: list[str]) -> None:
    with pytest.raises(WorkerLost, match="was killed by SIGSEGV; the server has started another one"):
        pool.run_function(f"{HERE}:crash")
    assert pid_of(pool)
    assert "SIGSEGV" in said[0]


def test_a_process_that_is_killed_is_replaced(pool: ProcessPool) -> None:
    begun = Begun(pool)
    os.kill(begun.pid, signal.SIGKILL)
    problem = begun.end()
    assert isinstance(problem, WorkerLost)
    assert pid_of(pool) != begun.pid


def test_a_process_that_died_while_it_was_idle_costs_no_request(pool: ProcessPool, said: list[str]) -> None:
    first = pid_of(pool)
    process = Ending(first)
    os.kill(first, signal.SIGKILL)
    process.wait()
    assert pid_of(pool) != first
    assert "SIGKILL while it was idle" in said[0]


def test_work_that_is_given_to_a_process_as_it_dies_is_done_by_another(
    pool: ProcessPool, said: list[str]
) -> None:
    first = pid_of(pool)
    os.kill(first, signal.SIGSTOP)  # it is there, and takes up no work

    def kill() -> bool:
        if not said:
            os.kill(first, signal.SIGKILL)
        return False

    assert int(pool.run_function(f"{HERE}:tell_pid", answer=lambda _: b"", is_cancelled=kill).body) != first
    assert "SIGKILL" in said[0]


def test_a_process_that_has_done_enough_is_replaced(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "TASKS_MAX", 2)
    first = pid_of(pool)
    process = Ending(first)
    assert pid_of(pool) == first
    process.wait()
    assert pid_of(pool) != first


def test_the_processes_of_a_pool_that_is_closed_end(pool: ProcessPool) -> None:
    begun = Begun(pool)
    process = Ending(begun.pid)
    pool.close()
    process.wait()
    assert isinstance(begun.end(), WorkerLost | TimedOut)
    with pytest.raises(Unavailable, match="the server is stopping"):
        pool.run_function(f"{HERE}:echo")


def test_no_process_outlives_a_program_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.processes.parent_program"], stdout=subprocess.PIPE, cwd=ROOT
    ) as program:
        assert program.stdout is not None
        process = Ending(int(program.stdout.readline()))
        program.kill()
        process.wait()
