"""Penstock's own API: every call of a lake as a route, made from the calls so that none is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest, NotFound, PenstockError
from penstock.formats.registry import TableFormat, list_table_formats, load_part
from penstock.kernel.settings import Settings
from penstock.lake.answers import About
from penstock.lake.calls import CALLS, Call, GetFigures, WriteCall
from penstock.lake.suggestion import add_suggestion
from penstock.server.limits import Limits
from penstock.server.routes import Api, HttpAnswer, Route, RouteRequest
from penstock.server.spark_catalog import ROUTES as SPARK_CATALOG
from penstock.server.ui.page_request import find_figures
from penstock.wire import json
from penstock.wire.descriptions import to_markdown
from penstock.wire.errors import ErrorBody, encode_error
from penstock.wire.requests import KEY_HEADER, RequestForm, make_request_form, read_call

PREFIX: Final = "/api/penstock/v1"

SETTLE_MORE_S: Final = 5.0
"""Beyond the time limits of a request and of a write: what a thread may be late by."""

_ABOUT_KEY: Final = (
    "At most 200 characters, percent-encoded. Makes it safe to repeat the request when no response "
    "arrived: it is applied once."
)

_COMMIT: Final = re.compile("[0-9a-f]{64}")
_FOREVER: Final = (
    ("cache-control", "private, max-age=31536000, immutable"),
    ("vary", "authorization, x-api-key"),
)
"""For one caller: another may be shown less."""


def _make_route(kind: type[Call[Any]]) -> Route:
    form = make_request_form(kind)
    summary, _, description = to_markdown(kind.__doc__ or "").partition("\n\n")
    return Route(
        method=kind.method,
        path=kind.path,
        handle=_make_handler(kind, form),
        summary=" ".join(summary.split()).rstrip("."),
        description=description,
        headers={KEY_HEADER: _ABOUT_KEY} if issubclass(kind, WriteCall) else {},
        query=form.rest if form.is_query else None,
        body=None if form.is_query else form.rest,
        answer=kind.answer,
        streams=kind.is_long,
        is_write=kind.method != "GET" and not kind.is_long,
        is_vital=kind.is_vital,
        goes_on=kind.goes_on,
        body_required=any(field.required for field in form.rest_fields),
    )


def _make_handler(kind: type[Call[Any]], form: RequestForm) -> Callable[[RouteRequest], Any]:
    pins = kind.pinned_by

    def handle_request(ask: RouteRequest) -> Any:
        rest = ask.query if form.is_query else ask.body
        call = _limit_call(read_call(kind, ask.path, rest, ask.headers), ask.limits)
        try:
            answer = (
                find_figures(ask, call)
                if isinstance(call, GetFigures)
                else ask.catalogue.do(call, ask.progress)
            )
        except NotFound as problem:
            add_suggestion(problem, ask.catalogue)
            raise
        if pins and all(_COMMIT.fullmatch(getattr(call, pin) or "") for pin in pins):
            return HttpAnswer(body=json.encode(answer, kind.answer), headers=_FOREVER)
        if isinstance(answer, About):
            settle_s = ask.limits.request_timeout_s + Settings().write_timeout_s + SETTLE_MORE_S
            return msgspec.structs.replace(answer, page_max=ask.limits.page_max, settle_s=settle_s)
        return answer

    return handle_request


def _limit_call(call: Call[Any], limits: Limits) -> Call[Any]:
    """The call, if it asks for no more than the server gives."""
    limit = getattr(call, "limit", 0)
    if limit is None or limit > limits.page_max:
        what = "all items" if limit is None else f"{limit} items"
        raise InvalidRequest(
            f"{what} were requested, but this server returns at most {limits.page_max} per page: request "
            "fewer, and the next page after the last item",
            page_max=limits.page_max,
        )
    for field in call.counted:
        count = len(getattr(call, field))
        if count > limits.operations_max:
            raise InvalidRequest(
                f"the request has {count} {field}, but this server accepts at most {limits.operations_max}: "
                "make several requests, or start the server with a larger --operations-max",
                operations_max=limits.operations_max,
            )
    return call


def _make_error_answer(error: PenstockError, headers: Mapping[str, str]) -> HttpAnswer:
    return HttpAnswer(status=error.http_status, body=encode_error(error, headers.get("x-request-id", "")))


def make_native_api(others: Sequence[TableFormat]) -> Api:
    """The API with the calls and routes of formats of other packages."""
    plugins = [declared.load(declared.plugin) for declared in others]
    calls = [_make_route(kind) for plugin in plugins for kind in plugin.calls]
    routes = [route for declared in others if declared.routes for route in declared.load(declared.routes)]
    imports = [name for declared in others for name in declared.server_imports]
    return msgspec.structs.replace(
        NATIVE, routes=(*NATIVE.routes, *calls, *routes), imports=(*NATIVE.imports, *imports)
    )


NATIVE: Final = Api(
    name="native",
    prefix=PREFIX,
    title="Penstock",
    description="All operations of a lake. `penstock.open` uses this API for the address of a server.",
    routes=(
        *(_make_route(kind) for kind in CALLS),
        *SPARK_CATALOG,
        *(
            route
            for declared in list_table_formats()
            if declared.routes
            for route in load_part(declared.routes)
        ),
    ),
    codec=json,
    error=_make_error_answer,
    error_schema=ErrorBody,
    strict_query=True,
    imports=(
        *("pyarrow.parquet", "pyarrow.dataset", "duckdb"),
        "pandas",  # Arrow imports it with the first rows that it makes of Python's values
        *(name for declared in list_table_formats() for name in declared.server_imports),
        *("penstock.lake.transactions.embedded", "penstock.lake.audits.embedded"),
    ),
)
