"""Turns an HTTP request into an operation of the namespace, and its result into an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from penstock.errors import (
    InvalidRequest,
    OutcomeUnknown,
    TimedOut,
    UnsupportedFeature,
    WorkerLost,
    WorkTooLarge,
)
from penstock.formats.lance.rest.codec import MISSING, find_model, to_plain_json
from penstock.formats.lance.rest.errors import LanceRefusal
from penstock.formats.lance.rest.operations import BY_NAME, FILE, RestOperation
from penstock.lake.lake import Lake
from penstock.lake.worker_calls import CallAnswers
from penstock.model.decoders import get_json_decoder
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX
from penstock.server.access import CheckedCatalogue
from penstock.server.routes import HttpAnswer, RouteRequest
from penstock.wire import json
from penstock.wire.requests import KEY_HEADER

if TYPE_CHECKING:
    from penstock.formats.lance.lake.namespace import PenstockNamespace

DETACHED: Final = ("create_table_version", "describe_table_version")
"""Operations on versions that may be on no branch."""
HEADER: Final = "header."
"""How entries of a context begin that are headers."""


LOOKS_INTO: Final = "describe_table"
"""The operation that works on rows only where it is asked to look into the table."""
ROW_WORK: Final = "penstock.formats.lance.rest.row_work:run_operation"


class LanceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to one operation, without its body."""

    operation: str
    base: str
    path: dict[str, str]
    given: dict[str, Any]
    """What the query says of the request."""
    delimiter: str
    key: str | None
    """The header by which it is done once."""
    who: str
    page_max: int | None
    body_max_bytes: int

    @classmethod
    def from_request(cls, operation: RestOperation, base: str, ask: RouteRequest) -> LanceRequest:
        return cls(
            operation=operation.name,
            base=base,
            path=ask.path,
            given=ask.query.to_request_fields(),
            delimiter=ask.query.delimiter,
            key=ask.headers.get(KEY_HEADER.lower()),
            who=ask.who,
            page_max=ask.catalogue.page_max,
            body_max_bytes=ask.limits.body_max_bytes,
        )


def make_handler(operation: RestOperation, base: str) -> Callable[[RouteRequest], Any]:
    """What answers an operation below one of the bases."""

    def handle_request(ask: RouteRequest) -> Any:
        lance_request_parts = LanceRequest.from_request(operation, base, ask)
        if operation.works_on_rows or isinstance(ask.body, bytes):
            return _run_in_worker(operation, lance_request_parts, ask, ask.body or b"")
        request = parse_lance_request(lance_request_parts, ask.body or {})
        if operation.name == LOOKS_INTO and request.load_detailed_metadata:
            return _run_in_worker(operation, lance_request_parts, ask, msgspec.json.encode(ask.body or {}))
        with raise_as_lance_errors():
            namespace = open_lance_namespace(lance_request_parts, Lake(ask.catalogue, ask.who))
            if operation.changes_table:
                _require_right(
                    ask, namespace, split_id(lance_request_parts.path["id"], lance_request_parts.delimiter)
                )
            return make_answer(operation, getattr(namespace, operation.name)(request))

    return handle_request


def _run_in_worker(
    operation: RestOperation, request: LanceRequest, ask: RouteRequest, body: bytes
) -> HttpAnswer:
    """Have an operation done in a process apart from this one, which makes its commits."""
    find_model(operation.request)
    if operation.changes_table:
        with raise_as_lance_errors():
            namespace = open_lance_namespace(request, Lake(ask.catalogue, ask.who))
            _require_right(ask, namespace, split_id(request.path["id"], request.delimiter))
    answers = CallAnswers(ask.catalogue)
    try:
        output = ask.pool.run_function(
            ROW_WORK,
            msgspec.json.encode(request),
            body,
            caller=ask.share,
            answer=answers,
            deadline_s=ask.deadline_s,
            is_cancelled=ask.is_cancelled,
        )
    except (WorkTooLarge, WorkerLost, TimedOut) as problem:
        if answers.has_written:
            raise OutcomeUnknown(
                f"the change was committed, but the request was stopped after that: {problem.message}; "
                "check the table before you repeat the request"
            ) from problem
        raise
    finally:
        answers.abort_left_transactions()
    headers = get_json_decoder(tuple[tuple[str, str], ...]).decode(output.head)
    is_rows = operation.name == "query_table"
    content_type = FILE if is_rows else "application/json"
    return HttpAnswer(body=output.body, file=output.file, headers=headers, content_type=content_type)


@contextmanager
def raise_as_lance_errors() -> Iterator[None]:
    """What a namespace refuses, as this API says it."""
    from lance_namespace import LanceNamespaceError

    try:
        yield
    except LanceNamespaceError as error:
        raise LanceRefusal(error) from error


def parse_lance_request(asked: LanceRequest, body: dict[str, Any]) -> Any:
    """A request as the operation's model."""
    operation = BY_NAME[asked.operation]
    kind = find_model(operation.request)
    from penstock.formats.lance.lake.data_requests import read_request

    values = _list_request_values(operation, asked, body)
    version = values.get("version")
    is_detached = operation.name in DETACHED and type(version) is int and version < 0
    with raise_as_lance_errors():
        # Lance numbers versions that are on no branch below zero, which its own model does not take.
        request: Any = read_request(kind, {**values, "version": 0} if is_detached else values)
    if is_detached:
        return {**request.model_dump(exclude_none=True), "version": version}
    return request


def split_id(text: str, delimiter: str) -> list[str]:
    """An id as its parts; the delimiter alone is the id that has none."""
    if text == delimiter:
        return []
    split = text.split(delimiter)
    if not all(split):
        raise InvalidRequest(f"the id '{text}' has an empty part between two '{delimiter}'", field="id")
    return split


def _list_request_values(
    operation: RestOperation, request: LanceRequest, body: dict[str, Any]
) -> dict[str, Any]:
    """All that a request says, by the names that it has in the operation's model."""
    if operation.body_is:
        body = {operation.body_is: body}
    values = {**body, **request.given}
    for name, text in request.path.items():
        if name == "ref":
            continue
        meant: Any = split_id(text, request.delimiter) if name == "id" else text
        if body.get(name) is not None and body[name] != meant:
            raise InvalidRequest(
                f"the body names the {name} {body[name]!r}, but the address names {meant!r}", field=name
            )
        values[name] = meant
    if request.key is not None and operation.takes_key:
        context = values.get("context")
        values["context"] = {
            **(context if isinstance(context, dict) else {}),
            "idempotency_key": unquote(request.key),
        }
    return values


def open_lance_namespace(request: LanceRequest, lake: Lake) -> PenstockNamespace:
    """The namespace at the branch, the transaction or the revision that the address names."""
    try:
        from penstock.formats.lance.lake.namespace import PenstockNamespace
    except ImportError:
        raise UnsupportedFeature(MISSING, feature="lance") from None
    ref = request.path.get("ref")
    if request.base == "tx":
        namespace = PenstockNamespace(lake, f"{PREFIX}{ref}")
    else:
        namespace = PenstockNamespace(lake, ref, is_read_only=request.base == "at")
    namespace.delimiter = request.delimiter
    return namespace


def _require_right(ask: RouteRequest, namespace: PenstockNamespace, table: list[str]) -> None:
    """``Denied`` to who may not change a table, before a file is written for it. The commit asks again."""
    if namespace.branch is not None and table and isinstance(ask.catalogue, CheckedCatalogue):
        ask.catalogue.require_write(namespace.branch, Key(*table))


def make_answer(operation: RestOperation, answer: Any) -> HttpAnswer:
    """What the namespace gave, as the API has it: some answers are no objects."""
    body = to_plain_json(answer)
    if operation.name == "count_table_rows":
        body = body["count"]
    elif operation.name == "update_table_schema_metadata":
        body = body.get("metadata", {})
    return HttpAnswer(body=json.encode(body, Any), headers=_make_answer_headers(body))


def _make_answer_headers(body: Any) -> tuple[tuple[str, str], ...]:
    """Entries of an answer's context that are headers."""
    context = body.get("context") if isinstance(body, Mapping) else None
    if not isinstance(context, Mapping):
        return ()
    return tuple(
        (name.removeprefix(HEADER), value) for name, value in context.items() if name.startswith(HEADER)
    )
