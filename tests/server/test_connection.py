"""Connections: whoever sends too much, too slowly, or does not read, is cut off, and nobody else notices."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import resource
import socket
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import msgspec
import pytest
import uvicorn
from packaging.requirements import Requirement
from packaging.version import Version
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.errors import Throttled
from penstock.lake.lake import Lake
from penstock.metrics.memory import Metrics
from penstock.metrics.table import HTTP_CONNECTIONS, HTTP_REFUSALS
from penstock.server import connection as served
from penstock.server.connection import HEAD_MAX_BYTES, WAITING_MAX, ServerConnection
from penstock.server.limits import Limits
from penstock.server.logs import Log, LogLevel
from penstock.server.routes import Api, HttpAnswer, Route
from penstock.server.sockets import ConnectionLimits
from tests.queue.hooks import wait_until
from tests.server.running import Client, Local, local, read_all
from tests.server.trying import Trial, trial_api


@pytest.fixture
def trial() -> Trial:
    return Trial()


# -- heads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost", b"\r\n"])
def test_a_connection_that_sends_no_whole_head_is_closed(lake: Lake, trial: Trial, sent: bytes) -> None:
    with local(lake.catalogue, [trial_api(trial)], head_timeout_s=0.2) as server:
        assert server.send_raw(sent) == b""


def test_a_connection_that_is_kept_busy_with_nothing_is_closed(lake: Lake, trial: Trial) -> None:
    with (
        local(lake.catalogue, [trial_api(trial)], head_timeout_s=0.2) as server,
        server.send_at_once(b"GET /try/open HTTP/1.1\r\nhost: x\r\n\r\n") as connection,
    ):
        assert connection.recv(1000).startswith(b"HTTP/1.1 204")
        connection.sendall(b"\r\n")
        assert read_all(connection) == b""


@pytest.mark.parametrize("part", [b"a" * HEAD_MAX_BYTES, b"a: b\r\n" * 1000], ids=["one", "many"])
def test_headers_that_do_not_end_are_refused(lake: Lake, trial: Trial, part: bytes) -> None:
    with local(lake.catalogue, [trial_api(trial)]) as server:
        with server.raw() as connection:
            connection.sendall(b"GET /try/open HTTP/1.1\r\nx: ")
            is_refused = False
            while not is_refused:
                try:
                    connection.sendall(part)
                except ConnectionError:
                    is_refused = True
            assert read_all(connection)[:12] in (b"", b"HTTP/1.1 431")
        assert server.get("/try/open").status == 204


SMALL = b"GET /try/open HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        SMALL + b"x: " + b"a" * (HEAD_MAX_BYTES - 200) + b"\r\n\r\n",
        SMALL.replace(b"/open", b"/echo/a?name=" + b"a" * (HEAD_MAX_BYTES - 200)) + b"\r\n",
    ],
    ids=["header", "query"],
)
def test_a_large_head_within_the_limit_is_read(lake: Lake, trial: Trial, sent: bytes) -> None:
    with local(lake.catalogue, [trial_api(trial)]) as server:
        assert server.send_raw(sent).startswith(b"HTTP/1.1 20")


@pytest.mark.parametrize(
    "sent",
    [
        SMALL + b"x: " + b"a" * HEAD_MAX_BYTES + b"\r\n\r\n",
        SMALL + b"x: a\r\n" * (HEAD_MAX_BYTES // 6) + b"\r\n",
        SMALL.replace(b"/open", b"/open?" + b"a" * HEAD_MAX_BYTES) + b"\r\n",
        SMALL.replace(b"/open", b"/open?" + b"a" * 2 * HEAD_MAX_BYTES) + b"\r\n",
    ],
    ids=["one header", "many headers", "query", "long query"],
)
def test_a_head_beyond_the_limit_is_refused_by_431(lake: Lake, trial: Trial, sent: bytes) -> None:
    with local(lake.catalogue, [trial_api(trial)]) as server:
        assert server.send_raw(sent).startswith(b"HTTP/1.1 431")
        assert server.get("/try/open").status == 204


def test_a_large_body_right_behind_a_head_in_two_parts_is_no_part_of_it(lake: Lake, trial: Trial) -> None:
    body = b'{"text": "' + b"a" * 2 * HEAD_MAX_BYTES + b'"}'
    head = b"POST /try/notes HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n" % len(body)
    with local(lake.catalogue, [trial_api(trial)]) as server, server.raw() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head)
        assert server.get("/try/open").status == 204, "the first part has been read"
        connection.sendall(b"\r\n" + body)
        assert read_all(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "part", [b"x: " + b"a" * 1000 + b"\r\n", b"a" * 1000], ids=["many headers", "one header"]
)
def test_headers_after_a_body_that_do_not_end_are_refused(lake: Lake, trial: Trial, part: bytes) -> None:
    with local(lake.catalogue, [trial_api(trial)]) as server, server.raw() as connection:
        connection.sendall(
            b"POST /try/notes HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: "
        )
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):
                connection.sendall(part)
            pytest.fail("the server takes ten megabytes of headers")


def test_headers_after_a_body_change_nothing(lake: Lake, trial: Trial) -> None:
    sent = (
        b"POST /try/notes HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        b'd\r\n{"text": "a"}\r\n0\r\nx-request-id: other\r\n\r\n'
    )
    with local(lake.catalogue, [trial_api(trial)]) as server:
        answered = server.send_raw(sent)
    assert answered.startswith(b"HTTP/1.1 200")
    assert b"other" not in answered


# -- offers of another protocol ----------------------------------------------------------------------------

OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAA\r\n"
SECRET = b"GET /try/missing HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize("part_bytes", [1, 7, 10_000])
def test_requests_that_offer_http2_are_read_whole_and_answered_in_order(
    lake: Lake, trial: Trial, part_bytes: int
) -> None:
    sent = (
        b"POST /try/notes HTTP/1.1\r\nhost: x\r\n" + OFFER + b'content-length: 13\r\n\r\n{"text": "1"}'
        b"POST /try/notes HTTP/1.1\r\nhost: x\r\n" + OFFER + b"transfer-encoding: chunked\r\n\r\n"
        b'd\r\n{"text": "2"}\r\n0\r\n\r\n'
        b"GET /try/echo/3 HTTP/1.1\r\nhost: x\r\n" + OFFER + b"\r\n"
        b"GET /try/echo/4 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    with local(lake.catalogue, [trial_api(trial)]) as server, server.raw() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(sent), part_bytes):
            connection.sendall(sent[start : start + part_bytes])
        answered = read_all(connection)
    assert answered.count(b"HTTP/1.1 200") == 4
    found = [answered.index(one) for one in (b'"text":"1"', b'"text":"2"', b'"name":"3"', b'"name":"4"')]
    assert found == sorted(found)


def test_the_body_of_a_request_that_offers_http2_is_never_taken_for_a_request(
    lake: Lake, trial: Trial
) -> None:
    head = b"POST /try/notes HTTP/1.1\r\nhost: x\r\n" + OFFER + b"content-length: %d\r\n\r\n" % len(SECRET)
    last = b"GET /try/open HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with local(lake.catalogue, [trial_api(trial)]) as server:
        answered = server.send_raw(head + SECRET + last)
        assert [line["path"] for line in server.lines] == ["/try/notes"]
    assert answered.startswith(b"HTTP/1.1 400")
    assert answered.count(b"HTTP/1.1 ") == 2


def test_an_offer_does_not_make_two_lengths_acceptable(lake: Lake, trial: Trial) -> None:
    head = b"POST /try/notes HTTP/1.1\r\nhost: x\r\n" + OFFER
    both = b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    with local(lake.catalogue, [trial_api(trial)]) as server:
        assert server.send_raw(head + both + SECRET).startswith(b"HTTP/1.1 400")
        assert "/try/missing" not in server.log


# -- requests that wait ------------------------------------------------------------------------------------

NEXT = b"GET /try/open HTTP/1.1\r\nhost: x\r\n\r\n"


@contextlib.contextmanager
def holding(client: Client, trial: Trial) -> Iterator[socket.socket]:
    """A connection whose first request is answered when the trial is opened, and not before."""
    with client.raw() as connection:
        connection.sendall(NEXT.replace(b"/open", b"/wait"))
        assert trial.arrived.acquire(timeout=20)
        yield connection


def count_heads(monkeypatch: pytest.MonkeyPatch) -> list[ServerConnection]:
    """The connection of each head that a server begins to read from now on."""
    begun: list[ServerConnection] = []
    begin = ServerConnection.on_message_begin

    def counting(connection: ServerConnection) -> None:
        begun.append(connection)
        begin(connection)

    monkeypatch.setattr(ServerConnection, "on_message_begin", counting)
    return begun


def read_answers(connection: socket.socket, count: int) -> bytes:
    answered = b""
    while answered.count(b"HTTP/1.1 20") < count:
        part = connection.recv(65536)
        assert part, f"closed after {answered!r}"
        answered += part
    return answered


@pytest.mark.parametrize("count", [WAITING_MAX, 5_000])
def test_of_too_many_requests_at_once_those_beyond_the_limit_are_not_even_read(
    lake: Lake, trial: Trial, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = count_heads(monkeypatch)
    with local(lake.catalogue, [trial_api(trial)]) as server:
        with holding(server, trial) as connection:
            connection.sendall(NEXT * count)
            assert server.get("/try/open").status == 204
            trial.opened.set()
            answered = read_all(connection)
        assert len(begun) == 1 + WAITING_MAX + 1, "the other client's, those that are answered, one too many"
        assert server.get("/try/open").status == 204
    assert answered.count(b"HTTP/1.1 20") == WAITING_MAX
    assert answered.count(b"connection: close") == 1
    assert b"connection: close" in answered[answered.rindex(b"HTTP/1.1 ") :]


def test_a_connection_goes_on_after_as_many_requests_at_once_as_it_may_make(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)]) as server, holding(server, trial) as connection:
        connection.sendall(NEXT * (WAITING_MAX - 1))
        assert server.get("/try/open").status == 204
        trial.opened.set()
        assert b"connection: close" not in read_answers(connection, WAITING_MAX)
        connection.sendall(NEXT)
        assert b"connection: close" not in read_answers(connection, 1)


def test_requests_that_were_answered_do_not_count(lake: Lake, trial: Trial) -> None:
    at_once = WAITING_MAX // 2
    with local(lake.catalogue, [trial_api(trial)]) as server, server.raw() as connection:
        for _ in range(5):
            connection.sendall(NEXT * at_once)
            assert read_answers(connection, at_once).count(b"HTTP/1.1 204") == at_once


def test_a_full_connection_waits_for_its_answers_longer_than_for_a_head(lake: Lake, trial: Trial) -> None:
    with (
        local(lake.catalogue, [trial_api(trial)], head_timeout_s=1.0) as server,
        server.send_at_once(NEXT.replace(b"/open", b"/wait") + NEXT * WAITING_MAX) as connection,
    ):
        assert trial.arrived.acquire(timeout=60)
        threading.Event().wait(1.5)  # longer than a head may take
        trial.opened.set()
        assert read_all(connection).count(b"HTTP/1.1 20") == WAITING_MAX


@pytest.mark.parametrize("waiting_max", [WAITING_MAX, 10_000], ids=["limit", "no limit"])
def test_any_number_of_offers_at_once_is_answered_up_to_the_limit_and_none_fails(
    lake: Lake,
    trial: Trial,
    waiting_max: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(served, "WAITING_MAX", waiting_max)
    count = 1_200
    offers = (b"GET /try/open HTTP/1.1\r\nhost: x\r\n" + OFFER + b"\r\n") * (count - 1)
    with (
        caplog.at_level("ERROR"),
        local(lake.catalogue, [trial_api(trial)]) as server,
        holding(server, trial) as connection,
    ):
        connection.sendall(offers + SMALL + b"\r\n")
        assert server.get("/try/open").status == 204
        trial.opened.set()
        answered = read_all(connection)
    assert answered.count(b"HTTP/1.1 20") == min(count + 1, waiting_max)
    assert not caplog.records
    assert '"trace"' not in server.log


# -- answers that are not read -----------------------------------------------------------------------------


def large_api(trial: Trial) -> Api:
    """With an answer that no buffer holds."""
    answer = HttpAnswer(body=b"a" * 20_000_000, content_type="text/plain")
    route = Route(method="GET", path="/large", handle=lambda _: answer, summary="Large", answer=str)
    api = trial_api(trial)
    return msgspec.structs.replace(api, routes=(*api.routes, route))


def not_reading(server: Local, held: contextlib.ExitStack) -> socket.socket:
    """A connection on which an answer is under way, of which its client has read nothing."""
    connection = held.enter_context(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.send_at_once(b"GET /try/large HTTP/1.1\r\nhost: x\r\n\r\n" * 3, connection)
    wait_until(lambda: [line["status"] for line in server.lines][:1] == [200])
    return connection


def test_a_client_that_does_not_read_its_answer_is_cut_off(lake: Lake, trial: Trial) -> None:
    with (
        contextlib.ExitStack() as held,
        local(lake.catalogue, [large_api(trial)], head_timeout_s=0.3) as server,
    ):
        connection = not_reading(server, held)
        wait_until(lambda: not server.connections)
        assert len(read_all(connection)) < 20_000_000


def test_a_client_that_does_not_read_does_not_keep_a_server_from_stopping(
    lake: Lake, trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as held, caplog.at_level("ERROR"):
        with local(lake.catalogue, [large_api(trial)], drain_timeout_s=240) as server:
            not_reading(server, held)
            began_s = monotonic()
        assert monotonic() - began_s < 120
    assert '"level":"error"' not in server.log
    assert not caplog.records


# -- uvicorn -----------------------------------------------------------------------------------------------

COMPARED = dict.fromkeys(
    ("0.53.0", "0.54.0"), "70e7393260abf01c74b912ad453c795995fdb0908020fbf68c9f1d87f4a47a2f"
)
"""Versions of uvicorn whose classes ``server/connection.py`` was compared with, and the hashes of their
source."""


def test_the_classes_of_uvicorn_that_connections_build_on_are_those_that_were_looked_at() -> None:
    """They are not part of what uvicorn promises to keep. Another version may change them without a word:
    compare its ``HttpToolsProtocol`` and ``RequestResponseCycle`` with the overridden methods, run this
    file, note the hash, and only then raise the bound in ``pyproject.toml``."""
    source = inspect.getsource(HttpToolsProtocol) + inspect.getsource(RequestResponseCycle)
    assert COMPARED.get(uvicorn.__version__) == hashlib.sha256(source.encode()).hexdigest()


def test_no_version_of_uvicorn_is_installed_that_was_not_looked_at() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extras = map(Requirement, project["project"]["optional-dependencies"]["server"])
    [bound] = [one.specifier for one in extras if one.name == "uvicorn"]
    newest = max(map(Version, COMPARED))
    assert newest in bound
    assert Version(f"{newest.major}.{newest.minor + 1}") not in bound


# -- how many ----------------------------------------------------------------------------------------------


def open_connections(server: Local, count: int, stack: contextlib.ExitStack) -> list[socket.socket]:
    """So many connections, which the server has seen."""
    made = [stack.enter_context(server.raw()) for _ in range(count)]
    for connection in made:
        connection.sendall(SMALL.replace(b"close", b"keep-alive") + b"\r\n")
        assert connection.recv(1000)
    return made


def test_one_address_leaves_connections_for_others_and_is_told_so(lake: Lake, trial: Trial) -> None:
    limits = Limits(connections_max=8, address_connections_max=3)
    with (
        local(lake.catalogue, [trial_api(trial)], limits=limits, bounds_connections=True) as server,
        contextlib.ExitStack() as stack,
    ):
        made = open_connections(server, 3, stack)
        assert server.metrics.snapshot().gauge(HTTP_CONNECTIONS) == 3
        for _ in range(5):
            refused = server.send_raw(SMALL + b"\r\n")
            assert refused.startswith(b"HTTP/1.1 429")
            assert b"retry-after: 1" in refused
            assert b"127.0.0.1 has 3 open already" in refused
        warned = [line["message"] for line in server.lines if line["level"] == "warning"]
        assert len(warned) == 1, "a flood of connections is no flood of lines"
        assert warned[0].startswith("1 connection is refused: 127.0.0.1 has 3 open already")
        assert server.metrics.snapshot().count(HTTP_REFUSALS, reason="address_connections") == 5
        with socket.create_connection((server.host, server.port), 60, ("127.0.0.2", 0)) as elsewhere:
            elsewhere.sendall(SMALL + b"\r\n")
            assert read_all(elsewhere).startswith(b"HTTP/1.1 204")
        made[0].close()
        wait_until(lambda: server.connections == 2)
        assert server.get("/try/open").status == 204


def test_a_refused_connection_that_asks_nothing_is_closed(
    lake: Lake, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "REFUSED_MAX_S", 0.05)
    limits = Limits(connections_max=1)
    with (
        local(lake.catalogue, [trial_api(trial)], limits=limits, bounds_connections=True) as server,
        contextlib.ExitStack() as stack,
    ):
        open_connections(server, 1, stack)
        assert server.send_raw(b"") == b""
        assert server.connections == 1


def test_some_open_files_are_kept_for_the_server_itself(lake: Lake) -> None:
    log, metrics = io.BytesIO(), Metrics()
    sockets = ConnectionLimits(Limits(connections_max=10), Log(log, LogLevel.DEBUG), metrics)
    assert not sockets.capacity_warning
    last = sockets.files_max - 1
    for _ in range(100):
        with pytest.raises(
            Throttled, match="reserves the remaining ones for its own work; raise the limit of open files"
        ):
            sockets.admit_connection("192.0.2.7", last)
    assert log.getvalue().count(b"\n") == 1
    assert metrics.snapshot().count(HTTP_REFUSALS, reason="open_files") == 100
    sockets.return_slot(sockets.admit_connection("192.0.2.7", 20))
    assert sockets.open == 0


def test_who_runs_a_server_is_told_that_open_files_are_too_few_for_its_connections(lake: Lake) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    sockets = ConnectionLimits(Limits(connections_max=1_000_000), Log(io.BytesIO(), LogLevel.DEBUG))
    if most < 1_000_000 and most != resource.RLIM_INFINITY:
        assert f"the limit of open files, {most:,}, leaves room for" in sockets.capacity_warning
        assert "raise it ('ulimit -n', LimitNOFILE of systemd) to 1,000,5" in sockets.capacity_warning
    else:
        assert not sockets.capacity_warning
