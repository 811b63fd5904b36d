"""Finds the kinds of conflicts that a format tells: the texts of its refusals, read from its code."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import penstock

FORMATS = Path(penstock.__file__).parent / "formats"


def refusals(module: str, functions: Collection[str] = ()) -> Iterator[str]:
    """What the refusals in a module say first: up to the first semicolon, with ``{}`` where something is put
    in. Only those of some functions, if any are named."""
    tree = ast.parse((FORMATS / module).read_text("utf-8"))
    for part in ast.walk(tree):
        if isinstance(part, ast.FunctionDef) and (not functions or part.name in functions):
            for node in ast.walk(part):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "FormatRefused":
                    yield _text(node.args[0]).partition(";")[0]


def fits(kind: str, why: str) -> bool:
    """Whether a conflict is of a kind."""
    parts = [re.escape(part) for part in re.split(r"\{\w*\}", kind)]
    return re.match(".*".join(parts), why, re.DOTALL) is not None


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return f"{{{name}}}"
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.FormattedValue(value=ast.Name(id=name)) if name.isupper():
            return f"{{{name}}}"
        case _:
            return "{}"
