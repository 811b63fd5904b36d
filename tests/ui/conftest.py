"""A lake with something to look at, and the page of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from penstock.formats.rows.arrow_types import pa
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.processes.pool import ProcessPool
from penstock.server.access import OpenGate, TokenGate
from penstock.server.limits import Limits
from penstock.server.native import NATIVE
from penstock.server.request_counts import count_requests
from penstock.server.ui.api import make_ui_api
from tests.server.running import Local, Reply, local

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>\u202e'
"""What somebody may write wherever they may write text."""

VOID = {"br", "hr", "img", "input", "link", "meta"}


class Page(HTMLParser):
    """A page as a browser reads it: what it shows, and where it leads."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(reply.body.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def status(self) -> int:
        return self.reply.status

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def links(self) -> list[str]:
        return [attributes["href"] or "" for tag, attributes in self.elements if tag == "a"]

    def find_link(self, text: str) -> str | None:
        """The first link whose address has a text."""
        return next((link for link in self.links if text in link), None)

    def fields(self, action: str) -> dict[str, str]:
        """The values of the fields of a form that is sent somewhere, of which each is there once."""
        values: dict[str, str] = {}
        inside = False
        for tag, attributes in self.elements:
            if tag == "form":
                inside = attributes.get("action") == action and attributes.get("method") == "post"
            elif tag == "input" and inside:
                values[attributes["name"] or ""] = attributes.get("value") or ""
        return values


class Site(NamedTuple):
    """The page of a lake on a server."""

    lake: Lake
    server: Local

    def get(self, path: str, token: str = "", **query: object) -> Page:
        address = f"/ui/{path}" if not path.startswith("/") else path
        target = address + (f"?{urlencode(query)}" if query else "")
        headers = {"cookie": f"penstock_session={token}"} if token else {}
        reply = self.server.get(target, **headers)
        assert reply.status != 500, self.server.log[-3000:]
        return Page(reply)

    def post(self, path: str, form: dict[str, str], token: str = "", **headers: str) -> Reply:
        sent = {
            "content-type": "application/x-www-form-urlencoded",
            "origin": self.server.url,
            **({"cookie": f"penstock_session={token}"} if token else {}),
            **headers,
        }
        return self.server.ask("POST", f"/ui/{path}", urlencode(form).encode(), sent)

    def create_token(self, *grants: str, name: str = "tester") -> str:
        """A new token with grants."""
        return self.lake.create_token(name, *grants)


@contextmanager
def serve(
    lake: Lake,
    *,
    with_tokens: bool = False,
    limits: Limits = Limits(),
    pool: ProcessPool | None = None,
    metrics: Callable[[], bytes] | None = None,
) -> Iterator[Site]:
    gate = TokenGate(lake.catalogue) if with_tokens else OpenGate()
    if metrics is not None:
        assert isinstance(lake.catalogue, Embedded)
        lake.catalogue.count_requests = lambda: count_requests(metrics())
    with local(lake.catalogue, [NATIVE, make_ui_api(gate)], gate=gate, limits=limits, pool=pool) as server:
        yield Site(lake, server)


def orders(*amounts: float | None, day: str = "2026-11-01") -> Any:
    """Rows of an order each."""
    return pa.table(
        {
            "id": pa.array(range(len(amounts)), pa.int64()),
            "day": [day] * len(amounts),
            "amount": pa.array(amounts, pa.float64()),
        }
    )


def fill(lake: Lake) -> None:
    """A history that somebody wants to look at: two loads, a branch with a bad one, a tag."""
    lake.create_table("sales.orders", data=orders(10.0, 20.0, None), message="first load", author="etl")
    lake.tag("v1").create()
    lake.table("sales.orders").append(orders(30.0, day="2026-11-02"), message="second load", author="etl")
    lake.branch("dev").create()
    lake.table("sales.orders", "dev").append(
        orders(-5.0, -6.0, day="2026-11-03"), message="bad load", author="ada"
    )
    lake.finish_background()


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lake that is only looked at, without tokens."""
    with open_lake(str(tmp_path_factory.mktemp("lake")), create=True, author="ada") as lake:
        fill(lake)
        with serve(lake) as site:
            yield site


@pytest.fixture
def own_lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake for one test."""
    with open_lake(str(tmp_path / "lake"), create=True, author="ada") as lake:
        fill(lake)
        yield lake
