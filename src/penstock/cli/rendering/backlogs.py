"""How far tables are published, or promoted: a line each, and what stands against it below."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.model.keys import Key


class BacklogStatus(Protocol):
    """A table, and how many of its versions wait in the background, whatever its format."""

    @property
    def key(self) -> Key: ...
    @property
    def location(self) -> str: ...
    @property
    def backlog(self) -> int: ...
    @property
    def oldest_s(self) -> float | None: ...
    @property
    def alarm(self) -> str: ...


class StatusLine(NamedTuple):
    """A table's status, with what its format says of it."""

    status: BacklogStatus
    version: str
    done: str
    """What it is if nothing waits, such as ``published``."""
    to_do: str
    """What is to be done with the versions that wait, such as ``publish``."""
    phase: str = ""


def format_statuses(screen: Screen, lines: list[StatusLine], nothing: str) -> Iterator[str]:
    """A line for each table; ``nothing`` if there is none."""
    if not lines:
        yield nothing
    rows: list[Row] = [
        [
            StyledText(escape_controls(str(line.status.key)), "strong"),
            line.version,
            _format_backlog(line),
            StyledText(line.phase, "warning"),
            StyledText(escape_controls(line.status.location), "dim"),
        ]
        for line in lines
    ]
    yield from align_columns(screen, rows, flexible=-1)
    for status in (line.status for line in lines):
        if status.alarm:
            yield f"{screen.style('!', 'bad')} {escape_controls(str(status.key))}: {status.alarm}"


def _format_backlog(line: StatusLine) -> StyledText:
    status = line.status
    if not status.backlog:
        return StyledText(line.done, "good")
    age = f", for {status.oldest_s:.0f} s" if status.oldest_s is not None else ""
    return StyledText(f"{status.backlog:,} to {line.to_do}{age}", "warning")
