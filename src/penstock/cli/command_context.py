"""One run of the command line: which lake, who asks, and how answers are given."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import environment
from penstock.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from penstock.kernel.settings import Settings
    from penstock.lake.lake import Lake

NO_LAKE = (
    "no lake is given. Say --lake PATH, set PENSTOCK_LAKE, or go to a lake's directory. "
    "'penstock init PATH' makes a lake, 'penstock demo' shows one."
)


_SERVER_SCHEMES = ("http", "https")
_SCHEME_CUT_SHORT = re.compile(r"(https?):/?([^/].*)", re.IGNORECASE)
_HOST_AND_PORT = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d{1,5}(?:/.*)?")


def require_place(url: str) -> str:
    """The place of a lake as it was told; a usage error if it was meant as a server's address.

    A directory may have any name, so without this a slip of the finger would make a new, empty lake.
    """
    meant = _suggest_server_address(url)
    if meant is None or Path(url).exists():
        return url
    raise click.UsageError(f"there is no lake at {url}. Did you mean {meant}?")


def _suggest_server_address(url: str) -> str | None:
    """The server's address that a place looks like, but is not."""
    scheme, is_url, address = url.partition("://")
    if is_url:
        from difflib import get_close_matches

        near = get_close_matches(scheme.lower(), _SERVER_SCHEMES, n=1, cutoff=0.8)
        return f"{near[0]}://{address}" if near and scheme.lower() not in _SERVER_SCHEMES else None
    if cut_short := _SCHEME_CUT_SHORT.fullmatch(url):
        return f"{cut_short[1].lower()}://{cut_short[2]}"
    return f"http://{url}" if _HOST_AND_PORT.fullmatch(url) else None


class CommandContext:
    """What the options of every command say, and the lake they lead to."""

    def __init__(self) -> None:
        self.json = False
        self.lake: str | None = None
        self.author: str | None = None

    @property
    def lake_address(self) -> str | None:
        """Where the lake is, as told or as set."""
        place = self.lake or os.environ.get(environment.LAKE)
        return require_place(place) if place else None

    @property
    def is_behind_server(self) -> bool:
        """Whether the lake is one that a server answers for."""
        from penstock.lake.opener import is_remote

        return is_remote(self.lake or os.environ.get(environment.LAKE) or "")

    @property
    def lake_target(self) -> str:
        """Where the lake is: as told, as set, or here."""
        target = self._find_target()
        if target is None:
            raise click.UsageError(NO_LAKE)
        return target

    @property
    def has_target(self) -> bool:
        """Whether a lake was told or set, or is here."""
        return self._find_target() is not None

    def _find_target(self) -> str | None:
        if self.lake_address is not None:
            return self.lake_address
        from penstock.stores import DATABASE_FILE

        return str(Path.cwd()) if Path(DATABASE_FILE).is_file() else None

    @property
    def commit_author(self) -> str | None:
        """Who commits; ``None`` leaves it to the lake."""
        return self.author or os.environ.get(environment.AUTHOR) or None

    def open_lake(
        self, *, create: bool | None = None, settings: Settings | None = None, catch_up: bool = False
    ) -> Lake:
        """The lake, until the command ends; where there is none, a command that writes makes it.

        Tables that other processes left unpublished stay so, unless ``catch_up`` is wanted: a command
        is not to wait for what has nothing to do with it.
        """
        from penstock.lake.opener import open_lake

        lake = open_lake(
            self.lake_target, create=create, author=self.author, settings=settings, catch_up=catch_up
        )
        click.get_current_context().call_on_close(lambda: self._close_lake(lake))
        return lake

    def _close_lake(self, lake: Lake) -> None:
        if lake.is_made_here:
            self.print_note(f"made a new lake at {lake.url}")
        lake.close()

    def print_answer(self, make: Callable[[], Any], text: Callable[[Screen], Iterable[str]]) -> None:
        """Print the answer: an object for programs if ``--json`` was said, text for people otherwise.

        The object is of the type that the command declares as what it prints.
        """
        if self.json:
            from penstock.cli.answers import encode_answer

            print(encode_answer(make(), getattr(click.get_current_context().command, "prints", Any)))
        else:
            for line in text(Screen.of_stream(sys.stdout)):
                print(line)

    def print_note(self, text: str) -> None:
        """Tell people something beside the answer."""
        if not self.json:
            screen = Screen.of_stream(sys.stderr)
            print(screen.style(f"penstock: {text}", "dim"), file=sys.stderr)


pass_call = click.make_pass_decorator(CommandContext, ensure=True)
