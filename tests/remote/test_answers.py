"""What a client makes of answers: of errors, busy servers, things in between, and servers of other kinds."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import (
    AdministratorError,
    CommitConflict,
    Denied,
    InvalidRequest,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    RetriesExhausted,
    RouteNotFound,
    Throttled,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedFormat,
)
from penstock.lake.answers import LandedRequest
from penstock.lake.calls import Call, CreateReference, Fsck, GetReference, KeepHistory, Merge, Resolve
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.model.encoding import NO_COMMIT
from penstock.model.references import Kind, Reference
from penstock.wire import json
from tests.remote.scripted import Said, refusal, scripted

QUICK = RemoteTimeouts(total_s=0.15, wait_min_s=0.001, wait_max_s=0.01)
PATIENT = RemoteTimeouts(total_s=30.0, wait_min_s=0.001, wait_max_s=0.01)

READ = GetReference(name="dev")
WRITE = CreateReference(name="dev")
FOUND = Reference(kind=Kind.BRANCH, name="dev", incarnation=b"1", log=NO_COMMIT, position=0, created_us=1)
YES = Said(200, json.encode(FOUND, Reference))
HTML = b"<html><title>Bad gateway</title></html>"


def ask(url: str, call: Call[Any], patience: RemoteTimeouts = PATIENT) -> Any:
    remote = RemoteCatalogue(url, patience=patience)
    try:
        return remote.do(call)
    finally:
        remote.close()


NOTHING_HAPPENED = [
    refusal(Throttled("busy")),
    refusal(Unavailable("the store is away")),
    refusal(Throttled("busy"), retry_after="0"),
    Said(429, HTML, "text/html"),
]


@pytest.mark.parametrize("call", [READ, WRITE], ids=["read", "write"])
@pytest.mark.parametrize("said", NOTHING_HAPPENED)
def test_a_busy_server_is_asked_again(call: Call[Any], said: Said) -> None:
    with scripted(said, said, YES) as server:
        assert ask(server.url, call) == FOUND
    assert len(server.asked) == 3
    assert len({asked.headers.get("idempotency-key") for asked in server.asked}) == 1


@pytest.mark.parametrize("call", [READ, WRITE], ids=["read", "write"])
@pytest.mark.parametrize(
    ("said", "kind"), list(zip(NOTHING_HAPPENED, [Throttled, Unavailable, Throttled, Throttled], strict=True))
)
def test_a_server_that_stays_busy_is_given_up(call: Call[Any], said: Said, kind: type[PenstockError]) -> None:
    with scripted(said) as server, pytest.raises(kind):
        ask(server.url, call, QUICK)


def test_a_server_that_asks_for_more_time_than_there_is_is_given_up_at_once() -> None:
    with (
        scripted(refusal(Throttled("busy"), retry_after="3600")) as server,
        pytest.raises(Throttled, match="busy"),
    ):
        ask(server.url, READ)
    assert len(server.asked) == 1


PERHAPS_HAPPENED = [
    refusal(OutcomeUnknown("the store did not say", key="k")),
    refusal(TimedOut("it took too long")),
    Said(502, HTML, "text/html"),
    Said(503, HTML, "text/html"),
    Said(504, b"", "text/plain"),
    Said(408, HTML, "text/html"),
    Said(500, HTML, "text/html"),
    Said(500, b'{"message":"Internal server error"}'),
    Said(520, HTML, "text/html"),
    Said(529, HTML, "text/html"),
]


@pytest.mark.parametrize("said", PERHAPS_HAPPENED, ids=lambda said: str(said.status))
def test_a_write_in_doubt_is_repeated_with_the_same_key(said: Said) -> None:
    with scripted(said, said, YES) as server:
        assert ask(server.url, WRITE) == FOUND
    keys = {asked.headers["idempotency-key"] for asked in server.asked}
    assert (len(server.asked), len(keys)) == (3, 1)


@pytest.mark.parametrize("said", PERHAPS_HAPPENED, ids=lambda said: str(said.status))
def test_a_write_that_stays_in_doubt_has_an_unknown_outcome(said: Said) -> None:
    with (
        scripted(said) as server,
        pytest.raises(OutcomeUnknown, match=r"whether request \w+ was applied") as caught,
    ):
        ask(server.url, WRITE, QUICK)
    key = server.asked[0].headers["idempotency-key"]
    assert caught.value.details == {"key": key, "name": "dev"}
    assert str(caught.value).count("known") == 1


@pytest.mark.parametrize("status", [502, 503, 504, 520, 529])
def test_a_read_that_something_in_between_could_not_pass_on_is_repeated(status: int) -> None:
    with scripted(Said(status, HTML, "text/html"), YES) as server:
        assert ask(server.url, READ) == FOUND
    assert len(server.asked) == 2


UNREADABLE = [
    (Said(200, HTML, "text/html"), "not a Penstock server"),
    (Said(200, b'{"hello":"world"}'), "newer than this Penstock, or not a Penstock server"),
    (Said(200, b"[1, 2"), "newer than this Penstock, or not a Penstock server"),
]


@pytest.mark.parametrize(("said", "_"), UNREADABLE)
def test_a_write_whose_answer_cannot_be_read_is_sent_once_more_with_the_same_key(said: Said, _: str) -> None:
    with scripted(said, YES) as server:
        assert ask(server.url, WRITE) == FOUND
    assert [asked.method for asked in server.asked] == ["POST", "POST"]
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 1


@pytest.mark.parametrize(("said", "told"), UNREADABLE)
def test_a_write_whose_second_answer_cannot_be_read_either_is_looked_up(said: Said, told: str) -> None:
    landing = Said(200, json.encode(LandedRequest(commits=(), head="ab" * 32), LandedRequest))
    with scripted(said, said, landing, YES) as server:
        assert ask(server.url, WRITE).id == "ab" * 32
    assert [asked.method for asked in server.asked] == ["POST", "POST", "GET", "GET"]
    with scripted(said, said, Said(200, b"null")) as server, pytest.raises(OutcomeUnknown, match=told):
        ask(server.url, WRITE)
    assert [asked.method for asked in server.asked] == ["POST", "POST", "GET"]


def test_a_doubt_is_not_forgotten_when_the_server_is_busy_then() -> None:
    with (
        scripted(Said(502, HTML, "text/html"), refusal(Throttled("busy"))) as server,
        pytest.raises(OutcomeUnknown),
    ):
        ask(server.url, WRITE, QUICK)


@pytest.mark.parametrize("error", [Denied("not any more"), Unauthenticated("revoked")])
def test_a_doubt_is_not_forgotten_when_the_token_is_refused_then(error: PenstockError) -> None:
    with (
        scripted(Said(502, HTML, "text/html"), refusal(error)) as server,
        pytest.raises(OutcomeUnknown),
    ):
        ask(server.url, WRITE)
    assert len(server.asked) == 2


def test_a_read_that_took_too_long_is_not_asked_for_again() -> None:
    with scripted(refusal(TimedOut("too long"))) as server, pytest.raises(TimedOut):
        ask(server.url, READ)
    assert len(server.asked) == 1


def test_a_fault_of_the_server_leaves_a_write_in_doubt_but_not_a_read() -> None:
    with scripted(refusal(PenstockError("internal error of the server"))) as server:
        with pytest.raises(OutcomeUnknown, match="internal error of the server"):
            ask(server.url, WRITE)
        with pytest.raises(AdministratorError, match="internal error of the server"):
            ask(server.url, READ)
    assert [asked.method for asked in server.asked] == ["POST", "POST", "GET", "GET"]


def test_a_write_that_the_servers_fault_came_after_is_found_out() -> None:
    landing = Said(200, json.encode(LandedRequest(commits=(), head="ab" * 32), LandedRequest))
    fault = refusal(PenstockError("internal error of the server"))
    with scripted(fault, fault, landing, YES) as server:
        assert ask(server.url, WRITE).id == "ab" * 32


def test_an_error_tells_the_request_that_met_it() -> None:
    with scripted(refusal(PenstockError("internal error of the server"))) as server:
        for call in (READ, WRITE):
            with pytest.raises(PenstockError) as caught:
                ask(server.url, call)
            assert caught.value.request_id == "r1"
    with scripted(Said(404, HTML, "text/html")) as server, pytest.raises(LakeNotFound) as caught:
        ask(server.url, READ)
    assert caught.value.request_id == ""


@pytest.mark.parametrize(
    "error",
    [Denied("no"), Unauthenticated("who?"), CommitConflict(()), RetriesExhausted("it moved"), TooLarge("no")],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_are_raised_at_once(error: PenstockError) -> None:
    with scripted(refusal(error)) as server, pytest.raises(type(error)):
        ask(server.url, WRITE)
    assert len(server.asked) == 1


def test_a_dry_run_is_a_read() -> None:
    with scripted(Said(502, HTML, "text/html")) as server, pytest.raises(Unavailable):
        ask(server.url, Merge(source="dev", dry_run=True), QUICK)
    assert "idempotency-key" not in server.asked[0].headers


FOREIGN: list[tuple[Said, type[PenstockError], str]] = [
    (Said(404, HTML, "text/html"), LakeNotFound, "not a Penstock server"),
    (Said(404, b'{"detail":"Not Found"}'), LakeNotFound, "not a Penstock server"),
    (Said(405, b"", "text/plain"), LakeNotFound, "not a Penstock server"),
    (Said(400, b"Invalid HTTP request", "text/plain"), InvalidRequest, "too long"),
    (Said(414, HTML, "text/html"), InvalidRequest, "too long"),
    (Said(401, HTML, "text/html"), Unauthenticated, "from Penstock"),
    (Said(403, HTML, "text/html"), Denied, "from Penstock"),
    (refusal(RouteNotFound("there is nothing at /x")), RouteNotFound, "may be older than this Penstock"),
    (Said(302, b"", headers={"location": "https://login"}), InvalidRequest, "redirects to https://login"),
    (Said(307, b"", headers={"location": "/elsewhere"}), InvalidRequest, "redirects to /elsewhere"),
]


@pytest.mark.parametrize(("said", "kind", "told"), FOREIGN, ids=lambda one: str(one)[:30])
@pytest.mark.parametrize("call", [READ, WRITE], ids=["read", "write"])
def test_what_is_no_penstock_server_is_told(
    call: Call[Any], said: Said, kind: type[PenstockError], told: str
) -> None:
    with scripted(said) as server, pytest.raises(kind, match=told) as caught:
        ask(server.url, call)
    assert len(server.asked) == 1
    assert server.url in str(caught.value)


FOREIGN_READS: list[tuple[Said, type[PenstockError], str]] = [
    (Said(200, HTML, "text/html"), LakeNotFound, "not a Penstock server"),
    (
        Said(200, b'{"hello":"world"}'),
        UnsupportedFormat,
        "newer than this Penstock, or not a Penstock server",
    ),
    (Said(200, b"[1, 2"), UnsupportedFormat, "newer than this Penstock, or not a Penstock server"),
    (Said(500, HTML, "text/html"), AdministratorError, "from Penstock"),
    (Said(408, HTML, "text/html"), TimedOut, "from Penstock"),
]


@pytest.mark.parametrize(("said", "kind", "told"), FOREIGN_READS, ids=lambda one: str(one)[:30])
def test_a_read_of_what_is_no_penstock_server_is_not_repeated(
    said: Said, kind: type[PenstockError], told: str
) -> None:
    with scripted(said) as server, pytest.raises(kind, match=told) as caught:
        ask(server.url, READ)
    assert len(server.asked) == 1
    assert server.url in str(caught.value)


@pytest.mark.parametrize("path", ["/api/v1", "/api/v2", "/api/v2/"])
def test_the_address_of_nessies_api_is_told_apart(path: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"the address of Nessie's API; the address of the lake is http://host:1/x$"
    ):
        RemoteCatalogue(f"http://host:1/x{path}")


def test_a_path_where_a_server_has_nothing_is_told() -> None:
    said = refusal(RouteNotFound("there is nothing at /foo/api/penstock/v1/lake"))
    with scripted(said) as server, pytest.raises(LakeNotFound) as caught:
        ask(f"{server.url}/foo", READ)
    assert str(caught.value) == f"there is no lake at {server.url}/foo, but a server at {server.url}"
    assert caught.value.request_id == "r1"


def test_a_newer_servers_answer_is_read_without_what_is_new() -> None:
    body = json.encode(FOUND, Reference).replace(b"{", b'{"colour":"red",', 1)
    with scripted(Said(200, body)) as server:
        assert ask(server.url, READ) == FOUND


def test_nothing_is_answered_where_nothing_is_expected() -> None:
    with scripted(Said(204), Said(200, b'{"new":1}'), Said(200, HTML, "text/html")) as server:
        assert ask(server.url, KeepHistory(max_commits=1)) is None
        assert ask(server.url, KeepHistory(max_commits=1)) is None
        with pytest.raises(OutcomeUnknown, match="not a Penstock server"):
            ask(server.url, KeepHistory(max_commits=1))


LINES = "application/x-ndjson"


def test_a_long_answer_tells_how_far_the_work_is() -> None:
    result = b'{"result":{"references":1,"commits":2,"objects":3,"damages":[]}}\n'
    body = b'{"progress":["read",1]}\n\n{"progress":["read",20]}\n' + result
    steps: list[tuple[str, int]] = []
    with scripted(Said(200, body, LINES)) as server:
        remote = RemoteCatalogue(server.url)
        checked = remote.do(Fsck(), lambda *step: steps.append(step))
        remote.close()
    assert (checked.objects, steps) == (3, [("read", 1), ("read", 20)])


def test_a_long_answer_may_end_in_an_error() -> None:
    body = b'{"progress":["read",1]}\n' + refusal(Unavailable("the store went away")).body
    with (
        scripted(Said(200, body, LINES)) as server,
        pytest.raises(Unavailable, match="the store went away"),
    ):
        ask(server.url, Fsck(), QUICK)


@pytest.mark.parametrize("body", [b"", b'{"progress":["read",1]}\n', b"<html>\n", b'{"progress":5}\n'])
def test_a_long_answer_that_breaks_off_is_unavailable(body: bytes) -> None:
    with scripted(Said(200, body, LINES)) as server, pytest.raises(Unavailable, match="lost"):
        ask(server.url, Fsck())


def test_a_path_before_the_api_is_kept() -> None:
    with scripted(YES) as server:
        for base in ("", "/", "/lakes/one", "/lakes/one/", "/lakes/one/api/penstock/v1"):
            ask(server.url + base, READ)
    prefixes = [asked.path.removesuffix("/api/penstock/v1/references/dev") for asked in server.asked]
    assert prefixes == ["", "", "/lakes/one", "/lakes/one", "/lakes/one"]


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(YES) as server, scripted(Said(502)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert ask(server.url, READ) == FOUND
    assert proxy.asked == []


def test_a_redirect_is_not_followed_even_without_a_token() -> None:
    with (
        scripted(YES) as other,
        scripted(Said(302, headers={"location": other.url})) as server,
        pytest.raises(InvalidRequest, match="redirects"),
    ):
        ask(server.url, Resolve())
    assert other.asked == []
