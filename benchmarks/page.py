"""The page of figures in the documents, written from the results and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.report import Cell, Report, Table, is_numeric, read_report, shown

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "reference" / "performance.md"
CHOICE = DOCS / "guide" / "stores.md"
BEGIN = "<!-- figures: written by `python -m benchmarks --docs` -->\n"
END = "<!-- end of figures -->\n"
WRITERS = (1, 16, 64)

HEAD = """\
# Performance

<!-- Written by `python -m benchmarks --docs` from benchmarks/results/*.json. Do not edit. -->

What Penstock costs, measured by `make bench`. Ratios were measured side by side in one run, and work is
counted where it can be (nodes, requests, bytes): both hold on other machines, milliseconds do not. What
each question means and how to read its answer is in `benchmarks/README.md`.
"""


def write_page(results: Path, page: Path = PAGE) -> None:
    """Write the page from all results in a directory."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(as_page(read_all(results)), "utf-8")


def write_choice(results: Path, page: Path = CHOICE) -> None:
    """Write the figures of the stores into the page about choosing one."""
    page.write_text(with_choice(page.read_text("utf-8"), read_all(results)), "utf-8")


def with_choice(text: str, reports: Sequence[Report]) -> str:
    """A page with the figures of the stores between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{_choice(reports)}{END}{after}"


def _choice(reports: Sequence[Report]) -> str:
    """Commits a second on one branch, by store and writers, and how much the queue gains."""
    (one_branch, *_), *_ = [report.tables for report in reports if report.name == "stores"]
    found: dict[str, dict[tuple[object, object], Sequence[Cell]]] = {}
    for row in one_branch.rows:
        cells = dict(zip(one_branch.columns, row, strict=True))
        found.setdefault(str(cells["store"]), {})[cells["writers"], cells["way"]] = row
    columns = list(one_branch.columns)

    def cell(store: str, writers: int, name: str) -> str:
        return shown(found[store][writers, "group commit"][columns.index(name)])

    rows = [
        [
            store,
            *(cell(store, writers, "commits/s") for writers in WRITERS),
            *(cell(store, writers, "times naive") for writers in WRITERS[1:]),
            cell(store, WRITERS[-1], "p99 ms"),
        ]
        for store in found
    ]
    heads = [
        "one branch: commits a second", "1 writer", "16", "64", "of the naive loop, 16", "64", "p99 ms, 64",
    ]  # fmt: skip
    return _grid(heads, rows, [False, *[True] * 6])


def read_all(results: Path) -> list[Report]:
    """All results in a directory, by name."""
    return [read_report(path) for path in sorted(results.glob("*.json"))]


def as_page(reports: Sequence[Report]) -> str:
    """The page that shows these results."""
    parts = [HEAD, "## Goals\n", _goals(reports)]
    for report in reports:
        parts += [f"## {report.name}\n", f"{report.question}\n"]
        for one in report.tables:
            parts += [f"**{one.title}**\n", _table(one)]
            if one.note:
                parts.append(f"{one.note}\n")
    return "\n".join([*parts, "## Where this was measured\n", _machines(reports)])


def _goals(reports: Sequence[Report]) -> str:
    rows = [
        [f"[{report.name}](#{report.name})", goal.what, goal.wanted, goal.figure, goal.verdict]
        for report in reports
        for goal in report.goals
    ]
    return _grid(["question", "goal", "wanted", "found", ""], rows, [False, False, False, True, False])


def _table(one: Table) -> str:
    right = [is_numeric(one, column) for column in range(len(one.columns))]
    return _grid(one.columns, ([shown(cell) for cell in row] for row in one.rows), right)


def _machines(reports: Sequence[Report]) -> str:
    names = ["cores", "python", "sqlite", "system", "date", "sync_ms", "others_busy_percent"]
    rows = [[report.name, *(shown(report.machine[name]) for name in names)] for report in reports]
    right = [False, True, False, False, False, False, True, True]
    columns = ["question", *names[:-2], "sync ms", "others busy %"]
    note = (
        "`sync ms` is how long the disk took to make 4 KiB durable, `others busy` how much of all cores\n"
        "other programs used while the question was asked. If that is more than a little, times are noise.\n"
    )
    return "\n".join([_grid(columns, rows, right), note])


def _grid(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool]) -> str:
    lines = [columns, ["--:" if r else "---" for r in right], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
