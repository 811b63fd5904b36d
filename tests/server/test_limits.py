"""Every limit of a server: what exceeds it is refused by name, and everybody else is served."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pytest

from penstock.errors import TimedOut, Unauthenticated
from penstock.lake.calls import GetAbout
from penstock.lake.lake import Lake
from penstock.model.tokens import Grant, Role
from penstock.server.access import AccessGate
from penstock.server.access.caller import Caller
from penstock.server.limits import Limits
from penstock.server.native import NATIVE
from penstock.server.routes import Route, RouteRequest
from tests.queue.hooks import wait_until
from tests.server.running import Client, Reply, local, read_all
from tests.server.trying import Trial, trial_api


@pytest.fixture
def trial() -> Trial:
    return Trial()


def asked(client: Client, method: str, path: str) -> Future[Reply]:
    """A request that is under way."""
    future: Future[Reply] = Future()
    threading.Thread(target=lambda: future.set_result(client.ask(method, path))).start()
    return future


def test_a_body_that_is_declared_too_large_is_refused_before_it_is_sent(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(body_max_bytes=1000)) as server:
        head = b"POST /try/notes HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1001\r\n\r\n"
        with server.raw() as connection:
            connection.sendall(head)
            answered = connection.recv(1000)
        assert answered.startswith(b"HTTP/1.1 413")
        assert server.ask("POST", "/try/notes", b" " * 987 + b'{"text": "a"}').status == 200


def test_actions_that_are_too_many_for_a_body_are_refused_as_such(lake: Lake) -> None:
    with local(lake.catalogue, [NATIVE], limits=Limits(body_max_bytes=1000)) as server:
        body = b'{"tables": [{"key": "t", "actions": "' + b" " * 1000 + b'"}]}'
        assert server.ask("POST", "/api/penstock/v1/delta/commits", body).status == 413
        assert server.ask("POST", "/api/penstock/v1/delta/tables", body).status == 413


def test_a_body_of_unknown_size_is_refused_when_it_has_become_too_large(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(body_max_bytes=100_000)) as server:
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        head = b"POST /try/notes HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        answered = server.send_raw(head + chunk * 4)
        assert answered.startswith(b"HTTP/1.1 413")
        assert b"100,000 bytes" in answered
        assert server.application.open_requests == 0


def test_a_chunked_body_within_the_limit_is_read(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)]) as server:
        head = (
            b"POST /try/notes HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )
        answered = server.send_raw(head + b'7\r\n{"text"\r\n6\r\n: "a"}\r\n0\r\n\r\n')
        assert answered.endswith(b'{"text":"a","count":1}')


def test_a_body_that_does_not_come_is_given_up(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(body_timeout_s=0.2)) as server:
        answered = server.send_raw(b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        assert answered.startswith(b"HTTP/1.1 408")
        assert b"did not arrive within 0.2 s; nothing was done" in answered
        assert server.application.open_requests == 0


def test_a_read_that_takes_too_long_is_answered_and_nothing_was_changed(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(request_timeout_s=0.2)) as server:
        reply = server.get("/try/wait")
        trial.opened.set()
    assert (reply.status, reply.code) == (408, "timed_out")
    assert reply.message.endswith("nothing was changed")
    assert "retry-after" in reply.headers


def test_a_write_that_takes_too_long_may_still_be_applied(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(request_timeout_s=0.2)) as server:
        reply = server.ask("POST", "/try/wait", headers={"idempotency-key": "k"})
        assert not trial.finished.acquire(blocking=False)
        trial.opened.set()
        assert trial.finished.acquire(timeout=60)
    assert reply.status == 408
    assert "may still be applied" in reply.message
    assert "same idempotency key" in reply.message


@pytest.mark.parametrize(
    ("method", "headers"), [("POST", {}), ("PUT", {"idempotency-key": "k"})], ids=["none given", "none taken"]
)
def test_a_write_without_a_key_is_not_to_be_repeated_blindly(
    lake: Lake, trial: Trial, method: str, headers: dict[str, str]
) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(request_timeout_s=0.2)) as server:
        reply = server.ask(method, "/try/wait", headers=headers)
        trial.opened.set()
    assert reply.status == 408
    assert reply.message.endswith("it may still be applied; check whether it was before you repeat it")


def test_a_stream_may_take_longer(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(request_timeout_s=0.1)) as server:
        long = asked(server, "POST", "/try/long")
        assert trial.arrived.acquire(timeout=60)
        assert server.get("/try/wait").status == 408
        trial.opened.set()
        assert b'"result"' in long.result(60).body


def test_more_requests_than_there_is_room_for_are_sent_away(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(open_requests_max=3)) as server:
        held = [asked(server, "GET", "/try/wait") for _ in range(2)]
        for _ in held:
            assert trial.arrived.acquire(timeout=60)
        refused = server.get("/try/echo/a")
        assert (refused.status, refused.code) == (429, "throttled")
        assert int(refused.headers["retry-after"]) >= 1
        assert server.get("/try/open").status == 204, "a full server still answers what is vital"
        trial.opened.set()
        assert [one.result(60).status for one in held] == [200, 200]
        assert server.get("/try/echo/a").status == 200


def test_the_log_warns_of_what_the_server_could_not_keep_up_with(lake: Lake, trial: Trial) -> None:
    limits = Limits(open_requests_max=1, request_timeout_s=0.1)
    with local(lake.catalogue, [trial_api(trial)], limits=limits) as server:
        assert server.get("/try/wait").status == 408
        assert server.get("/try/echo/a").status == 429
        trial.opened.set()
        told = {line["status"]: (line["level"], line["message"]) for line in server.lines}
    assert told[408] == (
        "warning",
        "the request took longer than 0.1 s, this server's limit; nothing was changed",
    )
    assert told[429][0] == "warning"
    assert told[429][1].startswith("the server already has 1 requests open")


def test_a_request_keeps_its_room_until_its_thread_has_ended(lake: Lake, trial: Trial) -> None:
    limits = Limits(open_requests_max=1, request_timeout_s=0.1)
    with local(lake.catalogue, [trial_api(trial)], limits=limits) as server:
        assert server.get("/try/wait").status == 408
        assert server.get("/try/echo/a").status == 429
        trial.opened.set()
        assert trial.finished.acquire(timeout=60)
        while (reply := server.get("/try/echo/a")).status != 200:
            assert reply.status in (408, 429)  # a busy machine needs longer than this limit now and then


def test_a_body_that_is_still_on_its_way_takes_room_of_whoever_is_known(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(open_requests_max=1)) as server:
        with server.raw() as connection:
            connection.sendall(b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n{")
            while server.application.open_requests == 0:
                server.get("/try/open")
            assert server.get("/try/echo/a").status == 429
            connection.sendall(b'"text": "a"}')
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert server.get("/try/echo/a").status == 200


class ClosedGate(AccessGate):
    """Knows nobody."""

    def __call__(self, headers: object, /) -> Caller:
        raise Unauthenticated("who are you?")


def test_a_large_body_is_not_read_from_somebody_unknown(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], gate=ClosedGate()) as server:
        with server.raw() as connection:
            connection.sendall(b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{")
            answered = read_all(connection)
        assert answered.startswith(b"HTTP/1.1 401")
        assert b"www-authenticate: Bearer" in answered
        assert server.ask("POST", "/try/notes", {"text": "a"}).status == 401
        assert server.get("/try/open").status == 204
        assert server.get("/try/nope").status == 404


HALF_SENT = b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n{"


def test_nobody_unknown_can_hold_room_by_sending_nothing(lake: Lake, trial: Trial) -> None:
    gate = KnowsAda()
    with local(lake.catalogue, [trial_api(trial)], gate=gate, limits=Limits(open_requests_max=2)) as server:
        with contextlib.ExitStack() as held:
            strangers = [held.enter_context(server.raw()) for _ in range(5)]
            for stranger in strangers:
                stranger.sendall(HALF_SENT)
            # For a moment the server may be busy finding out who they are, and not longer.
            wait_until(lambda: server.get("/try/echo/a", authorization="ada").status == 200)
            # Who asks at the same moment as others may meet a server that is busy finding out who they are.
            said = {read_all(stranger)[:12] for stranger in strangers}
            assert b"HTTP/1.1 401" in said
            assert said <= {b"HTTP/1.1 401", b"HTTP/1.1 429"}
            assert server.get("/try/echo/a", authorization="ada").status == 200
        assert server.application.open_requests == 0


class KnowsAda(AccessGate):
    """Lets in one person."""

    def __call__(self, headers: Mapping[str, str], /) -> Caller:
        if headers.get("authorization") != "ada":
            raise Unauthenticated("who are you?")
        return Caller(grants=(Grant(Role.ADMIN),))


@pytest.mark.parametrize("size", [10, 1_000_000_000, 30_000_000])
def test_a_body_that_nobody_would_look_at_is_not_waited_for(lake: Lake, trial: Trial, size: int) -> None:
    with local(lake.catalogue, [trial_api(trial)], limits=Limits(open_requests_max=1)) as server:
        sent = b"GET /try/open HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\nabc" % size
        answered = server.send_raw(sent)
        assert answered[:12] in (b"HTTP/1.1 204", b"HTTP/1.1 413")
        assert b"connection: close" in answered
        assert server.application.open_requests == 0


def test_work_that_nobody_waits_for_ends_before_its_next_call(lake: Lake, trial: Trial) -> None:
    def many(ask: RouteRequest) -> None:
        trial.wait(ask)
        try:
            ask.catalogue.do(GetAbout())
        except TimedOut:
            trial.stopped.set()

    route = Route(method="GET", path="/many", handle=many, summary="Many")
    api = msgspec.structs.replace(trial_api(trial), routes=(route,))
    with local(lake.catalogue, [api], limits=Limits(request_timeout_s=0.1)) as server:
        assert server.get("/try/many").status == 408
        trial.opened.set()
        assert trial.stopped.wait(60)


def test_many_clients_at_once_all_get_their_own_answer(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)]) as server:

        def many(number: int) -> list[str]:
            connection = server.connection()
            try:
                return [
                    server.ask("GET", f"/try/echo/{number}-{i}", connection=connection).json["path"]["name"]
                    for i in range(20)
                ]
            finally:
                connection.close()

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(many, range(16)))
    assert found == [[f"{number}-{i}" for i in range(20)] for number in range(16)]


def test_a_server_that_waited_long_enough_at_its_end_says_that_a_write_is_open(
    lake: Lake, trial: Trial
) -> None:
    with local(lake.catalogue, [trial_api(trial)], drain_timeout_s=0.2) as server:
        open_write = asked(server, "POST", "/try/wait")
        assert trial.arrived.acquire(timeout=60)
    reply = open_write.result(60)
    trial.opened.set()
    assert reply.status == 408
    assert "the server is stopping; it may still be applied" in reply.message


class SlowGate(AccessGate):
    """Waits for its store."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, headers: object, /) -> Caller:
        assert self.opened.wait(30)
        raise Unauthenticated("at last")


def test_finding_out_who_asks_has_the_same_time_limit(lake: Lake, trial: Trial) -> None:
    gate, limits = SlowGate(), Limits(request_timeout_s=0.2)
    with local(lake.catalogue, [trial_api(trial)], gate=gate, limits=limits) as server:
        assert server.get("/try/echo/a").status == 408
        large = b"POST /try/writes HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{"
        answered = server.send_raw(large)
        gate.opened.set()
    assert answered.startswith(b"HTTP/1.1 408")
    assert b"nothing was changed" in answered, "a write that was not begun cannot be applied"


class BrokenGate(AccessGate):
    """Has a bug."""

    def __call__(self, headers: object, /) -> Caller:
        raise KeyError("hunter2")


def test_a_bug_before_the_body_is_read_is_not_shown_either(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial)], gate=BrokenGate()) as server:
        large = b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{"
        answered = server.send_raw(large)
        assert answered.startswith(b"HTTP/1.1 500")
        assert b"hunter2" not in answered
        assert "KeyError" in server.log
