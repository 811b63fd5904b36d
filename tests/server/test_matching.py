"""Which route a request is for: by method and by the path as it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from penstock.errors import InvalidRequest, MethodNotAllowed, PenstockError, RouteNotFound
from penstock.model.keys import Key
from penstock.server.route_matcher import RouteMatcher, list_parameters
from penstock.server.routes import Api, HttpAnswer, Route
from penstock.wire import json


def route(method: str, path: str, **patterns: str) -> Route:
    return Route(method=method, path=path, handle=lambda _: None, summary="", patterns=patterns)


def _error(error: PenstockError, _: Mapping[str, str]) -> HttpAnswer:
    return HttpAnswer(status=error.http_status)


def api(prefix: str, *routes: Route) -> Api:
    return Api(
        name=prefix.strip("/") or "root",
        prefix=prefix,
        title="",
        description="",
        routes=routes,
        codec=json,
        error=_error,
        error_schema=None,
        strict_query=True,
    )


TREES = api(
    "/api/v2",
    route("GET", "/trees"),
    route("POST", "/trees"),
    route("GET", "/trees/{ref}"),
    route("DELETE", "/trees/{ref}"),
    route("GET", "/trees/{ref}/contents/{key}"),
    route("GET", "/diff/{one}...{other}", one=r"(?:[^/.]|\.(?!\.\.))+"),
)
MATCHING = RouteMatcher((api("", route("GET", "/healthz"), route("GET", "/")), TREES))


@pytest.mark.parametrize(
    ("method", "path", "label", "values"),
    [
        ("GET", "/healthz", "GET /healthz", {}),
        ("GET", "/", "GET /", {}),
        ("GET", "/api/v2/trees", "GET /trees", {}),
        ("GET", "/api/v2/trees/", "GET /trees", {}),
        ("POST", "/api/v2/trees", "POST /trees", {}),
        ("HEAD", "/api/v2/trees", "GET /trees", {}),
        ("GET", "/api/v2/trees/main", "GET /trees/{ref}", {"ref": "main"}),
        ("GET", "/api/v2/trees/dev%2Ffix", "GET /trees/{ref}", {"ref": "dev/fix"}),
        ("GET", "/api/v2/trees/a%252Fb", "GET /trees/{ref}", {"ref": "a%2Fb"}),
        ("GET", "/api/v2/trees/%E2%82%AC", "GET /trees/{ref}", {"ref": "€"}),
        ("GET", "/api/v2/trees/a+b", "GET /trees/{ref}", {"ref": "a+b"}),
        ("GET", "/api/v2/diff/a.b...c", "GET /diff/{one}...{other}", {"one": "a.b", "other": "c"}),
        (
            "GET",
            "/api/v2/trees/main/contents/sales%2Forders",
            "GET /trees/{ref}/contents/{key}",
            {"ref": "main", "key": "sales/orders"},
        ),
    ],
)
def test_a_request_finds_its_route_and_decoded_parameters(
    method: str, path: str, label: str, values: dict[str, str]
) -> None:
    found = MATCHING.find_route(method, path)
    assert (found.label, found.path) == (label, values)


@pytest.mark.parametrize(
    "path", ["/api/v2", "/api/v2/", "/api/v2/nope", "/api/v2/trees//", "/api/v3/trees", "/api/v2/trees/a/b"]
)
def test_a_path_that_no_route_has_is_not_found(path: str) -> None:
    with pytest.raises(RouteNotFound):
        MATCHING.find_route("GET", path)


def test_another_method_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        MATCHING.find_route("PUT", "/api/v2/trees/main")
    assert refused.value.details["allowed"] == ("DELETE", "GET", "HEAD")


def test_a_parameter_that_is_not_text_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest) as refused:
        MATCHING.find_route("GET", "/api/v2/trees/%FF")
    assert refused.value.details["field"] == "ref"


def test_what_is_wrong_below_a_prefix_is_said_by_its_api() -> None:
    assert MATCHING.find_api("/api/v2/nope") is TREES
    assert MATCHING.find_api("/api/v3/nope").name == "root"


def test_the_first_route_of_the_table_wins() -> None:
    both = RouteMatcher((api("/x", route("GET", "/{any}"), route("GET", "/fixed")),))
    assert both.find_route("GET", "/x/fixed").label == "GET /{any}"


def test_a_pattern_with_a_group_of_its_own_is_refused_when_the_server_is_made() -> None:
    with pytest.raises(ValueError, match="captures"):
        RouteMatcher((api("/x", route("GET", "/{a}", a="(b|c)")),))


def test_parameters_of_several_values_are_known() -> None:
    class Query(msgspec.Struct, rename="camel"):
        key: tuple[Key, ...]
        max_records: int | None = None
        filters: list[str] | None = None

    assert list_parameters(Query) == {"key": True, "maxRecords": False, "filters": True}
    nothing: Any = None
    assert list_parameters(nothing) == {}
