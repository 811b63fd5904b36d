"""Finds what messages advise to do: to write, delete, move, force or repeat something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import penstock

SOURCE: Final = Path(penstock.__file__).parent
NOT_ERRORS: Final = (
    "bench/",
    "testing/",
    "metrics/",
    "cli/root.py",
    "cli/commands/demo",
    "server/lance/operations.py",
)
"""Modules whose texts are no messages of errors: the names of commands, measurements, what a demo runs."""
HELP: Final = {"help", "examples", "summary", "description", "title", "epilog", "short_help"}
_DEEDS: Final = (
    "abort|adopt|append|assign|bring|cancel|copy|delete|drop|empty|force|merge|move|overwrite|promote|publish|"
    "rebase|recover|release|remove|rename|repeat|replace|restore|revert|rewrite|settle|sweep"
)
_DEEDS_AGAIN: Final = "write|run|do|try|read|open|create|register|ask|commit"
_COMMANDS: Final = (
    "delete|copy|sweep|horizon|rebase|revert|restore|delta (?:adopt|recover|release)|(?:branch|tag) assign|"
    "(?:tx|jobs) abort"
)
_ADVISES: Final = re.compile(
    r"(?:^(?=.{40})|\n +|[.;:] |, or |, and |, then |what to do +|to [a-z' ]+, |^or )"
    rf"(?:(?:{_DEEDS})\b|(?:{_DEEDS_AGAIN})\b[^.;:]*\b(?:again|anew)\b)|the mode '|penstock (?:{_COMMANDS})",
    re.IGNORECASE,
)


class Text(NamedTuple):
    """A text of the program, with ``{}`` where it has something put in."""

    where: str
    text: str


def advising() -> Iterator[Text]:
    """Every text of the program that advises a deed."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(NOT_ERRORS):
            for text in _texts(ast.parse(path.read_text("utf-8"))):
                if " " in text and not text.lstrip().startswith("$ ") and _ADVISES.search(text):
                    yield Text(name, text)


def _texts(tree: ast.AST) -> Iterator[str]:
    """The texts in code, without docstrings and the help of commands."""
    passed_over = set[int]()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                passed_over.add(id(node.value))
            case ast.keyword(arg=str(name)) if name in HELP:
                passed_over.update(map(id, ast.walk(node.value)))
            case ast.JoinedStr() if id(node) not in passed_over:
                passed_over.update(map(id, node.values))
                parts = (str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
                yield "".join(parts)
            case ast.Constant(value=str(text)) if id(node) not in passed_over:
                yield text
