"""A page for people about every route, made from the OpenAPI description. It loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any, Final

from penstock.server.routes import Answer

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


def render(description: Json) -> Answer:
    """The page for an OpenAPI description."""
    return Answer(
        body="".join(_page(description)).encode(),
        content_type="text/html; charset=utf-8",
        headers=(("content-security-policy", _POLICY), ("referrer-policy", "no-referrer")),
    )


def _page(description: Json) -> Iterator[str]:
    info = description["info"]
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>{_prose(info['description'])}"
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>'
    )
    for tag in description["tags"]:
        yield f'<h2 id="{escape(tag["name"])}">{escape(tag["name"])}</h2>{_prose(tag["description"])}'
        for path, operations in description["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    yield from _route(method, path, operation)
    yield '<h2 id="schemas">Schemas</h2>'
    for name, schema in description["components"]["schemas"].items():
        yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        yield f"{_schema(schema)}</details>"
    yield "</body></html>"


def _route(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f'<details id="{escape(operation["operationId"])}"><summary><b>{escape(method.upper())}</b>'
    yield f"<code>{escape(path)}</code><span>{escape(operation['summary'])}</span></summary>"
    yield _prose(operation.get("description", ""))
    if operation["parameters"]:
        yield "<table><tr><th>parameter</th><th>in</th><th>type</th><th></th></tr>"
        for one in operation["parameters"]:
            needed = "" if one["required"] else "optional. "
            yield (
                f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td>"
                f"<td>{_kind(one['schema'])}</td><td>{needed}{escape(one.get('description', ''))}</td></tr>"
            )
        yield "</table>"
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body, {escape(kind)}:</p>{_schema(content['schema'])}"
    yield "<table><tr><th>status</th><th>answer</th><th></th></tr>"
    for status, answer in operation["responses"].items():
        kinds = ", ".join(_kind(content["schema"]) for content in answer.get("content", {}).values())
        yield f"<tr><td>{escape(status)}</td><td>{kinds}</td><td>{escape(answer['description'])}</td></tr>"
    yield "</table></details>"


def _kind(schema: Json) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}"><code>{name}</code></a>'
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_kind(one) for one in schema[word])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(one))}</code>" for one in schema["enum"])
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_kind(schema['items'])}"
    return escape(str(schema.get("type", "anything")))


def _schema(schema: Json) -> str:
    """A schema as JSON whose references are links."""
    text = escape(json.dumps(schema, indent=2, ensure_ascii=False), quote=False)
    return f"<pre>{_REFERENCE.sub(_link, text)}</pre>"


_REFERENCE: Final = re.compile(r'"#/components/schemas/([\w.-]+)"')


def _link(found: re.Match[str]) -> str:
    return f'<a href="#{escape(found[1])}">{escape(found[1])}</a>'


def _prose(text: str) -> str:
    """Paragraphs; words in backticks are code."""
    paragraphs = (escape(one.strip()) for one in re.split(r"\n\s*\n", text) if one.strip())
    return "".join(f"<p>{_CODE.sub('<code>' + chr(92) + '1</code>', one)}</p>" for one in paragraphs)


_CODE: Final = re.compile(r"``?([^`]+)``?")
