"""Descriptions for JSON schemas, from the docstrings of structs and of their fields."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from textwrap import dedent
from typing import Any, get_args

import msgspec


def add_descriptions(components: dict[str, Any], kinds: Any) -> dict[str, Any]:
    """Schema components with the docstrings of the structs that they were made of."""
    structs = {kind.__name__: _find_original_struct(kind) for kind in _collect_structs(kinds)}
    for name, component in components.items():
        struct = structs.get(name)
        if struct is None:
            continue
        component["description"] = to_markdown(struct.__doc__ or "")
        docs = read_field_docs(struct)
        for field, schema in component.get("properties", {}).items():
            if field in docs:
                schema["description"] = docs[field]
    return components


def _find_original_struct(struct: type) -> type:
    """What a struct was derived from at run time: that has its name, its module, and a source."""
    original: type = getattr(sys.modules[struct.__module__], struct.__name__, struct)
    return original


def to_markdown(docstring: str) -> str:
    """A docstring as Markdown."""
    return inspect.cleandoc(docstring).replace("``", "`")


@cache
def read_field_docs(struct: type) -> dict[str, str]:
    """The docstrings below the fields of a struct and of those that it is derived from."""
    docs: dict[str, str] = {}
    for kind in reversed(struct.__mro__):
        if issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct:
            docs |= _read_own_field_docs(kind)
    return docs


def _read_own_field_docs(struct: type) -> dict[str, str]:
    try:
        source = inspect.getsource(struct)
    except (OSError, TypeError):  # it was made at run time, or came without its source
        return {}
    [definition] = ast.parse(dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for field, after in zip(definition.body, definition.body[1:], strict=False):
        is_field = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if is_field and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            docs[field.target.id] = " ".join(str(after.value.value).split()).replace("``", "`")  # type: ignore[attr-defined]
    return docs


def _collect_structs(kinds: Any) -> set[type[msgspec.Struct]]:
    """All structs that types are made of."""
    structs: set[type[msgspec.Struct]] = set()
    remaining = list(kinds)
    while remaining:
        kind = remaining.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in structs:
                structs.add(kind)
                remaining += [field.type for field in msgspec.structs.fields(kind)]
        else:
            remaining += get_args(kind)
    return structs
