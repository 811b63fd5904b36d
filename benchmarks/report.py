"""What a benchmark says: tables of figures, and the goals beside them, met or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

Cell: TypeAlias = str | int | float | None


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal, the figure that was found, and whether it meets it."""

    what: str
    wanted: str
    found: float
    unit: str = ""
    met: bool

    @property
    def figure(self) -> str:
        return f"{shown(self.found)} {self.unit}".strip()

    @property
    def verdict(self) -> str:
        return "met" if self.met else "NOT MET"


def at_most(what: str, found: float, limit: float, unit: str = "") -> Goal:
    """A goal that is met by a figure up to a limit."""
    wanted = f"at most {limit:,g} {unit}".strip()
    return Goal(what=what, wanted=wanted, found=_rounded(found), unit=unit, met=found <= limit)


def at_least(what: str, found: float, limit: float, unit: str = "") -> Goal:
    """A goal that is met by a figure from a limit on."""
    wanted = f"at least {limit:,g} {unit}".strip()
    return Goal(what=what, wanted=wanted, found=_rounded(found), unit=unit, met=found >= limit)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Figures, with a title that says what was done and a note that says how to read them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], note: str = "") -> Table:
    cells = tuple(tuple(_rounded(cell) if isinstance(cell, float) else cell for cell in row) for row in rows)
    return Table(title=title, columns=tuple(columns), rows=cells, note=note)


def _rounded(value: float) -> float:
    """Four digits that count: more would only be noise in a file that is compared with the one before."""
    return float(f"{value:.4g}")


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one question."""

    tables: tuple[Table, ...]
    goals: tuple[Goal, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Findings as they are kept in a file: with the question, and where and when it was asked."""

    name: str
    question: str
    quick: bool
    """Asked at a size that only shows that the benchmark works; the figures mean nothing."""
    machine: dict[str, str | int | float]
    took_s: float
    goals: tuple[Goal, ...]
    tables: tuple[Table, ...]

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.name}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        return path


def read_report(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def shown(value: Cell) -> str:
    """A figure as people read it: three digits that count, thousands apart."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    digits = 0
    while digits < 4 and abs(value) * 10**digits < 99.95:
        digits += 1
    return f"{value:.{digits}f}"


def as_text(report: Report) -> str:
    """A report for a terminal."""
    lines = [f"== {report.name}: {report.question}"]
    for one in report.tables:
        lines += ["", one.title, *grid(one)]
        if one.note:
            lines.append(f"  ({one.note})")
    if report.goals:
        lines += ["", "goals (at this size the figures mean nothing)" if report.quick else "goals"]
        wide = max(len(goal.what) for goal in report.goals)
        for goal in report.goals:
            lines.append(f"  {goal.what:<{wide}}  {goal.figure:>14}   {goal.wanted}: {goal.verdict}")
    busy = report.machine["others_busy_percent"]
    took = f"took {report.took_s:.0f} s, while other programs used {busy} % of the cores"
    return "\n".join([*lines, "", took, ""])


def grid(one: Table) -> list[str]:
    cells = [list(one.columns), *([shown(cell) for cell in row] for row in one.rows)]
    wide = [max(len(row[column]) for row in cells) for column in range(len(one.columns))]
    right = [is_numeric(one, column) for column in range(len(one.columns))]
    return [
        "  "
        + "  ".join(
            cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, wide, right, strict=True)
        )
        for row in cells
    ]


def is_numeric(one: Table, column: int) -> bool:
    """Whether a column holds figures rather than words."""
    return not any(isinstance(row[column], str) for row in one.rows)
