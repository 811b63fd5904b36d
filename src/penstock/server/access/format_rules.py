"""The rules of calls that formats answer: each format has its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

from penstock.errors import FormatUnavailable
from penstock.formats.registry import list_table_formats, load_other_formats, load_part
from penstock.lake.call import Call
from penstock.server.access.rights import CallerRights

AccessRule: TypeAlias = Callable[[CallerRights, Any], Any]
"""Checks a call, asks for no more than may be seen, and leaves out the rest."""


@cache
def load_format_rules() -> dict[type[Call[Any]], AccessRule]:
    """The rule of every call that a format answers."""
    rules: dict[type[Call[Any]], AccessRule] = {}
    for declared in list_table_formats():
        rules |= load_part(declared.access_rules)
    return rules


@cache
def load_other_format_rules() -> dict[type[Call[Any]], AccessRule]:
    """The rule of every call that a format of another package answers.

    A package whose rules cannot be loaded has none: its calls are denied.
    """
    rules: dict[type[Call[Any]], AccessRule] = {}
    for declared in load_other_formats().formats:
        with suppress(FormatUnavailable):  # a server tells of it when it starts
            rules |= declared.load(declared.access_rules)
    return rules
