"""Tables: listing them, and putting and deleting raw contents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import click

from penstock.cli import contents
from penstock.cli.answers import ChangedCommit, ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import (
    add_base_option,
    add_key_argument,
    add_key_option,
    add_limit_option,
    add_message_option,
    add_ref_option,
    branch_option,
    declare_command,
)
from penstock.cli.commands.references import find_names_by_commit
from penstock.cli.completions import complete_key
from penstock.cli.reference_access import find_changes, read_or_none
from penstock.cli.rendering.contents import describe_location, describe_version, format_changes
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import StyledText, align_columns
from penstock.errors import InvalidContent
from penstock.lake.answers import CatalogEntry
from penstock.lake.lake import Lake
from penstock.model.commits import Commit
from penstock.model.content import AnyContent, Namespace
from penstock.model.keys import Key

LIST_LIMIT = 1000
CONTENT_FILE_MAX_BYTES = 64 * 1024 * 1024


@declare_command(
    "tables",
    prints=ListPage[CatalogEntry],
    examples="""
$ penstock tables
$ penstock tables sales --ref main~1
""",
)
@click.argument("prefix", required=False, metavar="[PREFIX]", shell_complete=complete_key)
@add_ref_option
@add_limit_option(LIST_LIMIT)
@click.option("--after", metavar="KEY", shell_complete=complete_key, help="Continue after this key.")
@pass_call
def tables(call: CommandContext, prefix: str | None, ref: str | None, limit: int, after: str | None) -> None:
    """List the tables, views and functions, all or those below the namespace PREFIX."""

    def make_row(key: Key, content: AnyContent) -> list[StyledText | str]:
        return [
            StyledText(escape_controls(str(key)), "strong"),
            content.type,
            describe_version(content),
            describe_location(content),
        ]

    list_entries(
        call,
        "tables",
        lambda content: not isinstance(content, Namespace),
        make_row,
        prefix,
        ref,
        limit,
        after,
    )


def list_entries(
    call: CommandContext,
    things: str,
    is_wanted: Callable[[AnyContent], bool],
    row: Callable[[Key, AnyContent], list[StyledText | str]],
    prefix: str | None,
    ref: str | None,
    limit: int,
    after: str | None,
) -> None:
    """Answer with a page of what is at a commit."""
    snapshot = call.open_lake().at(ref)
    entries = (entry for entry in snapshot.entries(prefix, after=after) if is_wanted(entry[1]))
    first_entries = list(islice(entries, limit + 1))
    page = first_entries[:limit]
    following = str(page[-1][0]) if len(first_entries) > limit else None

    def render_text(screen: Screen) -> Iterator[str]:
        if not page:
            yield f"no {things}" + (f" below {escape_controls(prefix)}" if prefix else "")
        yield from align_columns(screen, [row(key, content) for key, content in page], flexible=-1)
        if following is not None:
            yield screen.replace_unsupported(f"… more with --after {escape_controls(following)}")

    call.print_answer(
        lambda: ListPage.from_items((CatalogEntry(key, content) for key, content in page), following),
        render_text,
    )


def show_commit_made(call: CommandContext, lake: Lake, commit: Commit, branch: str) -> None:
    """Answer with a commit that was just made, also if no more can be read about it."""
    made = read_or_none(lambda: find_changes(lake, commit, branch))

    def render_text(screen: Screen) -> Iterator[str]:
        yield f"committed {screen.style(shorten_id(commit.id), 'id')} to {screen.style(branch, 'name')}"
        yield from format_changes(screen, made or [])

    def make_details() -> ChangedCommit:
        names = read_or_none(lambda: find_names_by_commit(lake)) or {}
        return ChangedCommit.from_commit(commit, made, names.get(commit.id, ()))

    call.print_answer(make_details, render_text)


@declare_command(
    "put",
    prints=ChangedCommit,
    examples="""
$ penstock put sales.orders --type iceberg metadata_location=s3://bucket/orders/v1.json
$ penstock put sales.orders --type iceberg metadata_location=s3://bucket/orders/v2.json --base main -m load
$ penstock put sales.old --content '{"type": "DELTA_LAKE_TABLE", "last_checkpoint": "s3://bucket/old/10"}'
$ echo '{"type": "LANCE_TABLE"}' | penstock put search.vectors --content -
""",
)
@add_key_argument
@click.argument("fields_", metavar="[NAME=VALUE]...", nargs=-1)
@click.option(
    "--type",
    "kind",
    metavar="TYPE",
    help="iceberg, view, delta, lance, files, udf, namespace, or a type's whole name such as ICEBERG_TABLE.",
)
@click.option(
    "--content",
    metavar="JSON",
    help='The content as a JSON object: {"type": …}; @FILE reads a file, - standard input.',
)
@branch_option
@add_message_option
@add_base_option
@add_key_option
@pass_call
def put(
    call: CommandContext,
    key: str,
    fields_: tuple[str, ...],
    kind: str | None,
    content: str | None,
    branch: str | None,
    message: str | None,
    base: str | None,
    idempotency_key: str | None,
) -> None:
    """Create or replace the catalog entry KEY: a --type with its fields, or the whole as JSON.

    An entry names the location and the state of a table; the command does not read the table's files. An
    existing entry is replaced and keeps its id. Missing namespaces above KEY are created.

    \b
    The fields of the types:
    iceberg    metadata_location, snapshot_id, schema_id, spec_id, sort_order_id
    view       metadata_location, version_id, schema_id, sql_text, dialect
    delta      location, metadata_location_history, checkpoint_location_history, last_checkpoint
    lance      location
    files      location
    udf        metadata_location, version_id, signature_id, sql_text, dialect
    """
    if (kind is None) == (content is None):
        raise click.UsageError("give either --type with fields, or --content")
    if content is not None and fields_:
        raise click.UsageError(f"--content cannot be used with fields, such as {fields_[0]!r}")
    if kind is not None:
        fields = contents.parse_content_fields(kind, fields_)
    else:
        fields = contents.parse_content_json(_read_content(content or ""))
    lake = call.open_lake()
    target = lake.branch(branch)
    commit = target.put(
        key, fields, message=message, author=call.commit_author, base=base, idempotency_key=idempotency_key
    )
    show_commit_made(call, lake, commit, target.name)


def _read_content(content: str) -> str | bytes:
    if content == "-":
        return _require_size(sys.stdin.buffer.read(CONTENT_FILE_MAX_BYTES + 1))
    if content.startswith("@"):
        with Path(content[1:]).open("rb") as file:
            return _require_size(file.read(CONTENT_FILE_MAX_BYTES + 1))
    return content


def _require_size(data: bytes) -> bytes:
    if len(data) > CONTENT_FILE_MAX_BYTES:
        raise InvalidContent(f"a content in JSON can have at most {CONTENT_FILE_MAX_BYTES} bytes")
    return data


@declare_command(
    "delete",
    prints=ChangedCommit,
    examples="$ penstock delete sales.old -m 'not needed any more'",
)
@add_key_argument
@branch_option
@add_message_option
@add_base_option
@add_key_option
@pass_call
def delete(
    call: CommandContext,
    key: str,
    branch: str | None,
    message: str | None,
    base: str | None,
    idempotency_key: str | None,
) -> None:
    """Delete the catalog entry KEY. The table's files stay where they are; earlier commits still name it."""
    lake = call.open_lake()
    target = lake.branch(branch)
    commit = target.drop(
        key, message=message, author=call.commit_author, base=base, idempotency_key=idempotency_key
    )
    show_commit_made(call, lake, commit, target.name)
