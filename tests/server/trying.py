"""An API whose handlers do what a test needs: answer, wait, fail."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import PenstockError, ReferenceNotFound
from penstock.server.routes import Api, HttpAnswer, Route, RouteRequest
from penstock.wire import json
from penstock.wire.errors import ErrorBody, encode_error
from penstock.wire.requests import KEY_HEADER


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    key: tuple[str, ...] = ()
    limit: int = 10


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be written down."""

    text: str
    count: int = 1


class Trial:
    """A gate that ``/wait`` stands at until it is opened, and what arrived there."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.opened = threading.Event()
        self.finished = threading.Semaphore(0)
        self.stopped = threading.Event()

    def wait(self, ask: RouteRequest) -> Note:
        self.arrived.release()
        assert self.opened.wait(120)
        self.finished.release()
        return Note(text="waited")

    def long(self, ask: RouteRequest) -> Note:
        ask.progress("things", 1)
        self.wait(ask)
        return Note(text="long")


def _echo(ask: RouteRequest) -> dict[str, Any]:
    return {
        "path": ask.path,
        "query": json.to_json_value(ask.query, Filter),
        "id": ask.request_id,
        "who": ask.who,
    }


def _bug(_: RouteRequest) -> None:
    raise RuntimeError("postgresql://ada:hunter2@db/lake broke for penstock_0123456789ab_SeCrEt")


def _missing(_: RouteRequest) -> None:
    raise ReferenceNotFound("there is no 'x'")


def _error(error: PenstockError, headers: Mapping[str, str]) -> HttpAnswer:
    return HttpAnswer(status=error.http_status, body=encode_error(error, headers["x-request-id"]))


def trial_api(trial: Trial, *, strict_query: bool = True) -> Api:
    """The API, below ``/try``."""
    return Api(
        name="try",
        prefix="/try",
        title="Trial",
        description="For tests.",
        routes=(
            Route(method="GET", path="/echo/{name}", handle=_echo, summary="Echo", query=Filter, answer=Any),
            Route(method="POST", path="/notes", handle=lambda a: a.body, summary="N", body=Note, answer=Note),
            Route(
                method="PUT",
                path="/notes",
                handle=lambda a: a.body,
                summary="Maybe",
                body=Note,
                answer=Note | None,
                body_required=False,
            ),
            Route(
                method="POST", path="/writes", handle=lambda _: None, summary="W", body=Note, is_write=True
            ),
            Route(method="DELETE", path="/notes", handle=lambda _: None, summary="Nothing to say"),
            Route(method="GET", path="/bug", handle=_bug, summary="Bug"),
            Route(method="GET", path="/missing", handle=_missing, summary="Missing"),
            Route(method="GET", path="/wait", handle=trial.wait, summary="Wait", answer=Note),
            Route(
                method="POST",
                path="/wait",
                handle=trial.wait,
                summary="W",
                answer=Note,
                is_write=True,
                headers={KEY_HEADER: "The key."},
            ),
            Route(method="PUT", path="/wait", handle=trial.wait, summary="W", answer=Note, is_write=True),
            Route(
                method="GET",
                path="/open",
                handle=lambda _: None,
                summary="Open",
                is_public=True,
                is_vital=True,
            ),
            Route(method="POST", path="/long", handle=trial.long, summary="Long", answer=Note, streams=True),
            Route(method="POST", path="/long/bug", handle=_bug, summary="Long", answer=Note, streams=True),
        ),
        codec=json,
        error=_error,
        error_schema=ErrorBody,
        strict_query=strict_query,
    )
