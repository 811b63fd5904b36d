"""The demonstration: a small story, told by running the commands that it shows."""

from __future__ import annotations

import contextlib
import inspect
import io
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import msgspec

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command
from penstock.cli.commands.demo_spark import show_spark_demo, what_is_missing
from penstock.cli.format_cli import format_clis
from penstock.cli.progress import WaitingLine
from penstock.cli.rendering.screen import Screen
from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """What the demonstration leaves."""

    lake: str
    """Where the lake is."""
    commands: tuple[str, ...]
    """Commands to try on it."""


@declare_command("demo", prints=Demo, examples="$ penstock demo --no-spark playground")
@click.argument(
    "directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False)
)
@click.option("--no-spark", is_flag=True, help="Show only the catalogue, which needs no Spark.")
@pass_call
def demo(call: CommandContext, directory: Path | None, no_spark: bool) -> None:
    """Run a demonstration: a Spark pipeline builds Delta and Lance tables, which land on main in one commit.

    Without Spark, Java or Lance, or with --no-spark, the demonstration shows a lake, a branch, a conflict and
    a merge, and takes a few seconds. It creates a lake in DIR, which must be empty or missing. Without DIR it
    creates a temporary directory and keeps it, so that you can try further commands there.
    """
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise InvalidRequest(f"{directory} is not empty; the demo needs an empty directory")
    place = directory or Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    story = DemoStory(place.absolute(), quiet=call.json)
    missing = "" if no_spark else what_is_missing()
    if no_spark or missing:
        show_story(story)
        for format_cli in format_clis():
            story.also = format_cli.show_demo(story) or story.also
        if missing:
            story.print_line(f"With Spark and Lance there is more to see: {missing}")
    else:
        story.print_line(f"A lake is made in {story.place}.")
        show_spark_demo(story)
        story.also = "tx list --all"
    call.print_answer(
        lambda: Demo(lake=str(story.place), commands=story.commands_to_try()), lambda _: story.closing_lines()
    )


def load_first_rows(lake: Lake, penstock: Any) -> None:
    tables = {
        "sales.orders": penstock.IcebergTable(metadata_location="s3://demo/orders/v1.json"),
        "sales.customers": penstock.DeltaTable(location=f"{lake.warehouse}/customers"),
        "search.vectors": penstock.LanceTable(location=f"{lake.warehouse}/vectors"),
        "landing.clicks": penstock.FilesTable(location=f"{lake.warehouse}/clicks"),
    }
    puts = [penstock.Put(penstock.Key.parse(key), table) for key, table in tables.items()]
    lake.commit(puts, message="first load", create_namespaces=True)


def show_story(story: DemoStory) -> None:
    """The story, from an empty directory to a commit undone."""
    orders = "put sales.orders --type iceberg metadata_location=s3://demo/orders"
    story.print_line(
        f"A lake is made in {story.place}.",
        "It is a catalogue: it says which tables there are, where, and in which state. The first tables here",
        "are only such entries, of files that an engine would write.",
    )
    story.show_chapter("Four tables of four formats, in one commit")
    story.run_step(load_first_rows, penstock="penstock")
    story.run_command("tables")
    story.show_chapter("A branch to work on")
    story.run_command("branch create fix-returns")
    story.run_command(f"{orders}/v2-fixed.json --branch fix-returns -m 'drop duplicated returns'")
    story.run_command(
        "put sales.returns --type iceberg metadata_location=s3://demo/returns/v1.json --branch fix-returns "
        "-m 'keep returns apart'"
    )
    story.show_chapter("A reader of main sees nothing of it")
    story.run_command("show main sales.orders")
    story.run_command("diff main fix-returns")
    story.show_chapter("Meanwhile main gets a commit of its own")
    story.run_command(f"{orders}/v2.json -m 'hourly load'")
    story.run_command("merge fix-returns --into main --dry-run", status=3)
    story.print_line(
        "A dry run changes nothing, and a merge with conflicts lands nothing at all.",
        "sales.orders changed on both sides. Here the fix is what we want:",
    )
    story.run_command("merge fix-returns --into main --take fix-returns=sales.orders")
    story.show_chapter("Both tables arrived at one instant, and history shows how")
    story.run_command("log main")
    story.show_chapter("Every commit stays what it was: the lake as it stood before the merge")
    story.run_command("show main~1 sales.orders")
    story.show_chapter("And a commit can be undone, by another commit")
    story.run_command("revert main -m 'the fix has to wait'")
    story.run_command("show main sales.orders")


class DemoStory:
    """Says what it does, does it, and stops if it did not go as the story wants."""

    def __init__(self, folder: Path, quiet: bool) -> None:
        self.place, self._quiet = folder, quiet
        self._screen = Screen.of_stream(sys.stdout)
        self._chapters = 0
        self.also = "diff main~2 fix-returns"
        """A command that shows something of what was told last."""

    def print_line(self, *lines: str) -> None:
        for line in lines:
            self._print_text(line)
        self._print_text("")

    def show_chapter(self, title: str) -> None:
        self._chapters += 1
        self._print_text(self._screen.style(f"{self._chapters}. {title}", "strong"))
        self._print_text("")

    def show_definitions(self, *steps: Callable[..., None]) -> None:
        """Show functions as they are written, which later steps call."""
        for step in steps:
            for line in (*inspect.getsource(step).splitlines(), ""):
                self._print_text(self._screen.style(f"  {line}", "dim") if line else "")

    def run_step(self, step: Callable[..., None], *given: Any, **libraries: str) -> None:
        """Show what a function does with what it is given and some libraries, and have it done.

        If it is given nothing, it gets the lake.
        """
        _, _, body = inspect.getsource(step).partition("-> None:\n")
        imports = [
            f"import {library}" if name == library else f"import {library} as {name}"
            for name, library in libraries.items()
        ]
        for line in (*imports, *dedent(body).splitlines()):
            self._print_text(self._screen.style(f"  {line}", "dim") if line else "")
        self._print_text("")
        printed = io.StringIO()
        used = {name: import_module(library) for name, library in libraries.items()}
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(printed))
            if given:
                stack.enter_context(self.show_waiting("working"))
            else:
                given = (stack.enter_context(open_lake(self.place, create=True, author="ada")),)
            step(*given, **used)
        if printed.getvalue():
            self.print_line(printed.getvalue().rstrip("\n"))

    @contextlib.contextmanager
    def show_waiting(self, subject: str) -> Iterator[None]:
        """Say on a terminal that something takes a while, for as long as it does."""
        with WaitingLine(subject, quiet=self._quiet):
            yield

    def run_command(self, line: str, status: int = 0) -> None:
        """Show a command, and run it on the lake."""
        self._print_text(self._screen.style(f"$ penstock {line}", "name"))
        found_status = self._run_command(["--lake", str(self.place), "--author", "ada", *shlex.split(line)])
        if found_status != status:
            raise SystemExit(found_status or 1)
        self._print_text("")

    def _run_command(self, args: list[str]) -> int:
        root: Any = click.get_current_context().find_root().command
        silence = contextlib.redirect_stdout(io.StringIO()) if self._quiet else contextlib.nullcontext()
        sys.stdout.flush()
        with silence:
            try:
                root.main(args)
            except SystemExit as end:
                return end.code if isinstance(end.code, int) else 0
        return 0

    def _print_text(self, text: str) -> None:
        if not self._quiet:
            print(text)

    def commands_to_try(self) -> tuple[str, ...]:
        """Commands that work on the lake as the story leaves it."""
        lake = f"{_find_program()} --lake {shlex.quote(str(self.place))}"
        return (
            f"{lake} log --table sales.orders",
            f"{lake} {self.also}",
            f"{lake} doctor",
        )

    def closing_lines(self) -> list[str]:
        return [
            f"The lake is in {self.place}. Three things to try on it:",
            "",
            *(f"  {line}" for line in self.commands_to_try()),
        ]


def _find_program() -> str:
    """How to call this very program: by its name if the shell finds it, else by its path."""
    called = Path(sys.argv[0])
    if called.name != "penstock" or shutil.which("penstock"):
        return "penstock"
    here = Path.cwd()
    return shlex.quote(str(called.relative_to(here) if called.is_relative_to(here) else called))
