"""The rules of calls that formats answer: each format has its own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

from penstock.lake.call import Call
from penstock.server.access.rights import Rights

AccessRule: TypeAlias = Callable[[Rights, Any], Any]
"""Checks a call, asks for no more than may be seen, and leaves out the rest."""

MODULES: Final = (
    "penstock.server.access.delta",
    "penstock.server.access.files",
    "penstock.server.access.lance",
)
"""By name, as entry points have it. Each has its ``RULES``."""


def format_rules() -> dict[type[Call[Any]], AccessRule]:
    """The rule of every call that a format answers."""
    rules: dict[type[Call[Any]], AccessRule] = {}
    for module in MODULES:
        rules |= import_module(module).RULES
    return rules
