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
    "formats/lance/rest/operations.py",
)
"""Modules whose texts are no messages of errors: the names of commands, measurements, what a demo runs."""
HELP: Final = {"help", "examples", "summary", "description", "title", "epilog", "short_help"}
NO_ADVICE: Final = (
    "DELETE FROM objects WHERE",
    "the mode '{}' is not one of",
    "publish(…, spark=spark)",
    "Merge operations only support squashed now",
    "the settings are {}\n  Unset it",
)
"""Texts that only look like advice: statements of SQL, what a parameter may be."""
_DEEDS: Final = (
    "abort|adopt|append|assign|bring|cancel|complete|copy|delete|deregister|drop|empty|force|hand|include|merge|move|"
    "overwrite|promote|publish|put it back|rebase|recover|register|release|remove|rename|repeat|replace|"
    "restart the query|restore|revert|rewrite|settle|sweep|undo|unset"
)
_DEEDS_AGAIN: Final = "write|run|do|try|read|open|create|register|ask|commit|start"
_COMMANDS: Final = (
    "delete|copy|move|backup(?!s| lease)|restore-backup(?!s| lease)|upgrade|"
    "sweep|horizon|rebase|resync|revert|restore|delta (?:adopt|recover|release)|(?:branch|tag) assign|"
    "tx commit|(?:tx|jobs) abort|backups (?:forget|expire)|init '{}' to migrate"
)
_ADVISES: Final = re.compile(
    r"(?:^(?=.{40})|\n +|[.;:] |, (?:or |and |then )?|what to do +|to [a-z' ]+, |^or )"
    rf"(?:(?:{_DEEDS})\b|(?:{_DEEDS_AGAIN})\b[^.;:]*\b(?:again|anew)\b)|the mode '|penstock (?:{_COMMANDS})"
    r"|--sole-writer|repeating the request|give (?:it|the job|this job) another",
    re.IGNORECASE,
)


class Text(NamedTuple):
    """A text of the program, with ``{}`` where it has something put in."""

    where: str
    text: str
    deeds: tuple[int, ...]
    """Where each of the deeds is named that it advises."""


def advising() -> Iterator[Text]:
    """Every text of the program that advises a deed."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(NOT_ERRORS):
            for text in _texts(ast.parse(path.read_text("utf-8"))):
                deeds = tuple(found.end() - 1 for found in _ADVISES.finditer(text))
                if deeds and " " in text and not text.lstrip().startswith("$ "):
                    yield Text(name, text, deeds)


def _texts(tree: ast.AST) -> Iterator[str]:
    """The texts in code, without docstrings, the help of commands and the descriptions of procedures."""
    passed_over = set[int]()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                passed_over.add(id(node.value))
            case ast.keyword(arg=str(name)) if name in HELP:
                passed_over.update(map(id, ast.walk(node.value)))
            case ast.Call(func=ast.Name(id="Procedure"), args=[description, *_]):
                passed_over.add(id(description))
            case ast.JoinedStr() if id(node) not in passed_over:
                passed_over.update(map(id, node.values))
                parts = (str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
                yield "".join(parts)
            case ast.Constant(value=str(text)) if id(node) not in passed_over:
                yield text
