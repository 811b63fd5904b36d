"""Branches and tags: listing, creating, moving, deleting, and what happened to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import command, group, if_head_option, key_option, limit_option
from penstock.cli.completions import complete_branch, complete_revision, complete_tag
from penstock.cli.reference_access import commit_of
from penstock.cli.rendering.history import short, title
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.text_columns import StyledText, columns
from penstock.cli.rendering.times import ago
from penstock.lake.answers import LogLine
from penstock.lake.calls import AssignReference, CreateReference, DeleteReference
from penstock.lake.lake import Lake
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.references import Kind, Reference

LIST_LIMIT = 100
NAMES_READ_MAX = 1000


def names_at(lake: Lake) -> dict[str, list[str]]:
    """Which branches and tags are at a commit; where there are thousands, the first of each kind."""
    names: dict[str, list[str]] = {}
    for kind in (Kind.BRANCH, Kind.TAG):
        for reference in lake.references(kind, limit=NAMES_READ_MAX):
            names.setdefault(reference.id, []).append(reference.name)
    return names


def _list(call: CommandContext, kind: Kind, prefix: str, limit: int, after: str) -> None:
    lake = call.open()
    references = lake.references(kind, prefix, after, limit + 1)
    page, more = references[:limit], len(references) > limit
    following = page[-1].name if more else None
    call.answer(
        lambda: ListPage.of(page, following),
        lambda screen: _format_references(screen, lake, kind, page, following),
    )


def _format_references(
    screen: Screen, lake: Lake, kind: Kind, page: Sequence[Reference], following: str | None
) -> Iterator[str]:
    if not page:
        yield f"no {'branches' if kind is Kind.BRANCH else 'tags'}"
    yield from columns(
        screen, [_format_reference_row(screen, lake, reference) for reference in page], flexible=3
    )
    if following is not None:
        yield screen.spell(f"… more with --after {following}")


def _format_reference_row(screen: Screen, lake: Lake, reference: Reference) -> list[StyledText | str]:
    mark = "*" if reference.name == lake.default_branch else " "
    name = (
        StyledText(f"{mark} {reference.name}", "name")
        if reference.kind is Kind.BRANCH
        else StyledText(reference.name, "name")
    )
    if reference.id == EMPTY_COMMIT_ID:
        return [name, StyledText("empty", "dim"), "", ""]
    commit = commit_of(lake, reference.id, reference.name)
    return [
        name,
        StyledText(short(reference.id), "id"),
        StyledText(ago(commit.time, screen.now), "dim"),
        title(commit),
    ]


def _answer_reference(call: CommandContext, reference: Reference, subject: str) -> None:
    where = "empty" if reference.id == EMPTY_COMMIT_ID else f"at {short(reference.id)}"
    call.answer(
        lambda: reference,
        lambda screen: [f"{subject} {reference.kind.value} {screen.paint(reference.name, 'name')} {where}"],
    )


def _create(call: CommandContext, kind: Kind, name: str, at: str | None, key: str | None) -> None:
    lake = call.open()
    request = CreateReference(name=name, kind=kind, at=at, who=lake.author, idempotency_key=key)
    _answer_reference(call, lake.do(request), "created")


def _assign(
    call: CommandContext, kind: Kind, name: str, to: str, expected: str | None, key: str | None
) -> None:
    lake = call.open()
    request = AssignReference(
        name=name, kind=kind, to=to, expected=expected, who=lake.author, idempotency_key=key
    )
    _answer_reference(call, lake.do(request), "assigned")


def _delete(call: CommandContext, kind: Kind, name: str, expected: str | None, key: str | None) -> None:
    lake = call.open()
    request = DeleteReference(name=name, kind=kind, expected=expected, who=lake.author, idempotency_key=key)
    deleted = lake.do(request)
    call.answer(
        lambda: deleted,
        lambda screen: [
            f"deleted {kind.value} {screen.paint(name, 'name')}",
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


@group(
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
        _list(ctx.ensure_object(CommandContext), Kind.BRANCH, "", LIST_LIMIT, "")


@branch.command(
    "list",
    prints=ListPage[Reference],
    examples="$ penstock branch list\n$ penstock branch list feature/ --limit 10",
)
@prefix_argument
@limit_option(LIST_LIMIT)
@after_option
@pass_call
def branch_list(call: CommandContext, prefix: str, limit: int, after: str) -> None:
    """List branches, all or those whose name begins with PREFIX."""
    _list(call, Kind.BRANCH, prefix, limit, after)


@branch.command(
    "create",
    prints=Reference,
    examples="$ penstock branch create feature/returns\n$ penstock branch create old --at main~1",
)
@click.argument("name")
@at_option
@key_option
@pass_call
def branch_create(call: CommandContext, name: str, at: str | None, idempotency_key: str | None) -> None:
    """Create the branch NAME.

    Its cost does not depend on the size of the lake.
    """
    _create(call, Kind.BRANCH, name, at, idempotency_key)


@branch.command(
    "assign", prints=Reference, examples="$ penstock branch assign old --to main --if-head main~1"
)
@click.argument("name", shell_complete=complete_branch)
@to_option
@if_head_option("the branch")
@key_option
@pass_call
def branch_assign(
    call: CommandContext, name: str, to: str, if_head: str | None, idempotency_key: str | None
) -> None:
    """Set the branch NAME to another commit.

    Its previous commit stays in its reflog, and can be assigned back.
    """
    _assign(call, Kind.BRANCH, name, to, if_head, idempotency_key)


@branch.command("delete", prints=Reference, examples="$ penstock branch delete old")
@click.argument("name", shell_complete=complete_branch)
@if_head_option("the branch")
@key_option
@pass_call
def branch_delete(call: CommandContext, name: str, if_head: str | None, idempotency_key: str | None) -> None:
    """Delete the branch NAME. The default branch cannot be deleted."""
    _delete(call, Kind.BRANCH, name, if_head, idempotency_key)


# -- tags --------------------------------------------------------------------------------------------------


@group("tag", prints=ListPage[Reference], examples="$ penstock tag create v1\n$ penstock tag")
@click.pass_context
def tag(ctx: click.Context) -> None:
    """List, create, assign and delete tags.

    A tag is a fixed name for a commit. Without a subcommand, tags are listed.
    """
    if ctx.invoked_subcommand is None:
        _list(ctx.ensure_object(CommandContext), Kind.TAG, "", LIST_LIMIT, "")


@tag.command("list", prints=ListPage[Reference], examples="$ penstock tag list v")
@prefix_argument
@limit_option(LIST_LIMIT)
@after_option
@pass_call
def tag_list(call: CommandContext, prefix: str, limit: int, after: str) -> None:
    """List tags, all or those whose name begins with PREFIX."""
    _list(call, Kind.TAG, prefix, limit, after)


@tag.command("create", prints=Reference, examples="$ penstock tag create before-returns --at main~1")
@click.argument("name")
@at_option
@key_option
@pass_call
def tag_create(call: CommandContext, name: str, at: str | None, idempotency_key: str | None) -> None:
    """Create the tag NAME."""
    _create(call, Kind.TAG, name, at, idempotency_key)


@tag.command("assign", prints=Reference, examples="$ penstock tag assign before-returns --to main")
@click.argument("name", shell_complete=complete_tag)
@to_option
@if_head_option("the tag")
@key_option
@pass_call
def tag_assign(
    call: CommandContext, name: str, to: str, if_head: str | None, idempotency_key: str | None
) -> None:
    """Set the tag NAME to another commit."""
    _assign(call, Kind.TAG, name, to, if_head, idempotency_key)


@tag.command("delete", prints=Reference, examples="$ penstock tag delete before-returns")
@click.argument("name", shell_complete=complete_tag)
@if_head_option("the tag")
@key_option
@pass_call
def tag_delete(call: CommandContext, name: str, if_head: str | None, idempotency_key: str | None) -> None:
    """Delete the tag NAME. Its commit stays as long as another branch or tag reaches it."""
    _delete(call, Kind.TAG, name, if_head, idempotency_key)


# -- what happened to them ---------------------------------------------------------------------------------


@command(
    "reflog",
    prints=ListPage[LogLine | str],
    examples="""
$ penstock reflog
$ penstock reflog dev --limit 5
$ penstock reflog --deleted
""",
)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=complete_revision)
@limit_option(50)
@click.option("--deleted", is_flag=True, help="List deleted branches and tags whose log can still be read.")
@pass_call
def reflog(call: CommandContext, name: str | None, limit: int, deleted: bool) -> None:
    """Show every change of the branch or tag NAME, newest first.

    The log of a deleted branch or tag is kept for a while. Without NAME, the default branch is shown.
    """
    if deleted and name is not None:
        raise click.UsageError("--deleted cannot be used with a NAME")
    lake = call.open()
    if deleted:
        gone = lake.deleted()
        call.answer(
            lambda: ListPage.of(gone),
            lambda _: gone or ["no deleted branches or tags"],
        )
        return
    lines = lake.reflog(name, limit=limit)
    call.answer(
        lambda: ListPage.of(lines),
        lambda screen: columns(screen, [_format_event_row(screen, line) for line in lines]),
    )


def _format_event_row(screen: Screen, line: LogLine) -> list[StyledText | str]:
    moved = short(line.after) if line.event == "create" else f"{short(line.before)} → {short(line.after)}"
    if line.event in ("delete", "seal"):
        moved = f"was at {short(line.before)}"
    batch = f"{line.requests} requests" if line.requests > 1 else ""
    return [
        StyledText(f"#{line.position}", "dim"),
        line.event,
        StyledText(moved.replace(short(EMPTY_COMMIT_ID), "empty"), "id"),
        StyledText(printable(line.who), "dim"),
        StyledText(ago(line.time, screen.now), "dim"),
        batch,
    ]
