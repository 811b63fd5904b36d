"""Changing what a Delta table is: its properties, constraints and columns. Each command is one commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import (
    add_key_argument,
    add_key_option,
    add_message_option,
    branch_option,
    declare_group,
)
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.answers import TableCommitResult

F = TypeVar("F", bound=Callable[..., Any])
_STEPS: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


@declare_group("alter", examples="$ penstock delta alter set web.orders owner=sales")
@click.pass_context
def delta_alter(ctx: click.Context) -> None:
    """Change a Delta table: its properties, constraints, columns or description.

    Each change is one version without rows, and one commit, on any branch; a merge brings it to others. A
    part of a column is written with dots (address.city), and a name that has dots itself in backquotes.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def declare_alteration(name: str, examples: str) -> Callable[[F], F]:
    """Declare a command that changes a table."""

    def declare_command(f: F) -> F:
        wrapped = delta_alter.command(name, prints=TableCommitResult, examples=examples)
        wrapped(add_key_argument(branch_option(add_message_option(add_key_option(pass_call(f))))))
        return f

    return declare_command


def _run_alteration(call: CommandContext, key: str, change: str, *values: Any, **options: Any) -> None:
    """Do one change, and tell which version it made."""
    ratified: TableCommitResult = getattr(call.open_lake().delta, change)(
        key, *values, author=call.commit_author, **options
    )

    def render_text(screen: Screen) -> Iterator[str]:
        commit = screen.style(shorten_id(ratified.commit.id), "id")
        name = screen.style(escape_controls(key), "strong")
        yield f"changed {name} with version {ratified.version} (commit {commit})"

    call.print_answer(lambda: ratified, render_text)


def parse_path(text: str) -> tuple[str, ...]:
    """The column, or the part of one, that a text names."""
    return tuple(quoted.replace("``", "`") or plain for quoted, plain in _STEPS.findall(text)) or (text,)


def parse_pairs(texts: Sequence[str]) -> dict[str, str]:
    """Properties as they are given: ``NAME=VALUE``."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"invalid property {text!r}; write it as NAME=VALUE")
        pairs[name] = value
    return pairs


def parse_columns(texts: Sequence[str]) -> Any:
    """Columns as they are given: ``NAME:TYPE``."""
    fields = []
    for column in texts:
        name, colon, kind = column.rpartition(":")
        if not colon or not name:
            raise click.UsageError(f"invalid column {column!r}; write it as NAME:TYPE")
        fields.append(Field(name=name, type=kind, nullable=True))
    return StructType(tuple(fields))


column_argument = click.argument("column", metavar="COLUMN")
if_exists_option = click.option("--if-exists", is_flag=True, help="Do not fail if it is missing.")


@declare_alteration(
    "set", "$ penstock delta alter set web.orders delta.logRetentionDuration='interval 60 days'"
)
@click.argument("properties", metavar="NAME=VALUE...", nargs=-1, required=True)
def delta_set(call: CommandContext, key: str, properties: tuple[str, ...], **options: Any) -> None:
    """Set properties of KEY. Those that turn a feature on list it in the table's protocol.

    For example delta.enableChangeDataFeed=true, delta.enableDeletionVectors=true, delta.appendOnly=true,
    delta.columnMapping.mode=name or delta.enableTypeWidening=true. delta.feature.NAME=supported lists a
    feature alone. Names of your own do not begin with 'delta.'.
    """
    _run_alteration(call, key, "set_properties", parse_pairs(properties), **options)


@declare_alteration("unset", "$ penstock delta alter unset web.orders owner --if-exists")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@if_exists_option
def delta_unset(call: CommandContext, key: str, names: tuple[str, ...], **options: Any) -> None:
    """Remove properties of KEY. Features that they turned on stay listed."""
    _run_alteration(call, key, "unset_properties", names, **options)


@declare_alteration("describe", "$ penstock delta alter describe web.orders 'one row for each order'")
@click.argument("text", metavar="TEXT")
def delta_describe(call: CommandContext, key: str, text: str, **options: Any) -> None:
    """Set the description of KEY. An empty text removes it."""
    _run_alteration(call, key, "set_description", text or None, **options)


@declare_alteration("add-constraint", "$ penstock delta alter add-constraint web.orders paid 'amount >= 0'")
@click.argument("name", metavar="NAME")
@click.argument("expression", metavar="CONDITION")
def delta_add_constraint(call: CommandContext, key: str, name: str, expression: str, **options: Any) -> None:
    """Add a CHECK constraint to KEY: a condition in SQL that is true for every row.

    Existing rows are checked first. The change is refused if the condition is false or null for any of them.
    """
    _run_alteration(call, key, "add_constraint", name, expression, **options)


@declare_alteration("drop-constraint", "$ penstock delta alter drop-constraint web.orders paid")
@click.argument("name", metavar="NAME")
@if_exists_option
def delta_drop_constraint(call: CommandContext, key: str, name: str, **options: Any) -> None:
    """Drop a CHECK constraint of KEY."""
    _run_alteration(call, key, "drop_constraint", name, **options)


@declare_alteration("add-columns", "$ penstock delta alter add-columns web.orders note:string")
@click.argument("columns", metavar="NAME:TYPE...", nargs=-1, required=True)
def delta_add_columns(call: CommandContext, key: str, columns: tuple[str, ...], **options: Any) -> None:
    """Add columns to KEY. They are null in existing rows."""
    _run_alteration(call, key, "add_columns", parse_columns(columns), **options)


@declare_alteration(
    "rename-column",
    """
$ penstock delta alter set web.orders delta.columnMapping.mode=name
$ penstock delta alter rename-column web.orders note remark
""",
)
@column_argument
@click.argument("name", metavar="NAME")
def delta_rename_column(call: CommandContext, key: str, column: str, name: str, **options: Any) -> None:
    """Rename a column of KEY without rewriting files. The table must use column mapping."""
    _run_alteration(call, key, "rename_column", parse_path(column), name, **options)


@declare_alteration("comment", "$ penstock delta alter comment web.orders amount 'in euros'")
@column_argument
@click.argument("text", metavar="TEXT")
def delta_comment(call: CommandContext, key: str, column: str, text: str, **options: Any) -> None:
    """Set the comment of a column of KEY. An empty text removes it."""
    _run_alteration(call, key, "comment_column", parse_path(column), text or None, **options)


@declare_alteration("move-column", "$ penstock delta alter move-column web.orders amount --after day")
@column_argument
@click.option("--after", metavar="COLUMN", help="Put it after this column. [it becomes the first]")
def delta_move_column(call: CommandContext, key: str, column: str, **options: Any) -> None:
    """Move a column of KEY behind another one, or to the front, without rewriting files."""
    _run_alteration(call, key, "move_column", parse_path(column), **options)


@declare_alteration("set-default", """$ penstock delta alter set-default web.orders customer "'nobody'" """)
@column_argument
@click.argument("expression", metavar="EXPRESSION")
def delta_set_default(call: CommandContext, key: str, column: str, expression: str, **options: Any) -> None:
    """Set the default of a column of KEY, for rows that are written without it from now on.

    The default is a literal or another SQL expression.
    """
    _run_alteration(call, key, "set_default", parse_path(column), expression, **options)


@declare_alteration("drop-default", "$ penstock delta alter drop-default web.orders customer")
@column_argument
def delta_drop_default(call: CommandContext, key: str, column: str, **options: Any) -> None:
    """Drop the default of a column of KEY."""
    _run_alteration(call, key, "drop_default", parse_path(column), **options)


@declare_alteration("set-not-null", "$ penstock delta alter set-not-null web.orders day")
@column_argument
def delta_set_not_null(call: CommandContext, key: str, column: str, **options: Any) -> None:
    """Forbid nulls in a column of KEY. Existing rows are checked first."""
    _run_alteration(call, key, "set_not_null", parse_path(column), **options)


@declare_alteration("drop-not-null", "$ penstock delta alter drop-not-null web.orders day")
@column_argument
def delta_drop_not_null(call: CommandContext, key: str, column: str, **options: Any) -> None:
    """Allow nulls in a column of KEY."""
    _run_alteration(call, key, "drop_not_null", parse_path(column), **options)


@declare_alteration(
    "widen-column",
    """
$ penstock delta alter add-columns web.orders count:integer
$ penstock delta alter set web.orders delta.enableTypeWidening=true
$ penstock delta alter widen-column web.orders count long
""",
)
@column_argument
@click.argument("kind", metavar="TYPE")
def delta_widen_column(call: CommandContext, key: str, column: str, kind: str, **options: Any) -> None:
    """Widen the type of a column of KEY without rewriting files: readers widen existing values.

    The table's property delta.enableTypeWidening must be true. Integers can become longer integers, double or
    decimal; float can become double, date timestamp_ntz, and decimals can get more digits.
    """
    _run_alteration(call, key, "widen_column", parse_path(column), kind, **options)


@declare_alteration("drop-column", "$ penstock delta alter drop-column web.orders remark")
@column_argument
def delta_drop_column(call: CommandContext, key: str, column: str, **options: Any) -> None:
    """Drop a column of KEY, which must use column mapping.

    The values stay in the files until the files are rewritten.
    """
    _run_alteration(call, key, "drop_column", parse_path(column), **options)


@declare_alteration(
    "cluster-by",
    """
$ penstock delta create web.clicks page:string seconds:double
$ penstock delta alter cluster-by web.clicks page
""",
)
@click.argument("columns", metavar="[COLUMN...]", nargs=-1)
def delta_cluster_by(call: CommandContext, key: str, columns: tuple[str, ...], **options: Any) -> None:
    """Set the clustering columns of KEY, or remove them. Engines that cluster files use these columns."""
    _run_alteration(call, key, "cluster_by", columns, **options)
