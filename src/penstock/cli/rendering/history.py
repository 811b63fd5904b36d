"""Commits: one by one, and as a log with a graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.cli.rendering.columns import Cell, Row, columns, flow
from penstock.cli.rendering.contents import SIGN_STYLES, changes, version
from penstock.cli.rendering.graph import graph
from penstock.cli.rendering.screen import Screen, cells, pad, printable
from penstock.cli.rendering.times import ago, iso
from penstock.kernel.reads import MESSAGE_OF_READS
from penstock.lake.answers import Difference
from penstock.model.commits import Commit

NAMES_MAX = 3
NAMES_MAX_CELLS = 30
GRAPH_MAX_CELLS = 24


class Logged(NamedTuple):
    """A commit of a log, and what it changed; ``None`` if what was before it has expired."""

    commit: Commit
    changes: Sequence[Difference] | None


def short(commit: str) -> str:
    """A commit id as people write it."""
    return commit[:8]


def title(commit: Commit) -> str:
    """The first line of a commit's message."""
    return printable(commit.message.partition("\n")[0].strip()) or "(no message)"


def without_reads(page: Sequence[Logged], names: Mapping[str, Sequence[str]]) -> list[Logged]:
    """A log without the commits that only note what a transaction has read; those after them follow on those
    before them."""
    skipped = {
        one.commit.id: one.commit.parents
        for one in page
        if one.changes is not None
        and not one.changes
        and one.commit.message.startswith(MESSAGE_OF_READS)
        and not names.get(one.commit.id)
    }

    def kept(parent: str) -> tuple[str, ...]:
        while parent in skipped:
            if not skipped[parent]:
                return ()
            (parent, *_) = skipped[parent]
        return (parent,)

    return [
        Logged(
            msgspec.structs.replace(
                one.commit, parents=tuple(found for parent in one.commit.parents for found in kept(parent))
            ),
            one.changes,
        )
        for one in page
        if one.commit.id not in skipped
    ]


def log(
    screen: Screen,
    page: Sequence[Logged],
    names: Mapping[str, Sequence[str]],
    *,
    connected: bool = True,
    all_parents: bool = True,
) -> Iterator[str]:
    """A log with its graph: a line for each commit, and one for what it changed.

    ``names`` says which branches and tags are at a commit. Not ``connected`` is what a filter chose here and
    there from a history: it has dots, but no lines between them.
    """
    edges = [one.commit.parents if all_parents else one.commit.parents[:1] for one in page]
    rows = list(
        graph((one.commit.id, parents if connected else ()) for one, parents in zip(page, edges, strict=True))
    )
    lines = [row.node for row in rows] if connected else ["●"] * len(page)
    below = [row.below for row in rows] if connected else [""] * len(page)
    width = min(max(map(cells, lines), default=1), GRAPH_MAX_CELLS)
    shown = {one.commit.id for one in page}
    texts = columns(
        _narrower(screen, width + 2), [_row(screen, one.commit, names) for one in page], flexible=2
    )
    for one, node, under, text in zip(page, lines, below, texts, strict=True):
        yield screen.spell(pad(node, width)) + "  " + text
        merged = one.commit.parents[1:] if all_parents and connected else ()
        # What a merge brought is told by the commits that it merged, where these are shown.
        told = bool(merged) and shown.issuperset(merged)
        if one.changes and not told:
            yield screen.spell(pad(under, width)) + " " * 12 + _keys(screen, one.changes, width + 12)


def _narrower(screen: Screen, by: int) -> Screen:
    return screen if screen.width is None else screen._replace(width=max(screen.width - by, 40))


def _row(screen: Screen, commit: Commit, names: Mapping[str, Sequence[str]]) -> list[Cell]:
    return [
        Cell(short(commit.id), "id"),
        Cell(_names(names.get(commit.id, ())), "name"),
        Cell(title(commit)),
        Cell(printable(commit.author), "dim"),
        Cell(ago(commit.time, screen.now), "dim"),
    ]


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    if len(shown) > NAMES_MAX_CELLS:
        return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "")
    return shown + (f" +{len(names) - NAMES_MAX}" if len(names) > NAMES_MAX else "")


def _keys(screen: Screen, changed: Sequence[Difference], indent: int) -> str:
    """What changed, on one line: tables, or namespaces if there is nothing else."""
    tables = [one for one in changed if one.type != "NAMESPACE"] or changed
    items = [Cell(f"{one.sign} {_named(one)}", SIGN_STYLES[one.sign]) for one in tables]
    return flow(screen, items, indent=indent)


def _named(one: Difference) -> str:
    """A key, with the version that a table got."""
    got = version(one.after)
    return printable(str(one.key)) + (f" ({got})" if got else "")


def commit_page(
    screen: Screen, commit: Commit, changed: Sequence[Difference] | None, names: Collection[str]
) -> Iterator[str]:
    """One commit with all that is known about it."""
    yield f"commit {screen.paint(commit.id, 'id')}"
    rows: list[Row] = [
        ["at", Cell(", ".join(names), "name")],
        ["author", ", ".join(printable(author) for author in commit.authors)],
        ["committer", printable(commit.committer) if commit.authors[:1] != (commit.committer,) else ""],
        ["signed off by", ", ".join(printable(one) for one in commit.signed_off_by)],
        ["time", f"{iso(commit.time)} ({ago(commit.time, screen.now)})"],
        ["parents", Cell(", ".join(short(parent) for parent in commit.parents) or "none", "id")],
        ["key", printable(commit.key)],
        *([printable(name), printable(", ".join(values))] for name, values in commit.properties.items()),
    ]
    known = [row for row in rows if (row[1].text if isinstance(row[1], Cell) else row[1])]
    yield from columns(screen, known, indent="  ")
    yield ""
    for line in (commit.message.rstrip() or "(no message)").splitlines():
        yield f"    {printable(line)}".rstrip()
    yield ""
    if changed is None:
        yield "  What it changed is not known any more: the commit before it lies behind the history horizon."
    elif not changed:
        yield "  It changed nothing."
    else:
        yield from changes(screen, changed)
