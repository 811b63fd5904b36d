"""All commands are declared alike: a line in the overview, help, examples, an object that they print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Union, get_args, get_origin

import click
import pytest

from penstock.cli.command_declaration import SHARED, DeclaredCommand
from penstock.cli.root import COMMANDS, SECTIONS, penstock
from penstock.wire import json
from tests.cli.conftest import Terminal

CONTEXT = click.Context(penstock, info_name="penstock")


def declared(
    group: click.Group = penstock, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], DeclaredCommand]]:
    for name in group.list_commands(CONTEXT):
        command = group.get_command(CONTEXT, name)
        assert isinstance(command, DeclaredCommand)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from declared(command, (*path, name))


ALL = list(declared())
each_command = pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])


def test_there_are_the_commands_that_are_promised() -> None:
    assert set(COMMANDS) == {
        "init", "branch", "tag", "log", "show", "tables", "diff", "merge", "transplant", "revert", "rebase",
        "reflog", "namespace", "put", "delete", "outcome", "horizon", "grace", "sweep", "fsck", "doctor",
        "demo", "completion", "bench", "copy", "serve", "ui", "token", "root", "delta",
        "files", "jobs", "tx", "lance", "expect", "publish", "restore", "erase", "resync",
        "backup", "backups", "restore-backup", "move", "upgrade", "sql", "figures",
        "delete-rows", "update-rows", "upsert", "optimize", "maintain",
    }  # fmt: skip
    for group in ("branch", "tag"):
        assert [path[1] for path, _ in ALL if path[0] == group and len(path) > 1] == [
            "list", "create", "assign", "delete",
        ]  # fmt: skip


@each_command
def test_a_command_has_help_with_examples(
    path: tuple[str, ...], command: DeclaredCommand, tmp_path: Path
) -> None:
    told = Terminal(tmp_path).plain(*path, "--help").out
    assert told.startswith(f"Usage: penstock {' '.join(path)} ")
    assert "\nExamples:\n  " in told
    assert (
        f"penstock {' '.join(path)}" in command.examples or f"penstock --json {path[0]}" in command.examples
    )
    assert command.help
    assert (command.help or "").strip().partition("\n")[0].endswith(".")
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert all(option.help for option in options)
    assert [option.name for option in options if option.name in SHARED] == [
        name for name in SHARED if name != "author" or path != ("log",)
    ], "all but the log, whose --author is a filter, share these"


@each_command
def test_a_command_declares_what_it_prints(path: tuple[str, ...], command: DeclaredCommand) -> None:
    is_union = get_origin(command.prints) in (Union, UnionType)
    kinds = get_args(command.prints) if is_union else (command.prints,)
    assert all(json.schema([kind]) for kind in kinds if kind is not NoneType)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_and_the_command_say_the_same(name: str) -> None:
    command = penstock.get_command(CONTEXT, name)
    assert command is not None
    line = COMMANDS[name].summary
    first = (command.help or "").partition("\n")[0]
    # The command may say more; it begins with the same verb.
    assert line.split()[0].lower() == first.split()[0].lower()


def test_penstock_alone_shows_the_overview(terminal: Terminal) -> None:
    told = terminal.plain()
    assert told.out == terminal.plain("--help").out
    for title, section in SECTIONS.items():
        assert f"\n{title}:\n" in told.out
        width = max(10, *map(len, section))
        for name, command in section.items():
            assert f"  {name.ljust(width)}  {command.summary}" in told.out


def test_the_version_is_told(terminal: Terminal) -> None:
    assert terminal.plain("--version").out.startswith("penstock 0.")
