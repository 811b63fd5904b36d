"""Ids of jobs and transactions as people type them: whole, or their first digits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import click

from penstock.errors import InvalidRequest, NotFound

ID_CHARS: Final = 8
"""So many digits are shown, and enough."""
_ID: Final = re.compile(r"[0-9a-f]{32}")


def complete_id(
    start: str, subject: str, known: Callable[[], Iterable[str]], missing: Callable[[], NotFound]
) -> str:
    """The id that begins so; an error if none does, or several. A whole one is not looked up."""
    if _ID.fullmatch(start):
        return start
    if len(start) < ID_CHARS:
        raise click.UsageError(f"'{start}' is too short: give at least the first {ID_CHARS} digits of an ID")
    matches = [candidate for candidate in known() if candidate.startswith(start)]
    if len(matches) > 1:
        raise InvalidRequest(
            f"'{start}' is ambiguous: {len(matches)} {subject} begin with it ({', '.join(matches[:5])})"
        )
    if not matches:
        raise missing()
    return matches[0]
