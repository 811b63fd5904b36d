"""What notebooks show of a lake: each function gives the HTML of one thing.

What is shown is bounded, and does not count as read in a transaction. What cannot be read is told in its
place: a cell that shows something never fails for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.formats.rows.row_values import list_rows
from penstock.lake.answers import Difference
from penstock.lake.plugins import find_format
from penstock.model import html
from penstock.model.commit_graph import draw_commit_graph
from penstock.model.commits import Commit
from penstock.model.content import AnyContent, ManagedTable, Unknown

if TYPE_CHECKING:
    from penstock.formats.rows.reader import RowReader
    from penstock.lake.lake import Lake
    from penstock.lake.sql.row_diff import RowDiff
    from penstock.lake.table import Table
    from penstock.lake.transactions.transaction import Transaction
    from penstock.lake.views import NamedReference, Snapshot

ROWS_SHOWN: Final = 10
COLUMNS_SHOWN: Final = 30
ITEMS_SHOWN: Final = 20
ID_CHARS: Final = 8
CHANGE: Final = "_change_type"
TIME: Final = "%Y-%m-%d %H:%M:%S"


def _show_or_title(build: Callable[[], list[str]], title: str) -> str:
    """A block, or the title with what stands against more."""
    try:
        return html.show_block(*build())
    except PenstockError as problem:
        return html.show_block(html.show_heading(title), html.show_line(problem.message))


def show_lake(lake: Lake) -> str:
    """The lake at a glance: its branches and tags, and the tables of the default branch."""

    def build_parts() -> list[str]:
        branches = lake.branches(limit=ITEMS_SHOWN + 1)
        tags = lake.tags(limit=ITEMS_SHOWN + 1)
        snapshot = lake.at().outside_read_set
        return [
            html.show_heading("Lake", lake.url),
            html.show_table(
                (),
                [
                    ("branches", _format_names([branch.name for branch in branches])),
                    ("tags", _format_names([tag.name for tag in tags])),
                ],
            ),
            *_list_tables(snapshot, lake.default_branch),
        ]

    return _show_or_title(build_parts, f"Lake {lake.url}")


def show_reference(named: NamedReference) -> str:
    """A branch or tag: its newest commit, and its tables."""

    def build_parts() -> list[str]:
        snapshot = named.snapshot().outside_read_set
        return [
            html.show_heading(f"{type(named).__name__} {named.name}", snapshot.id[:ID_CHARS]),
            *(_commit_lines(named.log(limit=1))),
            *_list_tables(snapshot, named.name),
        ]

    return _show_or_title(build_parts, f"{type(named).__name__} {named.name}")


def show_snapshot(snapshot: Snapshot) -> str:
    """The lake at a commit: its tables."""
    title = f"Lake at {snapshot.id[:ID_CHARS]}"
    return _show_or_title(
        lambda: [html.show_heading(title), *_list_tables(snapshot.outside_read_set, snapshot.id[:ID_CHARS])],
        title,
    )


def _format_names(names: Sequence[str]) -> str:
    more = ", …" if len(names) > ITEMS_SHOWN else ""
    return (", ".join(names[:ITEMS_SHOWN]) or "none") + more


def _list_tables(snapshot: Snapshot, where: str) -> list[str]:
    rows: list[tuple[object, ...]] = []
    for key, content in snapshot.entries():
        if not isinstance(content, ManagedTable | Unknown) and content.type == "NAMESPACE":
            continue
        rows.append((key, _name_format(content)))
        if len(rows) > ITEMS_SHOWN:
            break
    if not rows:
        return [html.show_line(f"no tables at {where}")]
    more = [html.show_line(f"… more: lake.tables(ref={where!r})")] if len(rows) > ITEMS_SHOWN else []
    return [html.show_table((f"table at {where}", "format"), rows[:ITEMS_SHOWN]), *more]


def _name_format(content: AnyContent | None) -> str:
    declared = None if content is None else find_format(content)
    return declared.name if declared is not None else "" if content is None else content.type.lower()


def show_log(commits: Sequence[Commit]) -> str:
    """Commits with their graph, in which a merge leads to what was merged if that is among them."""
    shown = commits[: ITEMS_SHOWN * 5]
    ids = {commit.id for commit in shown}
    parents = [
        (commit.id, [*commit.parents[:1], *(parent for parent in commit.parents[1:] if parent in ids)])
        for commit in shown
    ]
    lines = [
        f"{row.node}  {_describe_commit(commit)}"
        for commit, row in zip(shown, draw_commit_graph(parents), strict=True)
    ]
    more = [html.show_line(f"… {len(commits) - len(shown)} more")] if len(commits) > len(shown) else []
    count = f"{len(commits)} commit{'s' * (len(commits) != 1)}"
    return html.show_block(html.show_heading("Log", count), html.show_monospace(lines), *more)


def _describe_commit(commit: Commit) -> str:
    first = commit.message.partition("\n")[0]
    return f"{commit.id[:ID_CHARS]}  {commit.time.strftime(TIME)}  {commit.author}  {first}"


def _commit_lines(commits: Sequence[Commit]) -> list[str]:
    return [html.show_line(_describe_commit(commit)) for commit in commits]


def show_differences(differences: Sequence[Difference]) -> str:
    """Which tables differ."""
    count = f"{len(differences)} difference{'s' * (len(differences) != 1)}"
    return html.show_block(
        html.show_heading("Diff", count), _list_differences(differences[: ITEMS_SHOWN * 5])
    )


def _list_differences(differences: Sequence[Difference]) -> str:
    words = {"+": "added", "-": "dropped", "~": "changed"}
    rows = [
        (
            item.sign,
            item.key,
            words[item.sign],
            _name_format(item.before if item.after is None else item.after),
        )
        for item in differences
    ]
    return html.show_table(("", "key", "what", "format"), rows)


def show_versions(versions: Sequence[Any]) -> str:
    """Versions of a Delta table: when, by whom, what was done, and the figures of it."""
    rows = [
        (
            version.version,
            "" if version.timestamp is None else version.timestamp.strftime(TIME),
            version.user,
            version.operation,
            ", ".join(f"{name} {figure}" for name, figure in version.metrics.items()),
        )
        for version in versions[: ITEMS_SHOWN * 5]
    ]
    count = f"{len(versions)} version{'s' * (len(versions) != 1)}"
    header = ("version", "time", "by", "operation", "figures")
    return html.show_block(html.show_heading("History", count), html.show_table(header, rows))


def show_table(table: Table) -> str:
    """A table: what it is, and its first rows."""
    ref = table.ref if len(table.ref) < len("0" * 64) else table.ref[:ID_CHARS]
    title = f"Table {table.key} at {ref}"
    return _show_or_title(
        lambda: [html.show_heading(title), *_preview_rows(table.outside_read_set.scan())], title
    )


def show_rows(rows: RowReader, title: str) -> str:
    """The first rows of anything that has rows."""
    return _show_or_title(lambda: [html.show_heading(title), *_preview_rows(rows)], title)


def _preview_rows(rows: RowReader, first: str = "") -> list[str]:
    """The first rows; ``first`` is the column that people look at first."""
    names = sorted(rows.arrow_schema.names, key=lambda name: name != first)
    if not names:
        return [html.show_line("no columns yet")]
    shown = names[:COLUMNS_SHOWN]
    head = rows.head(ROWS_SHOWN, shown)
    count = rows.num_rows if head.num_rows == ROWS_SHOWN else head.num_rows
    total = f"{count:,} row{'s' * (count != 1)}" if count is not None else f"the first {head.num_rows} rows"
    cut = f", {len(shown)} of {len(names)} columns" if len(shown) < len(names) else ""
    header = [f"{field.name}\n{field.type}" for field in head.schema]
    return [html.show_table(header, list_rows(head)), html.show_line(f"{total}{cut}")]


def show_row_diff(diff: RowDiff) -> str:
    """Rows that differ."""
    title = f"Rows of {diff.key} that differ"
    return _show_or_title(
        lambda: [html.show_heading(title, diff.summary), *_preview_rows(diff, CHANGE)], title
    )


def show_transaction(transaction: Transaction) -> str:
    """A transaction: how it stands, and what it has written."""

    def build_parts() -> list[str]:
        info = transaction.info
        lake = transaction._lake
        facts: list[tuple[str, Any]] = [
            ("state", info.state.value),
            ("target", info.target),
            ("base", info.base[:ID_CHARS]),
            ("isolation", info.isolation.value),
            ("expires", "" if info.expires is None else info.expires.strftime(TIME)),
        ]
        parts = [html.show_heading(f"Transaction {info.id[:ID_CHARS]}"), html.show_table((), facts)]
        if info.ended is None:
            written = lake.diff(info.base, transaction.branch)
            parts.append(_list_differences(written))
        return parts

    return _show_or_title(build_parts, f"Transaction {transaction.id[:ID_CHARS]}")
