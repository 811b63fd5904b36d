"""What a client is answered, over real connections: values, errors, and what is wrong with a request."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.metrics.table import HTTP_REQUESTS
from penstock.server.limits import Limits
from tests.server.running import Local, local, read_all
from tests.server.trying import Trial, trial_api

BODY_MAX_BYTES = 200_000


@pytest.fixture
def trial() -> Trial:
    return Trial()


@pytest.fixture(scope="module")
def server() -> Iterator[Local]:
    """One for all tests that neither wait nor read the log."""
    limits = Limits(body_max_bytes=BODY_MAX_BYTES)
    with open_lake("memory:") as lake, local(lake.catalogue, [trial_api(Trial())], limits=limits) as running:
        yield running


@pytest.fixture
def fresh(lake: Lake, trial: Trial) -> Iterator[Local]:
    with local(lake.catalogue, [trial_api(trial)]) as running:
        yield running
        trial.opened.set()


def test_a_handler_gets_the_decoded_path_query_and_request_id(server: Local) -> None:
    reply = server.get("/try/echo/dev%2Fx?name=a%20b&key=1&key=2&limit=3", **{"x-request-id": "my-7"})
    assert reply.status == 200
    assert reply.headers["x-request-id"] == "my-7"
    assert reply.json == {
        "path": {"name": "dev/x"},
        "query": {"name": "a b", "key": ["1", "2"], "limit": 3},
        "id": "my-7",
        "who": "",
    }


@pytest.mark.parametrize(
    "sent", ["", "has space", "x" * 129, 'quo"te', "é", f"a-penstock_0123456789ab_{'x' * 43}"]
)
def test_a_request_id_that_could_harm_a_log_is_replaced(server: Local, sent: str) -> None:
    reply = server.get("/try/echo/a", **{"x-request-id": sent})
    assert reply.headers["x-request-id"] not in ("", sent)
    assert reply.headers["x-request-id"] == reply.json["id"]


@pytest.mark.parametrize(
    ("query", "named"),
    [("nope=1", "nope"), ("limit=x", "limit"), ("name=a&name=b", "name"), ("name=%FF", None)],
)
def test_a_wrong_query_is_refused_by_the_name_of_its_field(
    server: Local, query: str, named: str | None
) -> None:
    reply = server.get(f"/try/echo/a?{query}")
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert reply.json["error"]["details"].get("field") == named


def test_an_api_that_is_not_strict_ignores_what_it_does_not_know(lake: Lake, trial: Trial) -> None:
    with local(lake.catalogue, [trial_api(trial, strict_query=False)]) as server:
        reply = server.get("/try/echo/a?nope=1&name=a&name=b")
    assert reply.json["query"]["name"] == "a"


def test_a_body_comes_back(server: Local) -> None:
    reply = server.ask("POST", "/try/notes", {"text": "x"})
    assert (reply.status, reply.json) == (200, {"text": "x", "count": 1})
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_packed_body_is_unpacked(server: Local, encoding: str) -> None:
    plain = json.dumps({"text": "packed"}).encode()
    packed = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)
    reply = server.ask("POST", "/try/notes", packed, {"content-encoding": encoding})
    assert reply.json["text"] == "packed"


def test_a_small_body_that_unpacks_to_a_large_one_is_refused(server: Local) -> None:
    bomb = gzip.compress(b" " * (BODY_MAX_BYTES + 1))
    assert len(bomb) < BODY_MAX_BYTES / 100
    reply = server.ask("POST", "/try/notes", bomb, {"content-encoding": "gzip"})
    assert (reply.status, reply.code) == (413, "too_large")


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{", {}, 400),
        (b"\xff", {}, 400),
        (b'{"text": 1}', {}, 400),
        (b'{"text": "a", "other": 1}', {}, 400),
        (b'{"text": "a"}', {"content-type": "text/plain"}, 415),
        (b'{"text": "a"}', {"content-encoding": "br"}, 415),
        (b'{"text": "a"}', {"content-encoding": "gzip"}, 400),
        (gzip.compress(b'{"text": "a"}', mtime=0)[:-9], {"content-encoding": "gzip"}, 400),
        (
            gzip.compress(b'{"text": "a"}', mtime=0) + gzip.compress(b" ", mtime=0),
            {"content-encoding": "gzip"},
            400,
        ),
        (b"[" * 100_000, {}, 400),
    ],
)
def test_a_wrong_body_is_refused(server: Local, body: bytes, headers: dict[str, str], status: int) -> None:
    assert server.ask("POST", "/try/notes", body, headers).status == status


def test_a_media_type_may_have_parameters(server: Local) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert server.ask("POST", "/try/notes", b'{"text": "a"}', headers).status == 200


def test_a_body_that_is_not_required_may_be_left_out(server: Local) -> None:
    assert server.ask("PUT", "/try/notes").json is None


def test_no_answer_is_204_without_a_body(server: Local) -> None:
    reply = server.ask("DELETE", "/try/notes")
    assert (reply.status, reply.body) == (204, b"")
    assert "content-type" not in reply.headers


def test_head_has_the_headers_of_get_and_no_body(server: Local) -> None:
    get, head = server.get("/try/echo/a"), server.ask("HEAD", "/try/echo/a")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


def test_an_error_is_said_with_its_status_and_request_id(server: Local) -> None:
    reply = server.get("/try/missing", **{"x-request-id": "my-8"})
    assert (reply.status, reply.code) == (404, "reference_not_found")
    assert reply.json["request_id"] == "my-8"
    assert server.get("/try/nope").code == "route_not_found"
    refused = server.ask("PATCH", "/try/notes")
    assert (refused.status, refused.headers["allow"]) == (405, "DELETE, POST, PUT")


def test_a_bug_shows_a_client_nothing_and_the_log_everything_but_secrets(fresh: Local) -> None:
    reply = fresh.get("/try/bug")
    assert reply.status == 500
    assert b"RuntimeError" not in reply.body
    assert b"Traceback" not in reply.body
    [trace] = [line["trace"] for line in fresh.lines if "trace" in line]
    assert "RuntimeError" in trace
    assert "hunter2" not in fresh.log
    assert "SeCrEt" not in fresh.log
    assert reply.json["request_id"] in fresh.log


def test_every_request_is_logged_and_counted(fresh: Local) -> None:
    fresh.get("/try/echo/a?name=private", **{"x-request-id": "my-9", "authorization": "Bearer hunter2"})
    fresh.get("/try/penstock_0123456789ab_SeCrEt")
    first, second = fresh.lines
    assert (
        first.items() >= {"request_id": "my-9", "method": "GET", "path": "/try/echo/a", "status": 200}.items()
    )
    assert first["ms"] > 0
    assert (second["status"], second["error"]) == (404, "route_not_found")
    for secret in ("private", "hunter2", "SeCrEt"):
        assert secret not in fresh.log
    counted = fresh.metrics.snapshot()
    assert counted.count(HTTP_REQUESTS, api="try", route="GET /echo/{name}", status="200") == 1
    assert counted.count(HTTP_REQUESTS, status="404") == 1


def test_one_connection_serves_many_requests(server: Local) -> None:
    connection = server.connection()
    for number in range(3):
        assert server.ask("POST", "/try/notes", {"text": str(number)}, connection=connection).status == 200
        assert server.ask("GET", "/try/nope", connection=connection).status == 404
        assert server.ask("GET", "/try/bug", connection=connection).status == 500
    connection.close()


def test_requests_that_do_not_wait_for_answers_are_answered_in_order(server: Local) -> None:
    requests = b"".join(b"GET /try/echo/%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(3))
    last = b"GET /try/echo/last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answered = server.send_raw(requests + last).decode()
    positions = [answered.index(f'"name":"{name}"') for name in ("0", "1", "2", "last")]
    assert positions == sorted(positions)


def test_a_stream_tells_how_far_it_is_and_ends_with_the_result(fresh: Local, trial: Trial) -> None:
    connection = fresh.connection()
    connection.request("POST", "/try/long")
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "application/x-ndjson"
    assert json.loads(answer.readline()) == {"progress": ["things", 1]}
    trial.opened.set()
    assert json.loads(answer.readline()) == {"result": {"text": "long", "count": 1}}
    assert answer.read() == b""
    connection.close()


def test_a_stream_that_fails_at_once_has_the_status_of_its_error(server: Local) -> None:
    assert server.ask("POST", "/try/long/bug").status == 500


def test_work_goes_on_when_the_client_of_a_stream_leaves(fresh: Local, trial: Trial) -> None:
    with fresh.raw() as connection:
        connection.sendall(b"POST /try/long HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        assert trial.arrived.acquire(timeout=60)
    trial.opened.set()
    assert trial.finished.acquire(timeout=60)
    assert fresh.get("/try/echo/a").status == 200


@pytest.mark.parametrize("sent", [b"GET /try/wait HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_a_client_that_leaves_before_its_answer_disturbs_nobody(
    fresh: Local, trial: Trial, sent: bytes
) -> None:
    with fresh.raw() as connection:
        connection.sendall(sent)
        assert trial.arrived.acquire(timeout=60)
    trial.opened.set()
    assert trial.finished.acquire(timeout=60)
    assert fresh.get("/try/echo/a").status == 200
    assert '"level":"error"' not in fresh.log


def test_a_client_that_leaves_in_mid_body_is_forgotten(fresh: Local) -> None:
    with fresh.raw() as connection:
        connection.sendall(b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
        # What the server has of it is certain once it answers somebody who came later.
        assert fresh.get("/try/echo/a").status == 200
    while not any(line.get("status") == 499 for line in fresh.lines):
        assert fresh.get("/try/echo/a").status == 200
    assert fresh.application.open_requests == 0


GARBAGE = [
    b"\x00\x01\x02\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET http:// HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    b"POST /try/notes HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /try/notes HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"POST /try/notes HTTP/1.1\r\nhost: x\r\ncontent-length: " + b"9" * 400 + b"\r\n\r\n",
    b"GET /try/echo/a HTTP/1.1\r\nbad header\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_answered_by_400_or_not_at_all(server: Local, data: bytes) -> None:
    with server.raw() as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answered = read_all(connection)
    assert not answered or answered.split(b" ")[1] in (b"400", b"404"), answered
    assert server.get("/try/echo/a").status == 200


def test_a_terminal_gets_lines_for_people(tmp_path: Path) -> None:
    from penstock.server.logs import Log, LogLineWriter

    with (tmp_path / "log").open("wb") as stream:
        log = Log(stream, for_people=True)
        log.log_request(
            LogLineWriter(
                time="2026-11-15T10:00:00.000Z",
                level="info",
                request_id="r1",
                method="GET",
                path="/a\x1b[31m",
                status=404,
                ms=1.25,
                error="not_found",
            )
        )
    assert (tmp_path / "log").read_text() == "10:00:00  404  GET /a\\x1b[31m  1.2 ms  not_found  [r1]\n"
