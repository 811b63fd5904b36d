"""OpenAPI: the description of every route of every API, made from the tables that find them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

from penstock.server.answer_stream import LINES
from penstock.server.routes import Api, Route

Json = dict[str, Any]

COMPONENTS: Final = "#/components/schemas/"
ANY_ROUTE: Final = (400, 404, 408, 410, 429, 500, 503, 504)
"""Statuses of errors that any route may answer with."""


def describe_apis(apis: Sequence[Api]) -> Json:
    """An OpenAPI 3.1 document. Each API is a tag, and its components' names begin with the API's."""
    paths: dict[str, Json] = {}
    components: Json = {}
    for api in apis:
        schemas = _Schemas(api)
        for route in api.routes:
            address = f"{api.prefix}{route.path}"
            paths.setdefault(address, {}).setdefault(
                route.method.lower(), _describe_operation(api, route, schemas)
            )
        components |= schemas.components
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version("penstock"),
            "description": "Every change to a data lake, to any number of tables, at one instant.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": api.name, "description": f"{api.title}. {api.description}".strip()} for api in apis
        ],
        "paths": paths,
        "components": {
            "schemas": _select_needed_components(paths, components),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token, as `penstock token create` prints it.",
                }
            },
        },
        "security": [{"token": []}],
    }


class _Schemas:
    """The JSON schemas of an API's types."""

    def __init__(self, api: Api) -> None:
        kinds = [kind for kind in _collect_types(api) if kind is not None]
        found_schemas, components = api.codec.schema(kinds)
        schemas = [_rename_references(schema, api.name) for schema in found_schemas]
        self._schemas = list(zip(kinds, schemas, strict=True))
        self.components = {
            f"{api.name}.{name}": _rename_references(schema, api.name) for name, schema in components.items()
        }

    def make_schema(self, kind: Any) -> Json:
        return next(schema for known_kind, schema in self._schemas if known_kind is kind)

    def list_fields(self, kind: Any) -> Iterator[tuple[str, Json, bool]]:
        """The name and schema of each field of a struct, and whether it must be given."""
        if kind is None:
            return
        schema = self.make_schema(kind)
        if "$ref" in schema:
            schema = self.components[schema["$ref"].removeprefix(COMPONENTS)]
        required = schema.get("required", ())
        for name, field in schema.get("properties", {}).items():
            yield name, field, name in required


def _collect_types(api: Api) -> Iterator[Any]:
    yield api.error_schema
    for route in api.routes:
        yield from (route.query, route.body, route.answer)


def _describe_operation(api: Api, route: Route, schemas: _Schemas) -> Json:
    operation: Json = {
        "tags": [api.name],
        "operationId": "_".join((api.name, route.method.lower(), *re.findall(r"\w+", route.path))),
        "summary": route.summary,
        "parameters": [*_describe_parameters(route, schemas)],
        "responses": dict(_describe_responses(api, route, schemas)),
    }
    if route.description:
        operation["description"] = route.description
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {kind: {"schema": schemas.make_schema(route.body)} for kind in route.media_types},
        }
    if route.is_public:
        operation["security"] = []
    return operation


def _describe_parameters(route: Route, schemas: _Schemas) -> Iterator[Json]:
    for name in re.findall(r"\{(\w+)\}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    for name, field, is_required in schemas.list_fields(route.query):
        schema = {word: value for word, value in field.items() if word != "description"}
        parameter = {"name": name, "in": "query", "required": is_required, "schema": schema}
        if "description" in field:
            parameter["description"] = field["description"]
        yield parameter
    for name, meaning in route.headers.items():
        schema = {"type": "string", "pattern": "^[!-~]*$"}
        yield {"name": name, "in": "header", "required": False, "schema": schema, "description": meaning}


def _describe_responses(api: Api, route: Route, schemas: _Schemas) -> Iterator[tuple[str, Json]]:
    if route.answer is None and not route.streams:
        yield str(204 if route.status == 200 else route.status), {"description": "Done."}
    else:
        yield (
            str(route.status),
            {"description": "The answer.", "content": _describe_content(api, route, schemas)},
        )
    error = (
        {"application/json": {"schema": schemas.make_schema(api.error_schema)}} if api.error_schema else {}
    )
    for status in sorted({*_list_error_statuses(route), *route.statuses}):
        yield str(status), {"description": HTTPStatus(status).phrase, "content": error}


def _describe_content(api: Api, route: Route, schemas: _Schemas) -> Json:
    answer = schemas.make_schema(route.answer) if route.answer is not None else {"type": "null"}
    if not route.streams:
        return {route.produces: {"schema": answer}}
    schema = {"type": "array", "description": "The current step of the work, and how much of it is done."}
    lines: Json = {
        "description": "One line of the response.",
        "oneOf": [
            {"type": "object", "properties": {"progress": schema}, "required": ["progress"]},
            {"type": "object", "properties": {"result": answer}, "required": ["result"]},
            schemas.make_schema(api.error_schema),
        ],
    }
    return {LINES: {"schema": lines}}


def _list_error_statuses(route: Route) -> Iterator[int]:
    yield from ANY_ROUTE
    if not route.is_public:
        yield from (401, 403)
    if route.body is not None:
        yield from (413, 415)
    if route.is_write or route.method != "GET":
        yield 409


def _rename_references(schema: Any, prefix: str) -> Any:
    """A schema whose references name components as they are called here."""
    if isinstance(schema, dict):
        return {word: _rename_references(value, prefix) for word, value in schema.items()}
    if isinstance(schema, list | tuple):
        return [_rename_references(item, prefix) for item in schema]
    if isinstance(schema, str) and schema.startswith(COMPONENTS):
        return f"{COMPONENTS}{prefix}.{schema.removeprefix(COMPONENTS)}"
    return schema


def _select_needed_components(paths: Json, components: Json) -> Json:
    """The components that something refers to: those of queries became parameters."""
    needed: set[str] = set()
    remaining = set(_find_references(paths))
    while remaining:
        name = remaining.pop()
        if name not in needed:
            needed.add(name)
            remaining |= set(_find_references(components[name]))
    return {name: components[name] for name in sorted(needed)}


def _find_references(schema: Any) -> Iterable[str]:
    if isinstance(schema, dict):
        schema = list(schema.values())
    if isinstance(schema, list):
        for item in schema:
            yield from _find_references(item)
    elif isinstance(schema, str) and schema.startswith(COMPONENTS):
        yield schema.removeprefix(COMPONENTS)
