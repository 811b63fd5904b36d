"""The options by which somebody says whose side is taken where two sides changed the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from penstock.cli.option_groups import gather_options
from penstock.model.keys import Key
from penstock.model.merges import HowToMerge, MergeMode

F = TypeVar("F", bound=Callable[..., Any])
_FOLDER: Final = re.compile(r"""(?P<key>(?:[^"/]|"[^"]*")+)/(?P<folder>.+/)""")


@dataclass(frozen=True, slots=True)
class ConflictOptions:
    """Whose side is taken of which keys."""

    takes: tuple[str, ...]
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    default: str = MergeMode.NORMAL.value

    def merge_modes(self, source: str, target: str) -> dict[str | Key, HowToMerge]:
        """What they say, as the lake wants it: the source's side is forced, the target's side dropped."""
        chosen: dict[str | Key, HowToMerge] = {}
        for text in self.takes:
            side, equals, key = text.partition("=")
            if not equals or not key or side not in (source, target):
                raise click.BadParameter(
                    f"{text!r} is neither {target}=KEY nor {source}=KEY", param_hint="--take"
                )
            chosen[Key.parse(key)] = MergeMode.FORCE if side == source else MergeMode.DROP
        folders: dict[Key, dict[str, MergeMode | str]] = {}
        sides = (("--theirs", MergeMode.FORCE, self.theirs), ("--ours", MergeMode.DROP, self.ours))
        for option, mode, texts in sides:
            for text in texts:
                whole, folder = _split_key_and_folder(text)
                modes = folders.setdefault(whole, {})
                if folder in modes or whole in chosen or (modes and "" in (folder, *modes)):
                    raise click.BadParameter(
                        f"'{whole}' is already resolved by another option", param_hint=option
                    )
                modes[folder] = mode
        return chosen | {key: modes.get("", modes) for key, modes in folders.items()}


def add_side_options(*, default: bool = True) -> Callable[[F], Callable[..., Any]]:
    """The options of ``ConflictOptions``, as ``sides``."""

    def decorate_command(f: F) -> Callable[..., Any]:
        command = gather_options("sides", ConflictOptions)(f)
        if default:
            command = _make_default_mode_option(command)
        for name, whose in (("ours", "the target's"), ("theirs", "the source's")):
            command = click.option(
                f"--{name}",
                multiple=True,
                metavar="KEY[/FOLDER/]",
                help=f"Resolve a key, or a folder of a table of files, by taking {whose} side. Repeatable.",
            )(command)
        return click.option(
            "--take",
            "takes",
            multiple=True,
            metavar="SIDE=KEY",
            help="Resolve the conflict at KEY by taking it from SIDE. Repeatable.",
        )(command)

    return decorate_command


def _make_default_mode_option(f: F) -> F:
    return click.option(
        "--default",
        type=click.Choice([mode.value for mode in MergeMode]),
        default=MergeMode.NORMAL.value,
        help="For all keys not named by --take: take the source's change unless both sides changed "
        "(normal), take the source's in any case (force), leave the target's (drop). [normal]",
    )(f)


def _split_key_and_folder(text: str) -> tuple[Key, str]:
    """A key, and the folder in its table if one is named: what follows the first slash outside of quotes."""
    parts = _FOLDER.fullmatch(text) if text.endswith("/") else None
    return (Key.parse(parts["key"]), parts["folder"]) if parts else (Key.parse(text), "")
