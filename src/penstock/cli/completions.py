"""What a shell offers after the tab key: names and keys of the lake. It makes no lake, and never fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import click

from penstock.cli.command_context import CommandContext
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

OFFERED_MAX = 200
Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


@contextmanager
def _open_lake(ctx: click.Context) -> Iterator[Lake]:
    from penstock.lake.opener import open_lake

    lake = open_lake(ctx.ensure_object(CommandContext).lake_target, create=False)
    try:
        yield lake
    finally:
        lake.close()


def make_completer(names: Callable[[Lake, str], list[str]]) -> Complete:
    def complete_text(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        try:
            with _open_lake(ctx) as lake:
                return names(lake, incomplete)
        except (PenstockError, click.ClickException, OSError):
            return []  # whoever presses tab is helped by no error

    return complete_text


def _complete_branches(lake: Lake, start: str) -> list[str]:
    return [branch.name for branch in lake.branches(start, limit=OFFERED_MAX)]


def _complete_tags(lake: Lake, start: str) -> list[str]:
    return [tag.name for tag in lake.tags(start, limit=OFFERED_MAX)]


def _complete_keys(lake: Lake, start: str) -> list[str]:
    above, dot, _ = start.rpartition(".")
    entries = lake.at().entries(above if dot else None)
    matching = (str(key) for key, _ in entries if str(key).startswith(start))
    return [key for key, _ in zip(matching, range(OFFERED_MAX), strict=False)]


complete_branch = make_completer(_complete_branches)
complete_tag = make_completer(_complete_tags)
complete_revision = make_completer(
    lambda lake, start: _complete_branches(lake, start) + _complete_tags(lake, start)
)
complete_key = make_completer(_complete_keys)
