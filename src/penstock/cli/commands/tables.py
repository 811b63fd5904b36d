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
    base_option,
    branch_option,
    command,
    key_argument,
    key_option,
    limit_option,
    message_option,
    ref_option,
)
from penstock.cli.commands.references import names_at
from penstock.cli.completions import complete_key
from penstock.cli.reference_access import changes_of, if_readable
from penstock.cli.rendering.contents import changes, place, version
from penstock.cli.rendering.history import short
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.text_columns import StyledText, columns
from penstock.errors import InvalidContent
from penstock.lake.answers import CatalogEntry
from penstock.lake.lake import Lake
from penstock.model.commits import Commit
from penstock.model.content import AnyContent, Namespace
from penstock.model.keys import Key

LIST_LIMIT = 1000
CONTENT_FILE_MAX_BYTES = 64 * 1024 * 1024


@command(
    "tables",
    prints=ListPage[CatalogEntry],
    examples="""
$ penstock tables
$ penstock tables sales --ref main~1
""",
)
@click.argument("prefix", required=False, metavar="[PREFIX]", shell_complete=complete_key)
@ref_option
@limit_option(LIST_LIMIT)
@click.option("--after", metavar="KEY", shell_complete=complete_key, help="Continue after this key.")
@pass_call
def tables(call: CommandContext, prefix: str | None, ref: str | None, limit: int, after: str | None) -> None:
    """List the tables, views and functions, all or those below the namespace PREFIX."""

    def row(key: Key, content: AnyContent) -> list[StyledText | str]:
        return [StyledText(printable(str(key)), "strong"), content.type, version(content), place(content)]

    list_entries(
        call, "tables", lambda content: not isinstance(content, Namespace), row, prefix, ref, limit, after
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
    snapshot = call.open().at(ref)
    entries = (entry for entry in snapshot.entries(prefix, after=after) if is_wanted(entry[1]))
    first_entries = list(islice(entries, limit + 1))
    page = first_entries[:limit]
    following = str(page[-1][0]) if len(first_entries) > limit else None

    def text(screen: Screen) -> Iterator[str]:
        if not page:
            yield f"no {things}" + (f" below {printable(prefix)}" if prefix else "")
        yield from columns(screen, [row(key, content) for key, content in page], flexible=-1)
        if following is not None:
            yield screen.spell(f"… more with --after {printable(following)}")

    call.answer(
        lambda: ListPage.of((CatalogEntry(key, content) for key, content in page), following),
        text,
    )


def show_commit_made(call: CommandContext, lake: Lake, commit: Commit, branch: str) -> None:
    """Answer with a commit that was just made, also if no more can be read about it."""
    made = if_readable(lambda: changes_of(lake, commit, branch))

    def text(screen: Screen) -> Iterator[str]:
        yield f"committed {screen.paint(short(commit.id), 'id')} to {screen.paint(branch, 'name')}"
        yield from changes(screen, made or [])

    def details() -> ChangedCommit:
        names = if_readable(lambda: names_at(lake)) or {}
        return ChangedCommit.build(commit, made, names.get(commit.id, ()))

    call.answer(details, text)


@command(
    "put",
    prints=ChangedCommit,
    examples="""
$ penstock put sales.orders --type iceberg metadata_location=s3://bucket/orders/v1.json
$ penstock put sales.orders --type iceberg metadata_location=s3://bucket/orders/v2.json --base main -m load
$ penstock put sales.old --content '{"type": "DELTA_LAKE_TABLE", "last_checkpoint": "s3://bucket/old/10"}'
$ echo '{"type": "LANCE_TABLE"}' | penstock put search.vectors --content -
""",
)
@key_argument
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
@message_option
@base_option
@key_option
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
        fields = contents.from_fields(kind, fields_)
    else:
        fields = contents.from_json(_read(content or ""))
    lake = call.open()
    target = lake.branch(branch)
    commit = target.put(
        key, fields, message=message, author=call.who, base=base, idempotency_key=idempotency_key
    )
    show_commit_made(call, lake, commit, target.name)


def _read(content: str) -> str | bytes:
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


@command(
    "delete",
    prints=ChangedCommit,
    examples="$ penstock delete sales.old -m 'not needed any more'",
)
@key_argument
@branch_option
@message_option
@base_option
@key_option
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
    lake = call.open()
    target = lake.branch(branch)
    commit = target.drop(key, message=message, author=call.who, base=base, idempotency_key=idempotency_key)
    show_commit_made(call, lake, commit, target.name)
