"""Namespaces: places for tables and further namespaces."""

from __future__ import annotations

import click

from penstock.cli.answers import ChangedCommit, ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import (
    add_key_argument,
    add_key_option,
    add_limit_option,
    add_message_option,
    add_ref_option,
    branch_option,
    declare_group,
)
from penstock.cli.commands.tables import LIST_LIMIT, list_entries, show_commit_made
from penstock.cli.completions import complete_key
from penstock.cli.rendering.contents import list_fields
from penstock.cli.rendering.screen import escape_controls
from penstock.cli.rendering.text_columns import StyledText
from penstock.errors import InvalidRequest, KeyNotFound
from penstock.lake.answers import CatalogEntry
from penstock.model.content import AnyContent, Namespace
from penstock.model.keys import Key


@declare_group(
    "namespace",
    prints=ListPage[CatalogEntry],
    examples="$ penstock namespace\n$ penstock namespace create sales.europe --property owner=ada",
)
@click.pass_context
def namespace(ctx: click.Context) -> None:
    """List, create and delete namespaces.

    A table needs the namespaces above it; 'put' creates them. Without a subcommand, namespaces are listed.
    """
    if ctx.invoked_subcommand is None:
        _list_namespaces(ctx.ensure_object(CommandContext), None, None, LIST_LIMIT, None)


def _list_namespaces(
    call: CommandContext, prefix: str | None, ref: str | None, limit: int, after: str | None
) -> None:
    def make_row(key: Key, content: AnyContent) -> list[StyledText | str]:
        properties = dict(list_fields(content)).get("properties", "")
        return [StyledText(escape_controls(str(key)), "strong"), "", properties]

    list_entries(
        call,
        "namespaces",
        lambda content: isinstance(content, Namespace),
        make_row,
        prefix,
        ref,
        limit,
        after,
    )


@namespace.command(
    "list", prints=ListPage[CatalogEntry], examples="$ penstock namespace list sales --ref main~1"
)
@click.argument("prefix", required=False, metavar="[PREFIX]", shell_complete=complete_key)
@add_ref_option
@add_limit_option(LIST_LIMIT)
@click.option("--after", metavar="KEY", shell_complete=complete_key, help="Continue after this key.")
@pass_call
def namespace_list(
    call: CommandContext, prefix: str | None, ref: str | None, limit: int, after: str | None
) -> None:
    """List namespaces, all or PREFIX and those below it."""
    _list_namespaces(call, prefix, ref, limit, after)


@namespace.command(
    "create",
    prints=ChangedCommit,
    examples="$ penstock namespace create marketing --property owner=ada --property tier=gold",
)
@add_key_argument
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; repeatable.")
@branch_option
@add_message_option
@add_key_option
@pass_call
def namespace_create(
    call: CommandContext,
    key: str,
    properties: tuple[str, ...],
    branch: str | None,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Create the namespace KEY, which must not exist, and those above it as needed."""
    pairs = _parse_properties(properties)
    lake = call.open_lake()
    target = lake.branch(branch)
    options = {} if message is None else {"message": message}
    commit = target.create_namespace(
        key, pairs, author=call.commit_author, idempotency_key=idempotency_key, **options
    )
    show_commit_made(call, lake, commit, target.name)


def _parse_properties(properties: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in properties:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
        pairs[name] = value
    return pairs


@namespace.command("delete", prints=ChangedCommit, examples="$ penstock namespace delete marketing")
@add_key_argument
@branch_option
@add_message_option
@pass_call
def namespace_delete(call: CommandContext, key: str, branch: str | None, message: str | None) -> None:
    """Delete the namespace KEY, which must be empty."""
    lake = call.open_lake()
    target = lake.branch(branch)
    snapshot = target.snapshot()
    content = snapshot.get(key)
    if content is None:
        raise KeyNotFound(f"there is no namespace '{key}' on '{target.name}'", key=key, ref=target.name)
    if not isinstance(content, Namespace):
        raise InvalidRequest(
            f"'{key}' is {content.type_in_words}, not a namespace; use 'penstock delete {key}'", key=key
        )
    text = f"drop namespace {key}" if message is None else message
    commit = target.drop(key, message=text, author=call.commit_author, base=snapshot.id)
    show_commit_made(call, lake, commit, target.name)
