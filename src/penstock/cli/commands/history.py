"""History: the log, a commit, a table at a commit, and what differs between two."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

import click

from penstock.cli.answers import ChangedCommit, ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import add_limit_option, declare_command
from penstock.cli.commands.references import find_names_by_commit
from penstock.cli.commands.row_diffs import ROWS_LIMIT, DifferingRows, show_row_diff
from penstock.cli.completions import complete_key, complete_revision
from penstock.cli.option_groups import gather_options
from penstock.cli.reference_access import find_changes, find_reference_name, read_or_none, write_revision
from penstock.cli.rendering import contents, history
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import align_columns
from penstock.cli.rendering.times import format_count, parse_moment
from penstock.errors import ReferenceNotFound
from penstock.lake.answers import CatalogEntry, Difference
from penstock.lake.lake import Lake
from penstock.model.keys import Key


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which commits of a log are shown."""

    table: str | None
    by: str | None
    since: str | None
    until: str | None
    grep: str | None


@declare_command(
    "log",
    prints=ListPage[ChangedCommit],
    examples="""
$ penstock log
$ penstock log main --table sales.orders --limit 5
$ penstock log --author ada --since 7d --grep load
""",
)
@click.argument("ref", required=False, metavar="[REVISION]", shell_complete=complete_revision)
@click.option(
    "--table",
    metavar="KEY",
    shell_complete=complete_key,
    help="Only commits that changed this table, or something below this namespace.",
)
@click.option("--author", "by", metavar="NAME", help="Only commits by this author.")
@click.option(
    "--since", metavar="TIME", help="Only commits from this time on: 2026-11-01, 2026-11-01T10:00Z, 2h."
)
@click.option("--until", metavar="TIME", help="Only commits up to this time.")
@click.option("--grep", metavar="TEXT", help="Only commits whose message contains this, in any case.")
@add_limit_option(50)
@click.option(
    "--after", metavar="COMMIT", help="Continue after this commit, the last one of the previous page."
)
@click.option(
    "--all/--first-parent",
    "all_parents",
    default=True,
    help="Show merged commits as well, or only first parents. [--all]",
)
@click.option("--reads", is_flag=True, help="Also show commits that only record the reads of a transaction.")
@pass_call
@gather_options("log_filter", LogFilter)
def log(
    call: CommandContext,
    ref: str | None,
    log_filter: LogFilter,
    limit: int,
    after: str | None,
    all_parents: bool,
    reads: bool,
) -> None:
    """Show the commits that led to REVISION, newest first, with their graph.

    REVISION is a branch, a tag, a commit id (8 digits are enough) or a walk from one: main~3 (three commits
    before), main^2 (what it merged), main*2026-11-01T00:00:00Z (as it was at that time). Without it, the
    default branch. With --json all commits are there, those of --reads too.
    """
    lake = call.open_lake()
    now = Screen.of_stream(sys.stdout).now
    log = lake.log(
        ref,
        table=log_filter.table,
        author=log_filter.by,
        since=parse_moment(log_filter.since, now) if log_filter.since else None,
        until=parse_moment(log_filter.until, now) if log_filter.until else None,
        text=log_filter.grep,
        limit=limit + 1,
        after=after,
        all_parents=all_parents,
    )
    via = find_reference_name(ref or lake.default_branch)
    page = [history.LogRow(commit, find_changes(lake, commit, via)) for commit in log[:limit]]
    following = log[limit - 1].id if len(log) > limit else None
    names = find_names_by_commit(lake)
    is_filtered = any(astuple(log_filter))

    def render_text(screen: Screen) -> Iterator[str]:
        if not page:
            yield "no commits match" if is_filtered or after else "no commits yet"
        shown = page if reads else history.remove_read_commits(page, names)
        yield from history.format_log(
            screen, shown, names, connected=not is_filtered, all_parents=all_parents
        )
        if following is not None:
            yield screen.replace_unsupported(f"… more with --after {history.shorten_id(following)}")

    call.print_answer(
        lambda: ListPage.from_items(
            (
                ChangedCommit.from_commit(log_row.commit, log_row.changes, names.get(log_row.commit.id, ()))
                for log_row in page
            ),
            following,
        ),
        render_text,
    )


@declare_command(
    "show",
    prints=ChangedCommit | CatalogEntry,
    examples="""
$ penstock show
$ penstock show main~1
$ penstock show main sales.orders
$ penstock show --table sales.orders
""",
)
@click.argument("ref", required=False, metavar="[REVISION]", shell_complete=complete_revision)
@click.argument("key", required=False, metavar="[KEY]", shell_complete=complete_key)
@click.option("--table", metavar="KEY", shell_complete=complete_key, help="The same as KEY.")
@pass_call
def show(call: CommandContext, ref: str | None, key: str | None, table: str | None) -> None:
    """Show the commit that REVISION names, or what the table KEY is at that commit.

    Without REVISION, the default branch. For a table, --json prints its key and content.
    """
    if key and table and key != table:
        raise click.UsageError(f"two tables are given: {key} and --table {table}")
    lake = call.open_lake()
    if key or table:
        _show_table(call, lake, ref or lake.default_branch, key or table or "")
        return
    try:
        commit = lake.show(ref)
    except ReferenceNotFound as missing:
        if ref is not None and "." in ref and read_or_none(lambda: lake.table(ref).exists):
            missing.message += f"\n  There is a table of that name: penstock show {lake.default_branch} {ref}"
        raise
    changes = find_changes(lake, commit, find_reference_name(ref or lake.default_branch))
    names = find_names_by_commit(lake).get(commit.id, ())
    call.print_answer(
        lambda: ChangedCommit.from_commit(commit, changes, names),
        lambda screen: history.format_commit_page(screen, commit, changes, names),
    )


def _show_table(call: CommandContext, lake: Lake, ref: str, key: str) -> None:
    snapshot = lake.at(ref)
    content = snapshot.get(key)
    if content is None:
        raise lake.key_not_found(Key.parse(key), ref)

    def render_text(screen: Screen) -> Iterator[str]:
        name = screen.style(escape_controls(key), "strong")
        yield f"{name} at {escape_controls(ref)} ({screen.style(history.shorten_id(snapshot.id), 'id')})"
        yield from align_columns(
            screen, [["type", content.type], *contents.list_fields(content)], indent="  "
        )

    call.print_answer(
        lambda: CatalogEntry(Key.parse(key), content),
        render_text,
    )


@declare_command(
    "diff",
    prints=ListPage[Difference] | DifferingRows,
    examples="""
$ penstock diff main~1 main
$ penstock diff main dev --prefix sales
$ penstock diff main dev --rows shop.items --on id
""",
)
@click.argument("before", metavar="A", shell_complete=complete_revision)
@click.argument("after", metavar="B", shell_complete=complete_revision)
@click.option(
    "--prefix", metavar="KEY", shell_complete=complete_key, help="Only this key and what is below it."
)
@click.option(
    "--rows", metavar="KEY", shell_complete=complete_key, help="The rows of this table that differ."
)
@click.option("--on", metavar="NAME,...", help="With --rows: the columns that identify a row.")
@add_limit_option(ROWS_LIMIT)
@pass_call
def diff(
    call: CommandContext,
    before: str,
    after: str,
    prefix: str | None,
    rows: str | None,
    on: str | None,
    limit: int,
) -> None:
    """Show the difference between the revisions A and B: tables added, removed and changed from A to B.

    With --rows, compare the rows of a table. With --on, rows with the same key and different values count as
    changed; without it, whole rows are compared. --limit is the number of rows to show.
    """
    lake = call.open_lake()
    if rows is not None:
        if prefix is not None:
            raise click.UsageError(
                "--prefix and --rows cannot be combined: --prefix narrows the list of tables, --rows "
                "compares the rows of one table"
            )
        show_row_diff(call, lake, before, after, rows, on, limit)
        return
    if on is not None:
        raise click.UsageError("--on names columns of the table that --rows names")
    old, new = lake.resolve(before), lake.resolve(after)
    differences = lake.diff(
        write_revision(old, find_reference_name(before)),
        write_revision(new, find_reference_name(after)),
        prefix,
    )
    call.print_answer(
        lambda: ListPage.from_items(differences),
        lambda screen: _format_differences(screen, before, after, differences),
    )


def _format_differences(
    screen: Screen, before: str, after: str, differences: Sequence[Difference]
) -> Iterator[str]:
    heading = screen.style(f"{before} → {after}", "strong")
    count = format_count(len(differences), "difference") if differences else "no difference"
    yield screen.replace_unsupported(f"{heading}   {count}")
    yield from contents.format_changes(screen, differences)
