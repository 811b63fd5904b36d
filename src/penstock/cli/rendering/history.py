"""Commits: one by one, and as a log with a graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.cli.rendering.contents import SIGN_STYLES, describe_version, format_changes
from penstock.cli.rendering.screen import Screen, escape_controls, measure_width, pad_text
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns, fit_items_on_line
from penstock.cli.rendering.times import format_age, format_iso_time
from penstock.kernel.transaction_reads import MESSAGE_OF_READS
from penstock.lake.answers import Difference
from penstock.model.commit_graph import draw_commit_graph
from penstock.model.commits import Commit

NAMES_MAX = 3
NAMES_MAX_CELLS = 30
GRAPH_MAX_CELLS = 24


class LogRow(NamedTuple):
    """A commit of a log, and what it changed; ``None`` if what was before it has expired."""

    commit: Commit
    changes: Sequence[Difference] | None


def shorten_id(commit: str) -> str:
    """A commit id as people write it."""
    return commit[:8]


def first_message_line(commit: Commit) -> str:
    """The first line of a commit's message."""
    return escape_controls(commit.message.partition("\n")[0].strip()) or "(no message)"


def remove_read_commits(page: Sequence[LogRow], names: Mapping[str, Sequence[str]]) -> list[LogRow]:
    """A log without the commits that only note what a transaction has read; those after them follow on those
    before them."""
    skipped = {
        log_row.commit.id: log_row.commit.parents
        for log_row in page
        if log_row.changes is not None
        and not log_row.changes
        and log_row.commit.message.startswith(MESSAGE_OF_READS)
        and not names.get(log_row.commit.id)
    }

    def shown_parents(parent: str) -> tuple[str, ...]:
        while parent in skipped:
            if not skipped[parent]:
                return ()
            (parent, *_) = skipped[parent]
        return (parent,)

    return [
        LogRow(
            msgspec.structs.replace(
                log_row.commit,
                parents=tuple(
                    shown_parent
                    for parent in log_row.commit.parents
                    for shown_parent in shown_parents(parent)
                ),
            ),
            log_row.changes,
        )
        for log_row in page
        if log_row.commit.id not in skipped
    ]


def format_log(
    screen: Screen,
    page: Sequence[LogRow],
    names: Mapping[str, Sequence[str]],
    *,
    connected: bool = True,
    all_parents: bool = True,
) -> Iterator[str]:
    """A log with its graph: a line for each commit, and one for what it changed.

    ``names`` says which branches and tags are at a commit. Not ``connected`` is what a filter chose here and
    there from a history: it has dots, but no lines between them.
    """
    edges = [log_row.commit.parents if all_parents else log_row.commit.parents[:1] for log_row in page]
    rows = list(
        draw_commit_graph(
            (log_row.commit.id, parents if connected else ())
            for log_row, parents in zip(page, edges, strict=True)
        )
    )
    lines = [row.node for row in rows] if connected else ["●"] * len(page)
    below = [row.below for row in rows] if connected else [""] * len(page)
    width = min(max(map(measure_width, lines), default=1), GRAPH_MAX_CELLS)
    shown = {log_row.commit.id for log_row in page}
    texts = align_columns(
        _make_narrow_screen(screen, width + 2),
        [_format_commit_row(screen, log_row.commit, names) for log_row in page],
        flexible=2,
    )
    for log_row, node, under, text in zip(page, lines, below, texts, strict=True):
        yield screen.replace_unsupported(pad_text(node, width)) + "  " + text
        merged = log_row.commit.parents[1:] if all_parents and connected else ()
        # What a merge brought is told by the commits that it merged, where these are shown.
        is_shown = bool(merged) and shown.issuperset(merged)
        if log_row.changes and not is_shown:
            yield (
                screen.replace_unsupported(pad_text(under, width))
                + " " * 12
                + _format_changed_keys(screen, log_row.changes, width + 12)
            )


def _make_narrow_screen(screen: Screen, by: int) -> Screen:
    return screen if screen.width is None else screen._replace(width=max(screen.width - by, 40))


def _format_commit_row(
    screen: Screen, commit: Commit, names: Mapping[str, Sequence[str]]
) -> list[StyledText]:
    return [
        StyledText(shorten_id(commit.id), "id"),
        StyledText(_format_reference_names(names.get(commit.id, ())), "name"),
        StyledText(first_message_line(commit)),
        StyledText(escape_controls(commit.author), "dim"),
        StyledText(format_age(commit.time, screen.now), "dim"),
    ]


def _format_reference_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    if len(shown) > NAMES_MAX_CELLS:
        return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "")
    return shown + (f" +{len(names) - NAMES_MAX}" if len(names) > NAMES_MAX else "")


def _format_changed_keys(screen: Screen, changed: Sequence[Difference], indent: int) -> str:
    """What changed, on one line: tables, or namespaces if there is nothing else."""
    tables = [difference for difference in changed if difference.type != "NAMESPACE"] or changed
    items = [
        StyledText(f"{table.sign} {_format_key_with_version(table)}", SIGN_STYLES[table.sign])
        for table in tables
    ]
    return fit_items_on_line(screen, items, indent=indent)


def _format_key_with_version(difference: Difference) -> str:
    """A key, with the version that a table got."""
    got = describe_version(difference.after)
    return escape_controls(str(difference.key)) + (f" ({got})" if got else "")


def format_commit_page(
    screen: Screen, commit: Commit, changed: Sequence[Difference] | None, names: Collection[str]
) -> Iterator[str]:
    """One commit with all that is known about it."""
    yield f"commit {screen.style(commit.id, 'id')}"
    rows: list[Row] = [
        ["at", StyledText(", ".join(names), "name")],
        ["author", ", ".join(escape_controls(author) for author in commit.authors)],
        [
            "committer",
            escape_controls(commit.committer) if commit.authors[:1] != (commit.committer,) else "",
        ],
        ["signed off by", ", ".join(escape_controls(person) for person in commit.signed_off_by)],
        ["time", f"{format_iso_time(commit.time)} ({format_age(commit.time, screen.now)})"],
        ["parents", StyledText(", ".join(shorten_id(parent) for parent in commit.parents) or "none", "id")],
        ["key", escape_controls(commit.key)],
        *(
            [escape_controls(name), escape_controls(", ".join(values))]
            for name, values in commit.properties.items()
        ),
    ]
    filled_rows = [row for row in rows if (row[1].text if isinstance(row[1], StyledText) else row[1])]
    yield from align_columns(screen, filled_rows, indent="  ")
    yield ""
    for line in (commit.message.rstrip() or "(no message)").splitlines():
        yield f"    {escape_controls(line)}".rstrip()
    yield ""
    if changed is None:
        yield (
            "  What it changed is no longer known: the commit before it is older than the history that the "
            "lake keeps."
        )
    elif not changed:
        yield "  It changed nothing."
    else:
        yield from format_changes(screen, changed)
