"""Penstock's own API, as any client sees it: paths, headers, limits, and what its errors look like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import urllib3

import penstock
from penstock.formats.delta.lake.calls import AdoptTables, ReleaseTables
from penstock.formats.files.lake.sweep_calls import SweepFiles
from penstock.formats.files.routes import ROUTES
from penstock.lake.calls import CALLS, EraseTable, Fsck, Sweep, SweepTables, WriteCall
from penstock.lake.lake import Lake
from penstock.lake.resync_calls import Resync
from penstock.server.limits import Limits
from penstock.server.native import NATIVE, PREFIX
from penstock.server.spark_catalog import ROUTES as SPARK_CATALOG
from tests.remote.scenarios import table
from tests.remote.serving import serving

LONG = {Sweep, SweepTables, EraseTable, SweepFiles, Resync, Fsck, AdoptTables, ReleaseTables}
"""Calls that tell how far they are."""


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    with penstock.open("memory:", author="tester") as lake:
        lake.branch().put("sales.orders", table(1))
        lake.branch("dev/a").create()
        yield lake


class Client:
    """Asks, and reads JSON."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(retries=False)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        """The status, the JSON (the last line of several) and the headers of the answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        answer = self._pool.request(method, self._url + PREFIX + path, body=data, headers=named)
        *_, last = answer.data.splitlines() or [b"null"]
        return answer.status, msgspec.json.decode(last), answer.headers

    def close(self) -> None:
        self._pool.clear()


@pytest.fixture(scope="module")
def ask(lake: Lake) -> Iterator[Client]:
    with serving(lake.catalogue, limits=Limits(page_max=5, operations_max=3)) as server:
        client = Client(server.url)
        yield client
        client.close()


def test_every_call_is_a_route_of_its_own() -> None:
    routes = {(route.method, route.path) for route in NATIVE.routes}
    assert len(routes) == len(NATIVE.routes)
    assert NATIVE.routes[len(CALLS) :] == (*SPARK_CATALOG, *ROUTES)
    for kind, route in zip(CALLS, NATIVE.routes[: len(CALLS)], strict=True):
        assert (route.method, route.path, route.answer) == (kind.method, kind.path, kind.answer)
        assert route.streams == (kind in LONG)
        assert route.summary
        assert route.is_write == (kind.method != "GET" and not route.streams)
        assert ("Idempotency-Key" in route.headers) == issubclass(kind, WriteCall)


def test_a_read_has_its_fields_in_path_and_query(ask: Client) -> None:
    status, found, _ = ask("GET", "/references/dev%2Fa")
    assert (status, found["name"], found["kind"]) == (200, "dev/a", "branch")
    status, found, _ = ask("GET", "/contents?key=sales&key=sales.orders&key=nothing")
    assert status == 200
    assert [(one["key"], one["content"]["type"]) for one in found] == [
        ("sales", "NAMESPACE"),
        ("sales.orders", "ICEBERG_TABLE"),
    ]


def test_a_write_has_its_fields_in_the_body_and_its_key_in_a_header(ask: Client, lake: Lake) -> None:
    body = {"operations": [{"operation": "put", "key": "a", "content": {"type": "NAMESPACE"}}], "who": "me"}
    status, first, _ = ask("POST", "/commits", body, Idempotency_Key="load%2D9")
    assert (status, first["committer"], first["key"]) == (200, "me", "load-9")
    assert ask("POST", "/commits", body, Idempotency_Key="load-9")[1] == first
    outcome = ask("GET", "/outcomes/load-9")[1]
    assert (outcome["commits"], outcome["head"]) == ([first["id"]], first["id"])
    assert lake.show().id == first["id"]


def test_nothing_is_null_or_no_body_at_all(ask: Client) -> None:
    assert ask("GET", "/outcomes/never")[:2] == (200, None)
    assert ask("PUT", "/history-rules", {"pattern": "x", "max_commits": 1})[:2] == (204, None)


def test_a_body_may_be_left_out_where_nothing_in_it_is_needed(ask: Client) -> None:
    status, found, headers = ask("POST", "/sweep")
    assert (status, headers["content-type"]) == (200, "application/x-ndjson")
    assert found["result"]["dry_run"] is False
    assert ask("POST", "/merge")[0] == 400


def test_what_is_read_at_a_commit_may_be_kept_for_ever(ask: Client, lake: Lake) -> None:
    commit = lake.resolve()
    for path in (
        f"/contents?at={commit}&key=sales",
        f"/entries?at={commit}&limit=5",
        f"/commits/{commit}",
        f"/commits/{commit}/changes?limit=5",
        f"/diff?before={commit}&to={commit}&limit=5",
    ):
        status, _, headers = ask("GET", path)
        assert (status, "immutable" in headers.get("cache-control", "")) == (200, True), path
        assert "private" in headers["cache-control"]
        assert headers["vary"] == "authorization, x-api-key", "another caller may be shown less"


def test_what_may_change_is_not_kept(ask: Client, lake: Lake) -> None:
    commit = lake.resolve()
    for path in (
        "/contents?key=sales",
        "/contents?at=main&key=sales",
        f"/contents?at={commit[:12]}&key=sales",
        f"/commits/main@{commit}",
        f"/diff?before=main&to={commit}&limit=5",
        f"/resolve?revision={commit}",
        "/lake",
    ):
        status, _, headers = ask("GET", path)
        assert (status, headers.get("cache-control")) == (200, None), path
    assert ask("GET", f"/commits/{'f' * 64}")[2].get("cache-control") is None


@pytest.mark.parametrize(
    "path",
    ["/references?limit=6", "/references?limit=null", "/entries?limit=1000", "/references", "/log?limit=6"],
)
def test_a_page_that_is_too_large_is_refused(ask: Client, path: str) -> None:
    status, found, _ = ask("GET", path)
    assert (status, found["error"]["code"]) == (400, "invalid_request")
    assert found["error"]["details"] == {"page_max": 5}
    assert "at most 5" in found["error"]["message"]


def _deletions(count: int) -> list[dict[str, str]]:
    return [{"operation": "delete", "key": f"k{number}"} for number in range(count)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/commits", {"operations": _deletions(4)}),
        ("/transplant", {"commits": ["main"] * 4}),
        ("/merge", {"source": "dev/a", "keys": {f"k{number}": {} for number in range(4)}}),
    ],
)
def test_a_request_that_does_too_much_is_refused(ask: Client, path: str, body: Any) -> None:
    status, found, _ = ask("POST", path, body)
    assert (status, found["error"]["details"]) == (400, {"operations_max": 3})
    assert "at most 3" in found["error"]["message"]


def test_a_request_that_does_just_enough_is_looked_at(ask: Client) -> None:
    status, found, _ = ask("POST", "/commits", {"operations": _deletions(3)})
    assert (status, found["error"]["code"]) == (409, "commit_conflict")
    assert [one["key"] for one in found["error"]["details"]["conflicts"]] == ["k0", "k1", "k2"]


BAD: list[tuple[str, str, Any, int, str, str]] = [
    ("GET", "/references/nobody", None, 404, "reference_not_found", "nobody"),
    ("GET", "/nothing", None, 404, "route_not_found", "/nothing"),
    ("DELETE", "/lake", None, 405, "method_not_allowed", "GET"),
    ("GET", "/entries?limit=5&colour=red", None, 400, "invalid_request", "colour"),
    ("GET", "/entries?limit=5&limit=4", None, 400, "invalid_request", "limit"),
    ("GET", "/entries?limit=many", None, 400, "invalid_request", "limit"),
    ("GET", "/entries?limit=-1", None, 400, "invalid_request", "-1"),
    ("GET", "/entries?limit=5&prefix=a..b", None, 400, "invalid_key", "empty element"),
    ("GET", "/contents", None, 400, "invalid_request", "key"),
    ("GET", "/log?since=yesterday&limit=5", None, 400, "invalid_request", "since"),
    ("GET", "/log?since=2026-11-01T00:00:00&limit=5", None, 400, "invalid_request", "timezone"),
    ("GET", "/commits/main~x", None, 400, "invalid_name", "main~x"),
    ("GET", "/references/%FF", None, 400, "invalid_request", "UTF-8"),
    ("POST", "/commits", b"{", 400, "invalid_request", "JSON"),
    ("POST", "/commits", {"operations": [], "x": 1}, 400, "invalid_request", "'x'"),
    ("POST", "/commits", {"operations": [{"operation": "fly"}]}, 400, "invalid_request", "operations[0]"),
    ("POST", "/references", {"name": "main"}, 409, "reference_exists", "main"),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "told"), BAD, ids=lambda one: str(one)[:40]
)
def test_an_error_says_what_is_wrong(
    ask: Client, method: str, path: str, body: Any, status: int, code: str, told: str
) -> None:
    found_status, found, headers = ask(method, path, body, X_Request_Id="r-17")
    assert (found_status, found["error"]["code"]) == (status, code)
    assert told in found["error"]["message"]
    assert found["request_id"] == headers["x-request-id"] == "r-17"
    assert set(found) == {"error", "request_id"}
    assert set(found["error"]) == {"code", "message", "details"}


@pytest.mark.parametrize("key", ["", "x" * 201, "a%0Ab", "%FF"])
def test_a_key_that_cannot_be_is_refused(ask: Client, key: str) -> None:
    body = {"operations": [{"operation": "delete", "key": "a"}]}
    status, found, _ = ask("POST", "/commits", body, Idempotency_Key=key)
    assert (status, found["error"]["code"]) == (400, "invalid_request")
    assert "idempotency key" in found["error"]["message"]
