"""The process that accepts connections: probes are answered whatever the serving process does, and all other
requests reach it as they were sent."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from penstock.server import acceptor_process
from penstock.server.acceptor import UNTAKEN_S
from penstock.server.acceptor_process import (
    CONNECTION,
    HEALTHY,
    SILENT_MAX_S,
    STUCK,
    UNTAKEN_MAX,
    is_plain_probe,
)
from penstock.server.listener import open_listener
from tests.queue.hooks import wait_until
from tests.server.running import Program, Reply, program, read_all
from tests.server.test_serve import COMMITS, LAKE, commit, wait_for_end, workers

PROBE = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


def acceptor_of(server: Program) -> int:
    """The process that accepts the connections of a server."""
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        for pid in (task / "children").read_text().split():
            if b"acceptor_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    raise AssertionError("there is none")


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does not run, as if something never gave it the time to."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Alone:
    """An acceptor whose serving process is the test."""

    def __init__(
        self, stuck_s: float, untaken_s: float | None = None, listener: socket.socket | None = None
    ) -> None:
        self.listener = open_listener("127.0.0.1", 0) if listener is None else listener
        self.channel, theirs = socket.socketpair()
        self.channel.settimeout(60)
        command = [sys.executable, "-I", "-S", acceptor_process.__file__]
        with theirs:
            passed = [self.listener.fileno(), theirs.fileno()]
            times = [stuck_s] if untaken_s is None else [stuck_s, untaken_s]
            self.process = Popen([*command, *map(str, [*passed, *times])], pass_fds=passed)

    def beat(self) -> None:
        self.channel.send(b".")

    def connect(self, data: bytes = b"") -> socket.socket:
        made = socket.create_connection(self.listener.getsockname(), timeout=60)
        made.sendall(data)
        return made

    def probe(self, data: bytes = PROBE) -> bytes:
        with self.connect(data) as connection:
            return read_all(connection)

    def receive(self) -> tuple[bytes, socket.socket | None]:
        """The next byte that it sends, and the connection that comes with it."""
        data, descriptors, _, _ = socket.recv_fds(self.channel, 1, 1)
        return data, socket.socket(fileno=descriptors[0]) if descriptors else None

    def end(self) -> None:
        self.channel.close()
        self.listener.close()
        assert self.process.wait(60) == 0


@pytest.fixture
def sharing() -> Iterator[tuple[Alone, Alone]]:
    """Two acceptors of one listener, as two workers have."""
    one = Alone(stuck_s=3600, untaken_s=3600)
    both = one, Alone(stuck_s=3600, untaken_s=3600, listener=one.listener.dup())
    yield both
    for each in both:
        each.end()


@pytest.fixture
def alone() -> Iterator[Alone]:
    made = Alone(stuck_s=3600)
    yield made
    made.end()


def test_a_probe_is_answered_while_the_serving_process_does_not_run_at_all(penstock_server: Program) -> None:
    with stopped(penstock_server.process.pid):
        reply = penstock_server.get("/healthz")
    assert (reply.status, reply.json) == (200, {"status": "ok"})


def test_it_answers_as_the_serving_process_does(penstock_server: Program) -> None:
    one, other = penstock_server.get("/healthz"), penstock_server.get("/healthz?of=loop")
    assert one.body == other.body
    changing = {"x-request-id", "date", "connection"}
    assert {**one.headers, **dict.fromkeys(changing)} == {**other.headers, **dict.fromkeys(changing)}
    assert re.fullmatch("[0-9a-f]{16}", one.headers["x-request-id"])
    assert penstock_server.get("/healthz", **{"x-request-id": "mine"}).headers["x-request-id"] == "mine"


@pytest.mark.verify
def test_probes_are_counted_by_their_server(penstock_server: Program) -> None:
    for _ in range(3):
        assert penstock_server.get("/healthz").status == 200
    figures = penstock_server.get("/metrics").body.decode()
    counted = re.search(r'requests_total\{api="server",route="GET /healthz",status="200"\} (\S+)', figures)
    assert counted is not None
    assert float(counted[1]) == 3


def test_all_other_requests_reach_the_serving_process(penstock_server: Program) -> None:
    assert penstock_server.ask("POST", COMMITS, commit("orders")).status == 200
    assert penstock_server.get(LAKE).status == 200
    assert penstock_server.ask("HEAD", "/healthz").status in (200, 405)
    two = b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n"
    answers = penstock_server.send_raw(PROBE + two[:-2] + b"connection: close\r\n\r\n")
    assert answers.count(b"HTTP/1.1 200 OK") == 2, "requests that come together are answered in order"
    with penstock_server.raw() as connection:
        connection.sendall(PROBE[:10])
        time.sleep(2 * SILENT_MAX_S)  # it is with the serving process by now, or will be
        connection.sendall(PROBE[10:-2] + b"connection: close\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200 OK")


def test_a_connection_that_sends_nothing_is_handed_over(alone: Alone) -> None:
    alone.beat()
    with alone.connect() as client:
        byte, connection = alone.receive()
        assert byte == CONNECTION
        assert connection is not None
        with connection:
            client.sendall(b"later")
            connection.settimeout(60)
            assert connection.recv(10) == b"later"


def test_nothing_is_accepted_before_the_server_has_started(alone: Alone) -> None:
    with alone.connect(PROBE) as client:
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        alone.beat()
        client.settimeout(60)
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
    assert alone.receive() == (HEALTHY, None)


def test_a_server_whose_event_loop_does_not_run_is_not_healthy() -> None:
    made = Alone(stuck_s=0.0)
    made.beat()
    reply = made.probe()
    assert reply.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b'"code":"unavailable"' in reply
    assert b"has not run for 0 s" in reply
    assert made.receive() == (STUCK, None)
    made.end()


def test_probes_are_answered_while_the_server_takes_no_connections(alone: Alone) -> None:
    alone.beat()
    with contextlib.ExitStack() as clients:
        for _ in range(400):  # more than the channel holds
            clients.enter_context(alone.connect(b"GET / HTTP/1.1\r\n\r\n"))
        assert alone.probe().startswith(b"HTTP/1.1 200 OK")
        for _ in range(400):
            byte, connection = alone.receive()
            assert byte == CONNECTION
            assert connection is not None
            with connection:
                assert connection.recv(100) == b"GET / HTTP/1.1\r\n\r\n"


def test_connections_that_a_worker_does_not_take_are_left_to_the_others(sharing: tuple[Alone, Alone]) -> None:
    stuck, other = sharing
    stuck.beat()
    first = [stuck.connect(b"G") for _ in range(UNTAKEN_MAX)]
    taken = [stuck.receive() for _ in first]
    later = [stuck.connect(b"G") for _ in range(UNTAKEN_MAX)]
    other.beat()
    taken += [other.receive() for _ in later]
    stuck.beat()  # it has taken them by now, and the other has not
    last = [stuck.connect(b"G") for _ in range(UNTAKEN_MAX)]
    taken += [stuck.receive() for _ in last]
    assert {data for data, _ in taken} == {CONNECTION}
    for connection in (*first, *later, *last, *(one for _, one in taken if one is not None)):
        connection.close()


def test_a_worker_that_has_not_run_for_a_while_gets_no_connection() -> None:
    stuck = Alone(stuck_s=3600, untaken_s=0.0)
    other = Alone(stuck_s=3600, untaken_s=3600, listener=stuck.listener.dup())
    stuck.beat()
    for _ in range(20):
        with stuck.connect(b"G"):
            other.beat()
            data, connection = other.receive()
            assert data == CONNECTION
            assert connection is not None
            connection.close()
    stuck.end()
    other.end()


@pytest.mark.verify
def test_requests_are_answered_by_another_worker_while_one_does_not_run(tmp_path: Path) -> None:
    """One request may have been handed over before that is noticed; it is answered when that one goes on."""
    with program(tmp_path, "--workers", "2") as server, ThreadPoolExecutor(20) as threads:
        with stopped(min(workers(server))):
            asked = list[Future[Reply]]()
            for _ in range(20):
                asked.append(threads.submit(server.get, LAKE))
                wait(asked[-1:], 2 * UNTAKEN_S)
            wait_until(lambda: sum(one.done() for one in asked) >= len(asked) - 1)
        assert {one.result(60).status for one in asked} == {200}
        assert {server.get(LAKE).status for _ in range(20)} == {200}
        assert server.stop() == 0


def test_connections_that_were_accepted_are_handed_over_when_the_server_stops(alone: Alone) -> None:
    alone.beat()
    with contextlib.ExitStack() as clients:
        for _ in range(400):
            clients.enter_context(alone.connect(b"x"))
        assert alone.probe()  # it came last, so all others are accepted
        alone.channel.shutdown(socket.SHUT_WR)
        taken = 0
        while (received := alone.receive())[0]:
            assert received[1] is not None
            received[1].close()
            taken += 1
    assert taken == 400


def test_without_a_descriptor_to_spare_it_pauses_and_goes_on_when_there_is_one(alone: Alone) -> None:
    alone.beat()
    assert alone.probe()  # it has started
    pid = alone.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    with contextlib.ExitStack() as clients:
        for _ in range(20):
            clients.enter_context(alone.connect(b"x"))
        before_s = _cpu_s(pid)
        time.sleep(1.0)
        assert _cpu_s(pid) - before_s < 0.3
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        for byte, connection in [received for received in _received(alone, 21) if received[1]]:
            assert byte == CONNECTION
            assert connection is not None
            connection.close()


def _received(alone: Alone, count: int) -> list[tuple[bytes, socket.socket | None]]:
    """What comes for one probe and some connections."""
    return [alone.receive() for _ in range(count)]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_connection_that_cannot_be_sent_now_is_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    send, refusals = socket.send_fds, [errno.ETOOMANYREFS] * 2

    def refusing(*given: Any) -> int:
        if refusals:
            raise OSError(refusals.pop(), "too many descriptors are under way")
        return send(*given)

    monkeypatch.setattr(socket, "send_fds", refusing)
    channel, theirs = socket.socketpair()
    channel.settimeout(60)
    with open_listener("127.0.0.1", 0) as listener, channel, theirs, ThreadPoolExecutor(1) as threads:
        address = listener.getsockname()
        running = threads.submit(acceptor_process.AcceptorLoop(listener, theirs, 3600).run_until_closed)
        channel.send(b".")
        try:
            with socket.create_connection(address, timeout=60) as client:
                client.sendall(b"x")
                byte, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
                assert (byte, len(descriptors), refusals) == (CONNECTION, 1, [])
                with socket.socket(fileno=descriptors[0]) as connection:
                    assert connection.recv(1) == b"x"
        finally:
            channel.shutdown(socket.SHUT_WR)
        running.result(60)


@pytest.mark.verify
def test_a_server_whose_acceptor_is_lost_accepts_connections_itself(tmp_path: Path) -> None:
    with program(tmp_path, "--lake", "memory:") as server:
        assert server.get(LAKE).status == 200
        os.kill(acceptor_of(server), signal.SIGKILL)
        assert server.get(LAKE).status == 200
        assert server.get("/healthz").status == 200
        (line,) = [one for one in server.lines if one["level"] == "warning"]
        assert "the process that accepts connections ended with status -9" in line["message"]
        assert server.stop() == 0


@pytest.mark.verify
def test_an_acceptor_ends_with_its_server(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with program(tmp_path, "--lake", "memory:") as server:
            acceptor = acceptor_of(server)
            server.stop(number)
            wait_for_end(acceptor)
            with pytest.raises(ConnectionRefusedError):
                server.get("/healthz")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nhost: a\r\n",
        b"GET /healthz?a=b HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /healthz/ HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nhost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nContent-Length: 3\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nX-Request-Id: a\r\n\r\n",
        PROBE + b"GET / HTTP/1.1\r\n\r\n",
        PROBE + b"x",
        b"",
    ],
)
def test_what_is_not_plainly_a_probe_is_none(head: bytes) -> None:
    assert is_plain_probe(PROBE)
    assert is_plain_probe(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert not is_plain_probe(head)
