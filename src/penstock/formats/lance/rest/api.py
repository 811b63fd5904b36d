"""Lance's API: every operation below each of the addresses that a client can be given.

A client knows one address. Which branch, transaction or commit it works on is part of it, so that clients in
all languages do without knowing that there are any.
"""

from __future__ import annotations

from typing import Final

from penstock.formats.lance.rest.codec import CODEC, ROWS, RequestModel
from penstock.formats.lance.rest.errors import ErrorResponse, make_error_answer
from penstock.formats.lance.rest.operations import FILE, OPERATIONS, STREAM, RestOperation
from penstock.formats.lance.rest.request_handler import LOOKS_INTO, make_handler
from penstock.server.routes import Api, Route
from penstock.wire.requests import KEY_HEADER

BASES: Final = {
    "": ("/v1", ""),
    "branch": ("/branch/{ref}/v1", " on a branch"),
    "tx": ("/tx/{ref}/v1", " in a transaction"),
    "at": ("/at/{ref}/v1", " at a revision"),
}
"""What each begins with, and what that means."""

REF_PATTERN: Final = "[^/]+(?:/[^/]+)*?"
"""Names of branches may have slashes, and need not be encoded for that."""

_ABOUT_KEY: Final = "An idempotency key: a request that is sent again with the same key is applied once."


def _make_route(operation: RestOperation, base: str) -> Route:
    begins, where = BASES[base]
    return Route(
        method=operation.method,
        path=f"{begins}{operation.path}",
        handle=make_handler(operation, base),
        summary=f"{operation.summary}{where}",
        query=operation.query,
        body=operation.body,
        body_required=False,
        media_types=(
            (STREAM, FILE, "application/octet-stream") if operation.has_rows else ("application/json",)
        ),
        answer=RequestModel(operation.answer) if operation.answer is not None else _OTHER.get(operation.name),
        produces=FILE if operation.name == "query_table" else "application/json",
        statuses=(406, 409, 422) if operation.works_on_rows or operation.has_body else (406, 409),
        patterns={"ref": REF_PATTERN} if base else {},
        headers={KEY_HEADER: _ABOUT_KEY} if operation.takes_key else {},
        is_write=not operation.is_read,
        works_on_rows=operation.works_on_rows or operation.name == LOOKS_INTO,
    )


_OTHER: Final = {
    "query_table": ROWS,
    "count_table_rows": int,
    "explain_table_query_plan": str,
    "analyze_table_query_plan": str,
    "update_table_schema_metadata": dict[str, str],
}
"""Answers that are no objects with fields."""

LANCE: Final = Api(
    name="lance",
    prefix="/lance",
    title="Lance REST namespace",
    description=(
        "For Lance's clients, and those of LanceDB. Their address is `/lance` for the default branch, "
        "`/lance/branch/{name}` for another one, `/lance/tx/{id}` for an open transaction, and "
        "`/lance/at/{revision}` for a revision, which is read-only. The parts of an id are joined by `$`, "
        "or by the parameter `delimiter`."
    ),
    codec=CODEC,
    error=make_error_answer,
    error_schema=ErrorResponse,
    strict_query=False,
    imports=(
        "penstock.formats.lance.rest.client_package",  # before Lance
        *("penstock.formats.lance.lake.namespace", "penstock.formats.lance.lake.handlers"),
    ),
    routes=tuple(_make_route(operation, base) for base in BASES for operation in OPERATIONS),
)
