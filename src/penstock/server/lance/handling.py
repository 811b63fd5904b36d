"""Handling: from a request to an operation of the namespace, and from what it gives to an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from penstock.errors import InvalidRequest, UnsupportedFeature
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX
from penstock.server.access import Guarded
from penstock.server.lance.codec import MISSING, model, plain
from penstock.server.lance.errors import Refusal
from penstock.server.lance.operations import FILE, Operation
from penstock.server.routes import Answer, Ask
from penstock.wire import json
from penstock.wire.requests import KEY_HEADER

if TYPE_CHECKING:
    from penstock.lake.lance.namespace import PenstockNamespace

DETACHED: Final = ("create_table_version", "describe_table_version")
"""Operations on versions that may be on no branch."""
HEADER: Final = "header."
"""How entries of a context begin that are headers."""


def handler(operation: Operation, base: str) -> Callable[[Ask], Any]:
    """What answers an operation below one of the bases."""

    def handle(ask: Ask) -> Any:
        kind = model(operation.request)
        from lance_namespace import LanceNamespaceError

        from penstock.lake.lance.data_requests import read_request

        values = _values(operation, ask)
        version = values.get("version")
        is_detached = operation.name in DETACHED and type(version) is int and version < 0
        try:
            # Lance numbers versions that are on no branch below zero, which its own model does not take.
            request: Any = read_request(kind, {**values, "version": 0} if is_detached else values)
            if is_detached:
                request = {**request.model_dump(exclude_none=True), "version": version}
            namespace = _namespace(ask, base)
            namespace.delimiter = ask.query.delimiter
            if operation.changes_table:
                _require_right(ask, namespace, values["id"])
            asked = (request, ask.body or b"") if operation.has_rows else (request,)
            answer = getattr(namespace, operation.name)(*asked)
        except LanceNamespaceError as error:
            raise Refusal(error) from error
        return _answer(operation, answer)

    return handle


def parts(said: str, delimiter: str) -> list[str]:
    """An id as its parts; the delimiter alone is the id that has none."""
    if said == delimiter:
        return []
    found = said.split(delimiter)
    if not all(found):
        raise InvalidRequest(f"the id '{said}' has an empty part between two '{delimiter}'", field="id")
    return found


def _values(operation: Operation, ask: Ask) -> dict[str, Any]:
    """All that a request says, by the names that it has in the operation's model."""
    body: dict[str, Any] = ask.body or {} if operation.has_body and not operation.has_rows else {}
    if operation.body_is:
        body = {operation.body_is: body}
    values = {**body, **ask.query.given()}
    for name, said in ask.path.items():
        if name == "ref":
            continue
        meant: Any = parts(said, ask.query.delimiter) if name == "id" else said
        if body.get(name) is not None and body[name] != meant:
            raise InvalidRequest(
                f"the body is about the {name} {body[name]!r}, and the address about {meant!r}", field=name
            )
        values[name] = meant
    key = ask.headers.get(KEY_HEADER.lower())
    if key is not None and operation.takes_key:
        context = values.get("context")
        values["context"] = {
            **(context if isinstance(context, dict) else {}),
            "idempotency_key": unquote(key),
        }
    return values


def _namespace(ask: Ask, base: str) -> PenstockNamespace:
    """The namespace at the branch, the transaction or the revision that the address names."""
    try:
        from penstock.lake.lance.namespace import PenstockNamespace
    except ImportError:
        raise UnsupportedFeature(MISSING, feature="lance") from None
    lake = Lake(ask.catalogue, ask.who)
    said = ask.path.get("ref")
    if base == "tx":
        return PenstockNamespace(lake, f"{PREFIX}{said}")
    return PenstockNamespace(lake, said, is_read_only=base == "at")


def _require_right(ask: Ask, namespace: PenstockNamespace, table: list[str]) -> None:
    """``Denied`` to who may not change a table, before a file is written for it. The commit asks again."""
    if namespace.branch is not None and table and isinstance(ask.catalogue, Guarded):
        ask.catalogue.require_write(namespace.branch, Key(*table))


def _answer(operation: Operation, answer: Any) -> Answer:
    """What the namespace gave, as the API has it: some answers are no objects."""
    if operation.name == "query_table":
        return Answer(body=answer.data, content_type=FILE)
    said = plain(answer)
    if operation.name == "count_table_rows":
        said = said["count"]
    elif operation.name == "update_table_schema_metadata":
        said = said.get("metadata", {})
    return Answer(body=json.encode(said, Any), headers=_headers(said))


def _headers(said: Any) -> tuple[tuple[str, str], ...]:
    """Entries of an answer's context that are headers."""
    context = said.get("context") if isinstance(said, Mapping) else None
    if not isinstance(context, Mapping):
        return ()
    return tuple(
        (name.removeprefix(HEADER), value) for name, value in context.items() if name.startswith(HEADER)
    )
