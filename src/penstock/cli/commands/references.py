"""Branches and tags: listing, creating, moving, deleting, and what happened to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import (
    add_if_head_option,
    add_key_option,
    add_limit_option,
    declare_command,
    declare_group,
)
from penstock.cli.completions import complete_branch, complete_revision, complete_tag
from penstock.cli.reference_access import get_commit
from penstock.cli.rendering.history import first_message_line, shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import StyledText, align_columns
from penstock.cli.rendering.times import format_age
from penstock.lake.answers import LogLine
from penstock.lake.calls import AssignReference, CreateReference, DeleteReference
from penstock.lake.lake import Lake
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.references import Kind, Reference

LIST_LIMIT = 100
NAMES_READ_MAX = 1000


def find_names_by_commit(lake: Lake) -> dict[str, list[str]]:
    """Which branches and tags are at a commit; where there are thousands, the first of each kind."""
    names: dict[str, list[str]] = {}
    for kind in (Kind.BRANCH, Kind.TAG):
        for reference in lake.references(kind, limit=NAMES_READ_MAX):
            names.setdefault(reference.id, []).append(reference.name)
    return names


def _list_references(call: CommandContext, kind: Kind, prefix: str, limit: int, after: str) -> None:
    lake = call.open_lake()
    references = lake.references(kind, prefix, after, limit + 1)
    page, more = references[:limit], len(references) > limit
    following = page[-1].name if more else None
    call.print_answer(
        lambda: ListPage.from_items(page, following),
        lambda screen: _format_references(screen, lake, kind, page, following),
    )


def _format_references(
    screen: Screen, lake: Lake, kind: Kind, page: Sequence[Reference], following: str | None
) -> Iterator[str]:
    if not page:
        yield f"no {'branches' if kind is Kind.BRANCH else 'tags'}"
    yield from align_columns(
        screen, [_format_reference_row(screen, lake, reference) for reference in page], flexible=3
    )
    if following is not None:
        yield screen.replace_unsupported(f"… more with --after {following}")


def _format_reference_row(screen: Screen, lake: Lake, reference: Reference) -> list[StyledText | str]:
    mark = "*" if reference.name == lake.default_branch else " "
    name = (
        StyledText(f"{mark} {reference.name}", "name")
        if reference.kind is Kind.BRANCH
        else StyledText(reference.name, "name")
    )
    if reference.id == EMPTY_COMMIT_ID:
        return [name, StyledText("empty", "dim"), "", ""]
    commit = get_commit(lake, reference.id, reference.name)
    return [
        name,
        StyledText(shorten_id(reference.id), "id"),
        StyledText(format_age(commit.time, screen.now), "dim"),
        first_message_line(commit),
    ]


def _answer_reference(call: CommandContext, reference: Reference, subject: str) -> None:
    where = "empty" if reference.id == EMPTY_COMMIT_ID else f"at {shorten_id(reference.id)}"
    call.print_answer(
        lambda: reference,
        lambda screen: [f"{subject} {reference.kind.value} {screen.style(reference.name, 'name')} {where}"],
    )


def _create_reference(call: CommandContext, kind: Kind, name: str, at: str | None, key: str | None) -> None:
    lake = call.open_lake()
    request = CreateReference(name=name, kind=kind, at=at, who=lake.author, idempotency_key=key)
    _answer_reference(call, lake.do(request), "created")


def _assign_reference(
    call: CommandContext, kind: Kind, name: str, to: str, expected: str | None, key: str | None
) -> None:
    lake = call.open_lake()
    request = AssignReference(
        name=name, kind=kind, to=to, expected=expected, who=lake.author, idempotency_key=key
    )
    _answer_reference(call, lake.do(request), "assigned")


def _delete_reference(
    call: CommandContext, kind: Kind, name: str, expected: str | None, key: str | None
) -> None:
    lake = call.open_lake()
    request = DeleteReference(name=name, kind=kind, expected=expected, who=lake.author, idempotency_key=key)
    deleted = lake.do(request)
    call.print_answer(
        lambda: deleted,
        lambda screen: [
            f"deleted {kind.value} {screen.style(name, 'name')}",
            f"  What happened to it can still be read: penstock reflog {name}",
        ],
    )


prefix_argument = click.argument("prefix", default="", metavar="[PREFIX]")
after_option = click.option("--after", default="", metavar="NAME", help="Continue after this name.")
at_option = click.option(
    "--at",
    metavar="REVISION",
    shell_complete=complete_revision,
    help="The commit to start at. [the default branch]",
)
to_option = click.option(
    "--to",
    required=True,
    metavar="REVISION",
    shell_complete=complete_revision,
    help="The commit to assign it to.",
)


# -- branches ----------------------------------------------------------------------------------------------


@declare_group(
    "branch",
    prints=ListPage[Reference],
    examples="$ penstock branch\n$ penstock branch create feature/orders",
)
@click.pass_context
def branch(ctx: click.Context) -> None:
    """List, create, assign and delete branches.

    A branch is a name for its newest commit. Without a subcommand, branches are listed; the default branch
    is marked with a star.
    """
    if ctx.invoked_subcommand is None:
        _list_references(ctx.ensure_object(CommandContext), Kind.BRANCH, "", LIST_LIMIT, "")


@branch.command(
    "list",
    prints=ListPage[Reference],
    examples="$ penstock branch list\n$ penstock branch list feature/ --limit 10",
)
@prefix_argument
@add_limit_option(LIST_LIMIT)
@after_option
@pass_call
def branch_list(call: CommandContext, prefix: str, limit: int, after: str) -> None:
    """List branches, all or those whose name begins with PREFIX."""
    _list_references(call, Kind.BRANCH, prefix, limit, after)


@branch.command(
    "create",
    prints=Reference,
    examples="$ penstock branch create feature/returns\n$ penstock branch create old --at main~1",
)
@click.argument("name")
@at_option
@add_key_option
@pass_call
def branch_create(call: CommandContext, name: str, at: str | None, idempotency_key: str | None) -> None:
    """Create the branch NAME.

    Its cost does not depend on the size of the lake.
    """
    _create_reference(call, Kind.BRANCH, name, at, idempotency_key)


@branch.command(
    "assign", prints=Reference, examples="$ penstock branch assign old --to main --if-head main~1"
)
@click.argument("name", shell_complete=complete_branch)
@to_option
@add_if_head_option("the branch")
@add_key_option
@pass_call
def branch_assign(
    call: CommandContext, name: str, to: str, if_head: str | None, idempotency_key: str | None
) -> None:
    """Set the branch NAME to another commit.

    Its previous commit stays in its reflog, and can be assigned back.
    """
    _assign_reference(call, Kind.BRANCH, name, to, if_head, idempotency_key)


@branch.command("delete", prints=Reference, examples="$ penstock branch delete old")
@click.argument("name", shell_complete=complete_branch)
@add_if_head_option("the branch")
@add_key_option
@pass_call
def branch_delete(call: CommandContext, name: str, if_head: str | None, idempotency_key: str | None) -> None:
    """Delete the branch NAME. The default branch cannot be deleted."""
    _delete_reference(call, Kind.BRANCH, name, if_head, idempotency_key)


# -- tags --------------------------------------------------------------------------------------------------


@declare_group("tag", prints=ListPage[Reference], examples="$ penstock tag create v1\n$ penstock tag")
@click.pass_context
def tag(ctx: click.Context) -> None:
    """List, create, assign and delete tags.

    A tag is a fixed name for a commit. Without a subcommand, tags are listed.
    """
    if ctx.invoked_subcommand is None:
        _list_references(ctx.ensure_object(CommandContext), Kind.TAG, "", LIST_LIMIT, "")


@tag.command("list", prints=ListPage[Reference], examples="$ penstock tag list v")
@prefix_argument
@add_limit_option(LIST_LIMIT)
@after_option
@pass_call
def tag_list(call: CommandContext, prefix: str, limit: int, after: str) -> None:
    """List tags, all or those whose name begins with PREFIX."""
    _list_references(call, Kind.TAG, prefix, limit, after)


@tag.command("create", prints=Reference, examples="$ penstock tag create before-returns --at main~1")
@click.argument("name")
@at_option
@add_key_option
@pass_call
def tag_create(call: CommandContext, name: str, at: str | None, idempotency_key: str | None) -> None:
    """Create the tag NAME."""
    _create_reference(call, Kind.TAG, name, at, idempotency_key)


@tag.command("assign", prints=Reference, examples="$ penstock tag assign before-returns --to main")
@click.argument("name", shell_complete=complete_tag)
@to_option
@add_if_head_option("the tag")
@add_key_option
@pass_call
def tag_assign(
    call: CommandContext, name: str, to: str, if_head: str | None, idempotency_key: str | None
) -> None:
    """Set the tag NAME to another commit."""
    _assign_reference(call, Kind.TAG, name, to, if_head, idempotency_key)


@tag.command("delete", prints=Reference, examples="$ penstock tag delete before-returns")
@click.argument("name", shell_complete=complete_tag)
@add_if_head_option("the tag")
@add_key_option
@pass_call
def tag_delete(call: CommandContext, name: str, if_head: str | None, idempotency_key: str | None) -> None:
    """Delete the tag NAME. Its commit stays as long as another branch or tag reaches it."""
    _delete_reference(call, Kind.TAG, name, if_head, idempotency_key)


# -- what happened to them ---------------------------------------------------------------------------------


@declare_command(
    "reflog",
    prints=ListPage[LogLine | str],
    examples="""
$ penstock reflog
$ penstock reflog dev --limit 5
$ penstock reflog --deleted
""",
)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=complete_revision)
@add_limit_option(50)
@click.option("--deleted", is_flag=True, help="List deleted branches and tags whose log can still be read.")
@pass_call
def reflog(call: CommandContext, name: str | None, limit: int, deleted: bool) -> None:
    """Show every change of the branch or tag NAME, newest first.

    The log of a deleted branch or tag is kept for a while. Without NAME, the default branch is shown.
    """
    if deleted and name is not None:
        raise click.UsageError("--deleted cannot be used with a NAME")
    lake = call.open_lake()
    if deleted:
        gone = lake.deleted()
        call.print_answer(
            lambda: ListPage.from_items(gone),
            lambda _: gone or ["no deleted branches or tags"],
        )
        return
    lines = lake.reflog(name, limit=limit)
    call.print_answer(
        lambda: ListPage.from_items(lines),
        lambda screen: align_columns(screen, [_format_event_row(screen, line) for line in lines]),
    )


def _format_event_row(screen: Screen, line: LogLine) -> list[StyledText | str]:
    moved = (
        shorten_id(line.after)
        if line.event == "create"
        else f"{shorten_id(line.before)} → {shorten_id(line.after)}"
    )
    if line.event in ("delete", "seal"):
        moved = f"was at {shorten_id(line.before)}"
    batch = f"{line.requests} requests" if line.requests > 1 else ""
    return [
        StyledText(f"#{line.position}", "dim"),
        line.event,
        StyledText(moved.replace(shorten_id(EMPTY_COMMIT_ID), "empty"), "id"),
        StyledText(escape_controls(line.who), "dim"),
        StyledText(format_age(line.time, screen.now), "dim"),
        batch,
    ]
