"""What goes wrong with a store: the log has all of it, and callers are not told where the store is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from penstock.errors import (
    Damaged,
    Denied,
    LakeMoved,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
    UnsupportedFormat,
)
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import Call
from penstock.lake.catalogue import Catalogue
from penstock.lake.lake import Lake
from penstock.lake.tokens import make_token
from penstock.server.access import TokenGate
from penstock.server.error_redaction import RedactingCatalogue
from penstock.server.run import load_apis
from tests.server.running import Local, local

R = TypeVar("R")

PLACE = "postgresql://zoe@db.internal:5432/lake"
ROUTES = ["/api/penstock/v1/references", "/api/v2/trees", "/api/v1/trees"]


class Failing:
    """A catalogue whose store fails as soon as it is told to."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue, self.page_max = catalogue, catalogue.page_max
        self.error: PenstockError | None = None

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        if self.error is not None:
            raise self.error
        return self._catalogue.do(call, progress)

    def close(self) -> None:
        self._catalogue.close()


@contextmanager
def failing(lake: Lake, error: PenstockError) -> Iterator[tuple[Local, dict[str, str]]]:
    """A server that knows its tokens, and whose store then fails; and what to show it, by kind of caller."""
    shown = {"nobody": f"Bearer penstock_000000000000_{'A' * 43}"}
    for name, grant in (("reader", "read"), ("admin", "admin")):
        text, call = make_token(name, [grant])
        lake.catalogue.do(call)
        shown[name] = f"Bearer {text}"
    store = Failing(lake.catalogue)
    with local(store, load_apis(), gate=TokenGate(RedactingCatalogue(store))) as server:
        assert server.get(ROUTES[0], authorization=shown["admin"]).status == 200
        store.error = error
        yield server, shown


ERRORS = [
    Unavailable(f"{PLACE} cannot be reached: db.internal:5432 refused", url=PLACE),
    OutcomeUnknown(f"{PLACE} did not answer", key="k", name="main"),
    Denied(f"{PLACE} refuses: password of zoe"),
    Damaged(f"{PLACE} is damaged", url=PLACE),
    UnsupportedFormat(f"{PLACE} has schema version 9"),
    LakeNotFound(f"there is no lake at {PLACE} any more", url=PLACE),
    LakeMoved(f"the lake at {PLACE} has moved", target=PLACE),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_only_administrators_are_told_where_the_store_is(
    lake: Lake, error: PenstockError, route: str
) -> None:
    with failing(lake, error) as (server, shown):
        told = {name: server.get(route, authorization=header) for name, header in shown.items()}
        assert told["reader"].status == told["admin"].status
        for name in ("nobody", "reader"):
            assert told[name].status >= 400
            assert b"db.internal" not in told[name].body
            assert b"zoe" not in told[name].body
        assert b"db.internal" in told["admin"].body


def test_an_error_keeps_its_kind_and_what_it_says_of_the_request(lake: Lake) -> None:
    with failing(lake, ERRORS[1]) as (server, shown):
        reply = server.get(ROUTES[0], authorization=shown["reader"])
    assert reply.json["error"] == {
        "code": "outcome_unknown",
        "message": "the lake's store did not confirm whether the change was applied; "
        "repeating it with idempotency key k is safe, and returns the outcome",
        "details": {"key": "k", "name": "main"},
    }


def test_the_log_says_why_whoever_asked(lake: Lake) -> None:
    with failing(lake, ERRORS[0]) as (server, shown):
        for name in shown:
            server.get(ROUTES[0], authorization=shown[name])
        lines = [line for line in server.lines if line.get("status") == 503]
    assert len(lines) == 3
    for line in lines:
        assert line["level"] == "error"
        assert line["message"] == f"{PLACE} cannot be reached: db.internal:5432 refused"


def test_a_refusal_of_the_server_itself_is_told_in_full(lake: Lake) -> None:
    text, call = make_token("etl", ["read:main"])
    lake.catalogue.do(call)
    with local(lake.catalogue, load_apis(), gate=TokenGate(RedactingCatalogue(lake.catalogue))) as server:
        reply = server.ask("GET", "/api/penstock/v1/tokens", headers={"authorization": f"Bearer {text}"})
    assert reply.status == 403
    assert "token 'etl' may not administer the lake" in reply.message
