"""The description of the server: valid, complete, and a page that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from penstock.lake.lake import Lake
from penstock.server import api_page
from penstock.server.access import OpenGate
from penstock.server.health import Readiness, make_server_api
from penstock.server.openapi import describe_apis
from penstock.server.routes import Api, Route
from penstock.server.run import load_apis
from tests.server.running import local
from tests.server.trying import Trial, trial_api


@pytest.fixture
def apis(lake: Lake) -> tuple[Api, ...]:
    own = make_server_api(load_apis(), Readiness(lake.catalogue), OpenGate(), lambda: b"")
    return (own, *load_apis(), trial_api(Trial()))


def operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


@pytest.mark.verify
def test_the_description_is_valid(apis: tuple[Api, ...]) -> None:
    OpenAPIV31SpecValidator(describe_apis(apis)).validate()


def test_every_route_is_described_with_everything_it_takes(apis: tuple[Api, ...]) -> None:
    described = {(method, path): operation for method, path, operation in operations(describe_apis(apis))}
    routes = [(api, route) for api in apis for route in api.routes]
    assert len(described) == len(routes)
    for api, route in routes:
        operation = described[route.method, api.prefix + route.path]
        in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", route.path))
        assert ("requestBody" in operation) == (route.body is not None)
        assert operation["summary"]
        assert all(str(status) in operation["responses"] for status in (*route.statuses, 429, 500))


def test_every_operation_has_an_id_of_its_own(apis: tuple[Api, ...]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(describe_apis(apis))]
    assert len(set(ids)) == len(ids)


def test_only_public_routes_need_no_token(apis: tuple[Api, ...]) -> None:
    description = describe_apis(apis)
    assert description["security"] == [{"token": []}]
    public = {path for _, path, operation in operations(description) if operation.get("security") == []}
    assert public == {"/healthz", "/readyz", "/openapi.json", "/docs", "/", "/try/open"}


def test_what_a_query_takes_are_parameters(apis: tuple[Api, ...]) -> None:
    echo = describe_apis(apis)["paths"]["/try/echo/{name}"]["get"]
    found = {(one["name"], one["in"]): one["schema"].get("type") for one in echo["parameters"]}
    assert found == {
        ("name", "path"): "string",
        ("name", "query"): "string",
        ("key", "query"): "array",
        ("limit", "query"): "integer",
    }


class Tags(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str | None]] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs


def test_the_page_shows_every_route_and_loads_nothing(lake: Lake, apis: tuple[Api, ...]) -> None:
    with local(lake.catalogue, apis) as server:
        for path in ("/", "/docs"):
            reply = server.get(path)
            assert reply.headers["content-type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in reply.headers["content-security-policy"]
            text = reply.body.decode()
            assert all(
                f"<code>{api.prefix}{route.path}</code>" in text
                for api in load_apis()
                for route in api.routes
            )
            tags = Tags(text)
            assert not tags.names & {"script", "link", "img", "iframe", "form"}
            names = {value for name, value in tags.attributes if name == "id"}
            links = {value for name, value in tags.attributes if name == "href" and value}
            assert {link[1:] for link in links if link.startswith("#")} <= names
            assert {link for link in links if not link.startswith("#")} == {"/openapi.json", "/ui/"}
        assert server.get("/openapi.json").json["openapi"] == "3.1.0"


def test_the_page_shows_fields_and_says_errors_once_for_each_api(apis: tuple[Api, ...]) -> None:
    text = api_page.render_api_page(describe_apis(apis)).body.decode()
    assert "$ref" not in text
    assert "9223372036854775807" not in text
    assert text.count("Too Many Requests") == len(apis)
    assert "<tr><td><code>base</code></td><td>body</td><td>text or null</td>" in text
    assert "Authorization: Bearer" in text


def test_the_page_escapes_whatever_a_description_says(apis: tuple[Api, ...]) -> None:
    evil = "<script>alert('&\"')</script>"
    trial = trial_api(Trial())
    route = Route(method="GET", path="/x", handle=lambda _: None, summary=evil, description=evil)
    api = Api(
        name="evil",
        prefix="/evil",
        title=evil,
        description=evil,
        routes=(route,),
        codec=trial.codec,
        error=trial.error,
        error_schema=None,
        strict_query=True,
    )
    text = api_page.render_api_page(describe_apis((api,))).body.decode()
    assert "script" not in Tags(text).names
    assert "&lt;script&gt;" in text
