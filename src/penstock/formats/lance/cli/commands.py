"""Lance tables: looking at them, and how they come to a lake and leave it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from penstock.cli.answers import ListPage
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
from penstock.cli.completions import complete_key
from penstock.cli.rendering.backlogs import StatusLine, format_statuses
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_age, format_count, format_size
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.answers import (
    LanceBranch,
    LanceStatus,
    LanceTableInfo,
    LanceTag,
    LanceVersion,
)
from penstock.formats.lance.lake.calls import (
    GetLanceStatus,
    GetLanceTable,
    ListLanceBranches,
    ListLanceTags,
    ListLanceVersions,
    PromoteLance,
)
from penstock.formats.lance.lake.namespace_export import ExportResult
from penstock.formats.lance.lake.namespace_import import ImportResult
from penstock.formats.lance.state import is_managed
from penstock.lake.calls import Resolve
from penstock.model.keys import Key

VERSIONS_LIMIT = 100


class LanceDetails(LanceTableInfo, frozen=True, kw_only=True):
    """A Lance table, with Lance's own branches and tags of it."""

    branches: tuple[LanceBranch, ...]
    """By name."""
    tags: tuple[LanceTag, ...]
    """By name."""


@declare_group(
    "lance",
    prints=ListPage[LanceTableInfo],
    examples="""
$ penstock lance
$ penstock lance list --ref main
""",
)
@click.pass_context
def lance(ctx: click.Context) -> None:
    """List, promote, import and export Lance tables that the lake manages.

    Programs read and write them through the lake's namespace: lake.lance() in Python, and /lance of a server.
    Without a subcommand, the Lance tables of the default branch are listed.
    """
    if ctx.invoked_subcommand is None:
        _list_tables(ctx.ensure_object(CommandContext), None)


# -- looking -----------------------------------------------------------------------------------------------


@lance.command(
    "list",
    prints=ListPage[LanceTableInfo],
    examples="""
$ python -c "import lance; lance.write_dataset([{'id': 1}], 'lake/warehouse/old/a.lance')"
$ penstock lance import ./lake/warehouse/old --into archive
$ penstock lance list
""",
)
@add_ref_option
@pass_call
def lance_list(call: CommandContext, ref: str | None) -> None:
    """List the Lance tables, with their newest versions."""
    _list_tables(call, ref)


def _list_tables(call: CommandContext, ref: str | None) -> None:
    lake = call.open_lake()
    at = lake.at(ref)
    keys = [key for key, content in at.entries() if isinstance(content, LanceTable) and is_managed(content)]
    tables = [lake.do(GetLanceTable(key=key, at=at.id, via=at.via)) for key in keys]
    call.print_answer(
        lambda: ListPage.from_items(tables),
        lambda screen: _format_tables(screen, tables),
    )


def _format_tables(screen: Screen, tables: Sequence[LanceTableInfo]) -> Iterator[str]:
    if not tables:
        yield "no Lance tables. Programs create them through the lake's namespace; 'penstock lance import'"
        yield "  takes over those of a directory"
    rows: list[Row] = [
        [
            StyledText(escape_controls(str(table.key)), "strong"),
            _format_version_number(table.version),
            StyledText("private" if table.is_private else "", "warning"),
            StyledText(escape_controls(table.folder), "dim"),
        ]
        for table in tables
    ]
    yield from align_columns(screen, rows, flexible=-1)


def _format_version_number(version: int | None) -> str:
    return "declared" if version is None else f"v{version}"


@lance.command("show", prints=LanceDetails, examples="$ penstock lance show archive.a")
@add_key_argument
@add_ref_option
@pass_call
def lance_show(call: CommandContext, key: str, ref: str | None) -> None:
    """Show where the Lance table KEY is, its newest version, and Lance's own branches and tags of it."""
    lake, table = call.open_lake(), Key.parse(key)
    commit = lake.do(Resolve(revision=ref))
    where: dict[str, Any] = {"key": table, "at": commit.commit, "via": commit.name}
    about = lake.do(GetLanceTable(**where))
    branches = lake.pages(ListLanceBranches(**where), None, lambda last: {"after": last.name})
    tags = lake.pages(ListLanceTags(**where), None, lambda last: {"after": last.name})

    def render_text(screen: Screen) -> Iterator[str]:
        rows: list[Row] = [
            ["id", str(about.id)],
            ["location", escape_controls(about.location)],
            ["open at", escape_controls(about.folder) if about.folder != about.location else ""],
            ["version", _format_version_number(about.version)],
            ["private", "yes, its versions are visible only through the lake" if about.is_private else ""],
            *(
                [escape_controls(name), escape_controls(value)]
                for name, value in sorted(about.properties.items())
            ),
            *(
                [f"branch {branch.name}", f"from v{branch.version} of {branch.parent or 'main'}"]
                for branch in branches
            ),
            *([f"tag {tag.name}", f"v{tag.version} of {tag.branch or 'main'}"] for tag in tags),
        ]
        yield screen.style(escape_controls(str(about.key)), "strong")
        yield from align_columns(screen, [row for row in rows if row[1]], indent="  ", flexible=-1)

    def make_details() -> LanceDetails:
        return LanceDetails(**msgspec.structs.asdict(about), branches=tuple(branches), tags=tuple(tags))

    call.print_answer(make_details, render_text)


@lance.command(
    "versions",
    prints=ListPage[LanceVersion],
    examples="$ penstock lance versions archive.a -n 10",
)
@add_key_argument
@add_ref_option
@click.option(
    "--of", "branch", metavar="NAME", default="", help="A branch that the Lance table itself has. [main]"
)
@click.option("--below", type=int, metavar="VERSION", help="Continue below this version.")
@add_limit_option(VERSIONS_LIMIT)
@pass_call
def lance_versions(
    call: CommandContext, key: str, ref: str | None, branch: str, below: int | None, limit: int
) -> None:
    """List the versions of the Lance table KEY, newest first: what made each, and when."""
    lake, table = call.open_lake(), Key.parse(key)
    commit = lake.do(Resolve(revision=ref))
    query = ListLanceVersions(
        key=table, at=commit.commit, via=commit.name, branch=branch, below=below, limit=limit
    )
    versions = lake.do(query)
    following = versions[-1].version if len(versions) == limit and versions[-1].version > 1 else None

    def render_text(screen: Screen) -> Iterator[str]:
        if not versions:
            yield (f"{escape_controls(key)} has no version yet" if below is None else "no more versions")
        yield from align_columns(screen, [_format_version_row(screen, version) for version in versions])
        if following is not None:
            yield screen.style(f"  more with --below {following}", "dim")

    call.print_answer(
        lambda: ListPage.from_items(versions, None if following is None else str(following)),
        render_text,
    )


def _format_version_row(screen: Screen, version: LanceVersion) -> Row:
    when = "" if version.created is None else format_age(version.created, screen.now)
    return [
        StyledText(f"v{version.version}", "strong"),
        version.operation,
        when,
        StyledText(format_size(version.size), "dim"),
    ]


# -- where every reader of Lance looks ---------------------------------------------------------------------


@lance.command(
    "status",
    prints=ListPage[LanceStatus],
    examples="$ penstock lance status\n$ penstock lance status archive.a --json",
)
@click.argument("key", required=False, metavar="[KEY]", shell_complete=complete_key)
@pass_call
def lance_status(call: CommandContext, key: str | None) -> None:
    """Show how far Lance tables are promoted, and whether they are in sync.

    For all tables of the default branch, or for KEY: the number of versions that are not promoted yet, and
    whether the folder has versions that the lake does not know. A problem is shown below its table, with what
    to do.
    """
    lake = call.open_lake()
    at = lake.at()
    tables = [key for key, content in at.entries() if isinstance(content, LanceTable) and is_managed(content)]
    statuses_found = [
        lake.do(GetLanceStatus(key=key)) for key in (tables if key is None else (Key.parse(key),))
    ]
    call.print_answer(
        lambda: ListPage.from_items(statuses_found),
        lambda screen: _format_statuses(screen, statuses_found),
    )


def _format_statuses(screen: Screen, table_statuses: Sequence[LanceStatus]) -> Iterator[str]:
    lines = [
        StatusLine(
            table,
            version=_format_version_number(table.version),
            done="" if table.version is None else "promoted",
            to_do="promote",
        )
        for table in table_statuses
    ]
    return format_statuses(screen, lines, "no Lance tables")


@lance.command("promote", prints=ListPage[LanceTableInfo], examples="$ penstock lance promote archive.a")
@click.argument("key", required=False, metavar="[KEY]", shell_complete=complete_key)
@branch_option
@pass_call
def lance_promote(call: CommandContext, key: str | None, branch: str | None) -> None:
    """Promote committed versions to where Lance looks for them: of all tables of a branch, or of KEY.

    The lake promotes by itself, right after each commit; use this command after an interruption or a failure
    of storage. Private tables are left out.
    """
    lake = call.open_lake(catch_up=True)
    at = lake.at(branch)
    tables = [key for key, content in at.entries() if isinstance(content, LanceTable) and is_managed(content)]
    chosen = tables if key is None else [Key.parse(key)]
    found_tables = []
    for table_key in chosen:
        about = lake.do(GetLanceTable(key=table_key, at=branch or lake.default_branch))
        if key is not None or (not about.is_private and about.version is not None):
            found_tables.append(lake.do(PromoteLance(key=table_key, branch=branch)))
    call.print_answer(
        lambda: ListPage.from_items(found_tables),
        lambda screen: _format_tables(screen, found_tables) if found_tables else iter(["nothing to promote"]),
    )


# -- in and out --------------------------------------------------------------------------------------------

dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")


@lance.command(
    "import",
    prints=ImportResult,
    examples="$ penstock lance import ./lake/warehouse/old --into again --dry-run",
)
@click.argument("root", metavar="ROOT")
@click.option("--into", "namespace", metavar="NAMESPACE", help="The namespace for the tables. [none]")
@dry_run_option
@add_message_option
@add_key_option
@pass_call
def lance_import(
    call: CommandContext,
    root: str,
    namespace: str | None,
    dry_run: bool,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Import the tables of the Lance directory namespace at ROOT, all of them in one commit.

    The tables stay where they are, with all their versions, and must lie below a root of the lake. From now
    on the lake decides their commits: other programs must not write to them directly. If one table cannot be
    imported, none is, and the reasons are listed.
    """
    imported = call.open_lake().import_lance(
        root,
        namespace,
        dry_run=dry_run,
        message=message,
        author=call.commit_author,
        idempotency_key=idempotency_key,
    )

    def render_text(screen: Screen) -> Iterator[str]:
        count = format_count(len(imported.tables), "table")
        if dry_run or not imported.tables:
            yield f"would import {count} from {escape_controls(imported.root)}"
        else:
            commit = screen.style(shorten_id(imported.commit), "id")
            yield f"imported {count} from {escape_controls(imported.root)} (commit {commit})"
        rows: list[Row] = [
            [
                StyledText(escape_controls(str(table.key)), "strong"),
                "declared" if table.is_declared else "",
                StyledText(escape_controls(table.location), "dim"),
            ]
            for table in imported.tables
        ]
        yield from align_columns(screen, rows, indent="  ", flexible=-1)

    call.print_answer(
        lambda: imported,
        render_text,
    )


@lance.command(
    "export",
    prints=ExportResult,
    examples="$ penstock lance export ./lake/warehouse --dry-run",
)
@click.argument("root", metavar="ROOT")
@click.option("--ref", metavar="BRANCH", help="The branch whose tables are listed. [the default branch]")
@dry_run_option
@pass_call
def lance_export(call: CommandContext, root: str, ref: str | None, dry_run: bool) -> None:
    """Export the Lance tables of a branch: make ROOT a directory namespace that has all of them.

    ROOT is a folder above the tables, such as the warehouse. The tables stay where they are. A program that
    opens ROOT as a Lance directory namespace, with dir_listing_enabled=false, reads them without the lake.
    Run again, the command adds new tables.
    """
    exported = call.open_lake(catch_up=True).export_lance(root, ref, dry_run=dry_run)

    def render_text(screen: Screen) -> Iterator[str]:
        word = "would list" if dry_run else "listed"
        unchanged = f", {exported.unchanged:,} of them unchanged" if exported.unchanged else ""
        tables = format_count(len(exported.tables), "table")
        yield f"{word} {tables} at {escape_controls(exported.root)}{unchanged}"
        rows: list[Row] = [
            [
                StyledText(escape_controls(str(table.key)), "strong"),
                _format_version_number(table.version),
                StyledText(escape_controls(table.folder), "dim"),
            ]
            for table in exported.tables
        ]
        yield from align_columns(screen, rows, indent="  ", flexible=-1)

    call.print_answer(
        lambda: exported,
        render_text,
    )
