"""How commands are declared: with the options that all of them share, and with examples that are run.

``--lake``, ``--author`` and ``--json`` are accepted before and after every subcommand; the last one counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

from penstock.cli.command_context import CommandContext
from penstock.cli.completions import complete_branch, complete_key, complete_revision
from penstock.model.similar_names import find_closest_name

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", bound=float | None)


def _store_shared_option(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value == "":
        raise click.BadParameter("the value is empty", ctx, param)
    if value and param.name:
        setattr(ctx.ensure_object(CommandContext), param.name, value)


MAKE_NO_LAKE: Final = (
    "serve",
    "ui",
    "doctor",
    "fsck",
    "resync",
    "horizon",
    "grace",
    "optimize",
    "maintain",
    "sweep",
    "copy",
    "move",
    "backup",
    "backups",
    "restore-backup",
    "upgrade",
)
"""Commands that leave a directory without a lake as it is; of the others, those that write make one."""

_MAKES = "The lake: a directory or URL. A first write makes one. "
_MAKES_NOT = "The lake: a directory or URL, where there is one. "
_ELSE_HERE = "[PENSTOCK_LAKE, else the current directory]"
_LAKE_HELP: Final = {
    **dict.fromkeys(MAKE_NO_LAKE, _MAKES_NOT + _ELSE_HERE),
    "serve": f"{_MAKES_NOT}[PENSTOCK_LAKE, else the current directory; ./lake with --dev, which makes it]",
}


def list_shared_options(
    parameters: Iterable[click.Parameter] = (), command: str | None = None
) -> list[click.Option]:
    """The options of every command, but those that it uses for something of its own."""
    own = {name for param in parameters for name in param.opts}
    return [option for option in _list_shared_options(command) if not own.intersection(option.opts)]


def _list_shared_options(command: str | None) -> list[click.Option]:
    return [
        click.Option(
            ["--lake"],
            metavar="PATH",
            expose_value=False,
            callback=_store_shared_option,
            is_eager=True,
            help=_LAKE_HELP.get(command or "", _MAKES + _ELSE_HERE),
        ),
        click.Option(
            ["--author"],
            metavar="NAME",
            expose_value=False,
            callback=_store_shared_option,
            is_eager=True,
            help="Who commits. [PENSTOCK_AUTHOR, else your user name, or behind a server your token's]",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=_store_shared_option,
            is_eager=True,
            help="Print the result as JSON.",
        ),
    ]


SHARED = ("lake", "author", "json")


class DeclaredCommand(click.Command):
    """What our commands add to click's: shared options, examples, and the object that they print.

    ``examples`` is a transcript that the reference page runs, ``prints`` is the type of what
    ``--json`` prints.
    """

    def __init__(self, *args: Any, examples: str = "", prints: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples, self.prints = examples.strip(), prints
        self.params += list_shared_options(self.params, self.name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, those that all commands share apart."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                (shared if param.name in SHARED else own).append(record)
        for title, records in (("Options", own), ("Options of every command", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.splitlines():
                    formatter.write(f"  {line}\n")


class SingleCommand(DeclaredCommand):
    """A command."""


class CommandGroup(DeclaredCommand, click.Group):
    """A command with subcommands, in the order of their declaration."""

    command_class = SingleCommand

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as wrong:
            there_is_none = f"there is no command '{args[0]}'"
            meant = find_closest_name(args[0], self.list_commands(ctx))
            if meant is not None:
                there_is_none += f". Did you mean '{meant}'?"
            raise click.UsageError(there_is_none + self.describe_problems(), ctx) from wrong

    def describe_problems(self) -> str:
        """Why commands that are expected may be missing, a line each."""
        return ""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def declare_command(name: str, *, examples: str = "", prints: Any = None) -> Callable[[F], SingleCommand]:
    """Declare a command."""
    return click.command(name, cls=SingleCommand, examples=examples, prints=prints)


def declare_group(name: str, *, examples: str = "", prints: Any = None) -> Callable[[F], CommandGroup]:
    """Declare a group that does something by itself too."""
    return click.group(name, cls=CommandGroup, examples=examples, prints=prints, invoke_without_command=True)


# -- parameters that several commands have -----------------------------------------------------------------


def add_ref_option(f: F) -> F:
    return click.option(
        "--ref",
        "--at",
        "ref",
        metavar="REVISION",
        shell_complete=complete_revision,
        help="Where to look: a branch, tag, commit or revision such as main~3. [the default branch]",
    )(f)


def branch_option(f: F) -> F:
    return click.option(
        "--branch",
        metavar="BRANCH",
        shell_complete=complete_branch,
        help="The branch. [the default branch]",
    )(f)


def add_message_option(f: F) -> F:
    return click.option("-m", "--message", metavar="TEXT", help="Commit message.")(f)


def add_base_option(f: F) -> F:
    return click.option(
        "--base",
        metavar="REVISION",
        shell_complete=complete_revision,
        help="The commit that you read; refused if the key changed since.",
    )(f)


def add_key_option(f: F) -> F:
    return click.option(
        "--key",
        "--idempotency-key",
        "idempotency_key",
        metavar="TEXT",
        help="An idempotency key: the same request under the same key is done once.",
    )(f)


def add_if_head_option(subject: str) -> Callable[[F], F]:
    return click.option(
        "--if-head",
        metavar="REVISION",
        shell_complete=complete_revision,
        help=f"Refuse unless {subject} is at this commit.",
    )


def add_limit_option(default: int) -> Callable[[F], F]:
    return click.option(
        "-n",
        "--limit",
        type=int,
        default=default,
        callback=require_at_least(1),
        metavar="COUNT",
        help=f"How many to show at most. [{default}]",
    )


def require_at_least(lowest: int) -> Callable[[click.Context, click.Parameter, N], N]:
    """Refuse a number that is too low, or endless, or none at all."""

    def check_value(ctx: click.Context, param: click.Parameter, value: N) -> N:
        if value is not None and not lowest <= value < math.inf:
            what = f"is less than {lowest}" if value < lowest else "is not a number to count with"
            raise click.BadParameter(f"{value} {what}", ctx, param)
        return value

    return check_value


def add_key_argument(f: F) -> F:
    return click.argument("key", metavar="KEY", shell_complete=complete_key)(f)
