"""The root of all commands: what there is, what is loaded when, and how errors reach people and programs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import click

from penstock.cli import environment
from penstock.cli.command_context import CommandContext
from penstock.cli.command_declaration import CommandGroup
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.errors import PenstockError
from penstock.formats.registry import (
    FormatCommand,
    find_declared,
    list_table_formats,
    load_other_formats,
    load_part,
)


def _declare_lazy_command(path: str, summary: str) -> FormatCommand:
    return FormatCommand(f"penstock.cli.commands.{path}", summary)


FORMATS: Final = "Tables of a format"
"""The title above commands of formats."""

SECTIONS: Final[dict[str, Mapping[str, FormatCommand]]] = {
    "Begin": {
        "demo": _declare_lazy_command("demo:demo", "Run a demonstration of Penstock."),
        "init": _declare_lazy_command("lakes:init", "Create a lake."),
    },
    "Look": {
        "tables": _declare_lazy_command("tables:tables", "List the tables."),
        "log": _declare_lazy_command("history:log", "Show the commits, newest first, with their graph."),
        "show": _declare_lazy_command("history:show", "Show a commit, or what a table is at a commit."),
        "diff": _declare_lazy_command("history:diff", "Show what differs between two revisions."),
        "sql": _declare_lazy_command("sql:sql", "Run a SELECT over tables of all formats."),
        "figures": _declare_lazy_command(
            "figures:figures", "Show commits a day, conflicts, backlogs and sizes."
        ),
        "ui": _declare_lazy_command("ui:ui", "Open the web page of the lake in a browser."),
    },
    "Change": {
        "put": _declare_lazy_command("tables:put", "Create or replace a catalog entry."),
        "delete": _declare_lazy_command("tables:delete", "Delete a catalog entry."),
        "delete-rows": _declare_lazy_command("rows:delete_rows", "Delete rows of a table."),
        "update-rows": _declare_lazy_command("rows:update_rows", "Update columns of rows."),
        "upsert": _declare_lazy_command("rows:upsert", "Merge the rows of a file into a table."),
        "namespace": _declare_lazy_command("namespaces:namespace", "List, create and delete namespaces."),
        "tx": _declare_lazy_command("tx:tx", "List, show, commit and abort transactions."),
    },
    FORMATS: {
        name: command for declared in list_table_formats() for name, command in declared.commands.items()
    },
    "Branch and merge": {
        "branch": _declare_lazy_command("references:branch", "List, create, assign and delete branches."),
        "tag": _declare_lazy_command("references:tag", "List, create, assign and delete tags."),
        "reflog": _declare_lazy_command("references:reflog", "Show the changes of a branch or tag."),
        "merge": _declare_lazy_command("merges:merge", "Merge a branch into another."),
        "publish": _declare_lazy_command("publish:publish", "Publish a branch: merge it if all checks hold."),
        "expect": _declare_lazy_command("expect:expect", "List, add and remove expectations of a branch."),
        "transplant": _declare_lazy_command(
            "merges:transplant", "Transplant (cherry-pick) commits to a branch."
        ),
        "rebase": _declare_lazy_command("merges:rebase", "Repeat a branch's own commits on a new base."),
        "revert": _declare_lazy_command("merges:revert", "Revert a commit."),
        "restore": _declare_lazy_command("restore:restore", "Restore tables to an earlier commit."),
        "outcome": _declare_lazy_command("requests:outcome", "Show the outcome of a request."),
    },
    "Share": {
        "serve": _declare_lazy_command("serve:serve", "Serve the lake to programs on other machines."),
        "token": _declare_lazy_command(
            "tokens:token", "List, create and revoke the tokens that a server knows."
        ),
        "root": _declare_lazy_command("roots:root", "List, add, remove and map locations of tables."),
    },
    "Care": {
        "doctor": _declare_lazy_command("doctor:doctor", "Check the installation and the lake."),
        "fsck": _declare_lazy_command("care:fsck", "Check every object that the lake needs."),
        "resync": _declare_lazy_command(
            "resync:resync", "Import versions that tables have and the lake lacks."
        ),
        "horizon": _declare_lazy_command("care:horizon", "Set how much history is retained."),
        "grace": _declare_lazy_command("care:grace", "Show or set the grace period of sweeps."),
        "optimize": _declare_lazy_command("rows:optimize", "Compact the files of a table."),
        "maintain": _declare_lazy_command("rows:maintain", "Run the maintenance that tables need."),
        "sweep": _declare_lazy_command("care:sweep", "Remove unreferenced data."),
        "erase": _declare_lazy_command("erase:erase", "Make deleted rows of a table unrecoverable."),
        "backup": _declare_lazy_command("backups:backup", "Back up the lake."),
        "backups": _declare_lazy_command("backups:backups", "List, verify, expire and forget backups."),
        "restore-backup": _declare_lazy_command("backups:restore_backup", "Restore a backup as a lake."),
        "upgrade": _declare_lazy_command("lakes:upgrade", "Upgrade the lake to this release's format."),
        "copy": _declare_lazy_command("lakes:copy", "Copy a lake to another store."),
        "move": _declare_lazy_command("lakes:move", "Move a lake to another store."),
        "bench": _declare_lazy_command("bench:bench", "Measure how many commits a second a store accepts."),
        "completion": _declare_lazy_command(
            "completion:completion", "Print the script that completes commands in your shell."
        ),
    },
}
"""Where each command is and a line about it, so that help needs none of them loaded."""

COMMANDS: Final = {name: command for section in SECTIONS.values() for name, command in section.items()}

EXIT_STATUSES: Final = {
    0: "ok",
    1: "error",
    2: "usage",
    3: "conflict",
    4: "not found",
    5: "unavailable",
    6: "denied",
    7: "outcome unknown",
}
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


EXAMPLES: Final = """
$ penstock demo
$ penstock --lake ./lake put sales.orders --type iceberg metadata_location=s3://bucket/orders/v1.json
$ penstock --lake ./lake log
"""


class RootCommand(CommandGroup):
    """``penstock`` itself. Commands are loaded when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*COMMANDS, *_load_commands_of_other_formats()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in COMMANDS:
            command: click.Command = load_part(COMMANDS[cmd_name].path)
            return command
        declared = find_declared(lambda declared: cmd_name in declared.commands)
        if declared is None:
            return None
        of_format: click.Command = declared.load(declared.commands[cmd_name].path)
        return of_format

    def describe_problems(self) -> str:
        return "".join(f"\n  {problem}" for problem in load_other_formats().problems)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        sections = {**SECTIONS, FORMATS: {**SECTIONS[FORMATS], **_load_commands_of_other_formats()}}
        for title, section in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(10), command.summary) for name, command in section.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        statuses = ", ".join(f"{status} {meaning}" for status, meaning in EXIT_STATUSES.items())
        with formatter.section("Exit status"):
            formatter.write_text(statuses)
        formatter.write("\n'penstock COMMAND --help' shows the help of a command.\n")

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Run a command and end the process. No error leaves here as a traceback."""
        arguments = sys.argv[1:] if args is None else list(args)
        for stream in (sys.stdout, sys.stderr):
            # A name that the terminal's encoding does not know is no reason to fail.
            with contextlib.suppress(AttributeError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.exit(self._run_command(arguments, CommandContext()))

    def _run_command(self, args: list[str], call: CommandContext) -> int:
        """Run a command, and return the exit status that the process is to end with."""
        try:
            completion = os.environ.get(environment.COMPLETE)
            if completion:
                from click.shell_completion import shell_complete

                return shell_complete(self, {"obj": call}, "penstock", environment.COMPLETE, completion)
            _require_text_arguments(args)
            with self.make_context("penstock", args.copy(), obj=call) as ctx:
                self.invoke(ctx)
            sys.stdout.flush()
        except click.exceptions.Exit as end:
            return end.exit_code
        except BrokenPipeError:
            _detach_closed_pipes()
            return EXIT_BROKEN_PIPE
        except (click.Abort, KeyboardInterrupt):
            return EXIT_INTERRUPTED
        except Exception as error:  # noqa: BLE001 - this is where people are spared tracebacks
            return _print_error(error, call, call.json or "--json" in args)
        return 0


def _load_commands_of_other_formats() -> dict[str, FormatCommand]:
    """The commands that formats of other packages bring."""
    return {
        name: command
        for declared in load_other_formats().formats
        for name, command in declared.commands.items()
    }


def _require_text_arguments(args: list[str]) -> None:
    for argument in args:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{argument!a} is not valid text") from None


def _print_error(error: Exception, call: CommandContext, as_json: bool) -> int:
    """Say on standard error what went wrong, and return the exit code for it."""
    if os.environ.get(environment.DEBUG):
        import traceback

        traceback.print_exception(error)
    code, message, exit_code, advice = _explain_error(error, call)
    with contextlib.suppress(BrokenPipeError):
        if as_json:
            from penstock.cli.answers import encode_answer
            from penstock.wire.errors import ErrorBody, make_error_body

            if isinstance(error, PenstockError):
                failure = make_error_body(error, error.request_id)
            else:
                failure = ErrorBody.from_error(code, message)
            print(encode_answer(failure, ErrorBody), file=sys.stderr)
        else:
            screen = Screen.of_stream(sys.stderr)
            text = "\n".join(map(escape_controls, message.split("\n")))
            print(f"{screen.style('penstock:', 'bad')} {text}", file=sys.stderr)
            if advice:
                print(screen.style(f"  {advice}", "dim"), file=sys.stderr)
    return exit_code


def _explain_error(error: Exception, call: CommandContext) -> tuple[str, str, int, str]:
    """An error's code, message, exit code and advice."""
    if isinstance(error, PenstockError):
        from penstock.cli.advice import suggest_next_step

        message = error.message
        if error.request_id and error.http_status >= 500:
            message += f" (request {error.request_id})"  # whoever runs the server finds it in the log by that
        return error.code, message, error.exit_code, suggest_next_step(error, call.is_behind_server)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "penstock"
        return "usage", error.format_message(), error.exit_code, f"'{path} --help' shows how to use it."
    if isinstance(error, click.ClickException):
        return "error", error.format_message(), error.exit_code, ""
    if isinstance(error, OSError) and error.filename is not None:
        return "error", f"{error.filename}: {error.strerror}", 1, ""
    what = f"{type(error).__name__}: {error}".replace("\n", " ")
    return "unexpected", f"unexpected {what}", 1, f"Set {environment.DEBUG}=1 to see where it came from."


def _detach_closed_pipes() -> None:
    """Whoever read our output has gone: nothing more can be said, and Python must not try at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def _describe_version() -> str:
    from importlib.metadata import version

    return version("penstock")


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        print(f"penstock {_describe_version()}")
        ctx.exit()


@click.group("penstock", cls=RootCommand, invoke_without_command=True, examples=EXAMPLES)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def penstock(ctx: click.Context) -> None:
    """Every change to a data lake, to any number of tables, at one instant, on a branch, or not at all."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())
