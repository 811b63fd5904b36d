"""A page for people about every route, made from the OpenAPI description. It loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any, Final

from penstock.server.routes import HttpAnswer

Json = dict[str, Any]

STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { background: #8881; padding: .8rem; overflow-x: auto; border-radius: 4px; }
details { border: 1px solid #8884; border-radius: 4px; margin: .4rem 0; padding: .3rem .8rem; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 4.5rem; font: bold 14px ui-monospace, monospace; }
summary span { opacity: .75; margin-left: .6rem; }
table { border-collapse: collapse; margin: .6rem 0; }
td, th { text-align: left; vertical-align: top; padding: .15rem 1.2rem .15rem 0; }
"""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def render_api_page(description: Json) -> HttpAnswer:
    """The page for an OpenAPI description."""
    return HttpAnswer(
        body="".join(_render_page(description)).encode(),
        content_type="text/html; charset=utf-8",
        headers=(("content-security-policy", _POLICY), ("referrer-policy", "no-referrer")),
    )


START: Final = """
$ export URL=http://localhost:19120                         # where this page is
$ export PENSTOCK_TOKEN=penstock_…                          # as 'penstock token create' printed it
$ curl -H "Authorization: Bearer $PENSTOCK_TOKEN" $URL/api/penstock/v1/entries?limit=10
$ penstock --lake $URL tables                               # in Python: penstock.open(URL)
$ nessie --endpoint $URL/api/v1 remote show                 # Nessie's clients take /api/v2, or /api/v1
>>> lance.namespace.RestNamespace(uri=f"{URL}/lance")       # Lance's and LanceDB's take /lance
"""


def _render_page(description: Json) -> Iterator[str]:
    info, types = description["info"], description["components"]["schemas"]
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>{_render_prose(info['description'])}"
        f"<pre>{escape(START.strip(), quote=False)}</pre>"
        "<p>A server that was started with <code>--dev</code> or <code>--insecure</code> needs no token. "
        'The same description for programs: <a href="/openapi.json">openapi.json</a>. '
        'The lake itself, for people: <a href="/ui/">its page</a>.</p>'
    )
    for tag in description["tags"]:
        yield f'<h2 id="{escape(tag["name"])}">{escape(tag["name"])}</h2>{_render_prose(tag["description"])}'
        routes = [
            (method, path, operation)
            for path, operations in description["paths"].items()
            for method, operation in operations.items()
            if tag["name"] in operation["tags"]
        ]
        for method, path, operation in routes:
            yield from _render_route(method, path, operation, types)
        yield from _render_errors([operation for _, _, operation in routes])
    yield '<h2 id="types">Types</h2>'
    for name, schema in types.items():
        yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        yield f"{_render_prose(schema.get('description', ''))}"
        fields = [(*field, "") for field in _list_fields(schema)]
        yield "".join(_render_table(fields)) if fields else f"<p>{_describe_type(schema)}</p>"
        yield "</details>"
    yield "</body></html>"


Field = tuple[str, Json, bool, str]
"""Its name, its schema, whether it must be given, and where."""


def _render_route(method: str, path: str, operation: Json, types: Json) -> Iterator[str]:
    yield f'<details id="{escape(operation["operationId"])}"><summary><b>{escape(method.upper())}</b>'
    yield f"<code>{escape(path)}</code><span>{escape(operation['summary'])}</span></summary>"
    yield _render_prose(operation.get("description", ""))
    fields: list[Field] = [
        (
            parameter["name"],
            parameter["schema"] | {"description": parameter.get("description", "")},
            parameter["required"],
            parameter["in"],
        )
        for parameter in operation["parameters"]
    ]
    bodies = [content["schema"] for content in operation.get("requestBody", {}).get("content", {}).values()]
    several = ""
    if bodies:
        inside = list(_list_fields(types[_get_schema_name(bodies[0])])) if "$ref" in bodies[0] else []
        fields += [(*field, "body") for field in inside]
        several = "" if inside else f"<p>The body is {_describe_type(bodies[0])}.</p>"
    yield from _render_table(fields)
    yield several
    status, answer = next(iter(operation["responses"].items()))
    kinds = [(kind, _describe_type(content["schema"])) for kind, content in answer.get("content", {}).items()]
    answers = " or ".join(
        f"{shown} ({escape(kind)})" if "json" not in kind else shown for kind, shown in kinds
    )
    yield f"<p>Returns {escape(status)}{': ' + answers if answers else ' without a body'}.</p></details>"


def _render_errors(operations: list[Json]) -> Iterator[str]:
    """The errors of all routes of an API in one table: they differ little."""
    responses: dict[str, Json] = {}
    for operation in operations:
        responses |= dict(list(operation["responses"].items())[1:])
    if responses:
        kinds = {
            _describe_type(content["schema"])
            for response in responses.values()
            for content in response["content"].values()
        }
        yield f"<h3>Errors</h3><p>With a body of the type {' or '.join(sorted(kinds))}.</p><table>"
        for status, answer in sorted(responses.items()):
            yield f"<tr><td>{escape(status)}</td><td>{escape(answer['description'])}</td></tr>"
        yield "</table>"


def _render_table(fields: list[Field]) -> Iterator[str]:
    if not fields:
        return
    has_places = any(place for *_, place in fields)
    yield f"<table><tr><th>field</th>{'<th>in</th>' if has_places else ''}<th>type</th><th></th></tr>"
    for name, schema, is_needed, place in fields:
        needed = "needed" if is_needed else _format_default(schema)
        where = f"<td>{escape(place)}</td>" if has_places else ""
        meaning = _CODE.sub(r"<code>\1</code>", escape(schema.get("description", "")))
        yield f"<tr><td><code>{escape(name)}</code></td>{where}"
        yield f"<td>{_describe_type(schema)}{', ' + needed if needed else ''}</td><td>{meaning}</td></tr>"
    yield "</table>"


def _list_fields(schema: Json) -> Iterator[tuple[str, Json, bool]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield name, field, name in required


def _format_default(schema: Json) -> str:
    default = schema.get("default")
    if default in (None, "", []) or isinstance(default, dict):
        return ""
    return f"else <code>{escape(json.dumps(default))}</code>"


_KINDS: Final = {"string": "text", "boolean": "true or false"}
_FORMATS: Final = {"date-time": "time", "uuid": "UUID"}


def _describe_type(schema: Json) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = escape(_get_schema_name(schema))
        return f'<a href="#{name}">{name.partition(".")[2]}</a>'
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_describe_type(member) for member in schema[word]))
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(choice))}</code>" for choice in schema["enum"])
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_describe_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_describe_type(schema['additionalProperties'])}"
    if "properties" in schema:
        inside = (
            f"<code>{escape(name)}</code>: {_describe_type(field)}" for name, field, _ in _list_fields(schema)
        )
        return f"object with {', '.join(inside)}"
    kind = str(schema.get("type", "anything"))
    return escape(_FORMATS.get(schema.get("format", ""), _KINDS.get(kind, kind)))


def _get_schema_name(reference: Json) -> str:
    name: str = reference["$ref"].rpartition("/")[2]
    return name


def _render_prose(text: str) -> str:
    """Paragraphs; words in backticks are code."""
    paragraphs = (escape(paragraph.strip()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip())
    return "".join(
        f"<p>{_CODE.sub('<code>' + chr(92) + '1</code>', paragraph)}</p>" for paragraph in paragraphs
    )


_CODE: Final = re.compile(r"``?([^`]+)``?")
