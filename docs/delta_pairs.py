"""What becomes of two operations on a Delta table at once, in a lake and with Delta Spark: a part of the
reference of Delta's rules.

``tests/interop/test_delta_pairs.py`` does each pair with both, and fails where it comes out otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple


class Outcome(StrEnum):
    """What becomes of the first of two operations. The second always lands."""

    AFTER = "lands"
    """The table is as if it had come after the second."""
    BEFORE = "lands before"
    """The table is as if it had come before the second."""
    MIXED = "lands mixed"
    """The table is as in no order."""
    REFUSED = "refused"


OPERATIONS: Final = {
    "append": "rows are appended",
    "overwrite": "the whole table is overwritten",
    "replace a": "the partition `a` is replaced (`replaceWhere`)",
    "delete part b": "the partition `b` is deleted",
    "delete": "a row of `a` is deleted",
    "update": "a row of `a` is updated, of the same file",
    "update in b": "a row of `b` is updated",
    "merge": "a merge updates a row of `a`, of the same file, and inserts one",
    "optimize": "the table is compacted",
    "add column": "a column is added",
    "property": "a property is set",
    "restore": "the table is restored to a version without `b`",
}
"""What is done to a table with two files in its partition ``a`` and one in ``b``."""

_LAKE: Final = """
append        L L L L L L L L L L R L
overwrite     L L L L L L L L L L R L
replace a     L L L L L L L L L L R L
delete part b L R L R L L R L L L A R
delete        L R R L R R L R A L A L
update        L R R L R R L R A L A L
update in b   L R L R L L R L L L A R
merge         L R R L R R R R A L A L
optimize      L L L L L L L L L L L L
add column    L L L L L L L L L R R L
property      L L L L L L L L L R R L
restore       L L L L L L L L L L L L
"""
_SPARK: Final = """
append        L L L L L L L L L R R L
overwrite     R R R R R R R R R R R R
replace a     R R R L R R L R R R R L
delete part b L R L R L L R L L R R R
delete        R R R L R R L R R R R L
update        R R R L R R L R R R R L
update in b   L R L R L L R L L R R R
merge         R R R R R R R R R R R R
optimize      L R R L R R L R R L L L
add column    L L L L L L L L L R R R
property      L L L L L L L L L R R R
restore       R R R R R R R R R R R R
"""
"""By the first operation, with a letter for each second one: L lands, A lands after it was done again, R is
refused, B lands as if it had come before the second."""


class Pair(NamedTuple):
    """How a pair comes out."""

    lake: Outcome
    is_done_again: bool
    """Whether the lake does the first one again, on what the second has left."""
    spark: Outcome


_OUTCOMES: Final = {"L": Outcome.AFTER, "A": Outcome.AFTER, "B": Outcome.BEFORE, "R": Outcome.REFUSED}


def _parse(text: str) -> dict[tuple[str, str], str]:
    codes: dict[tuple[str, str], str] = {}
    for line in text.strip().splitlines():
        words = line.split()
        first = " ".join(words[: -len(OPERATIONS)])
        codes |= {(first, second): code for second, code in zip(OPERATIONS, words[-12:], strict=True)}
    return codes


PAIRS: Final = {
    pair: Pair(_OUTCOMES[lake], lake == "A", _OUTCOMES[spark])
    for (pair, lake), spark in zip(_parse(_LAKE).items(), _parse(_SPARK).values(), strict=True)
}
"""By the first and the second operation."""

_OVERWRITES: Final = ("overwrite", "replace a")


def explain(first: str, second: str) -> str:
    """Why the two do not come out alike."""
    if first == "restore":
        return "A restore is made at its turn: the table gets the state that was named, whatever came before."
    if first == "optimize":
        return (
            "A compaction leaves out the files that are not there any more, and lands with the others. It "
            "changes no row, so what the other changed stands."
        )
    if first in ("add column", "property"):
        return "A change of the schema or of properties reads no rows: it is one of the table at its turn."
    if second == "add column":
        return (
            "A column that was added and may be null binds nobody who does not know it: rule 5 of "
            "[conflicts](../decisions/0025-merging-delta-tables.md). In files without it, it is null."
        )
    if first in _OVERWRITES:
        return (
            "An overwrite rests on no row that it has read. What it replaces is found at its turn: it comes "
            "after the other, as it would have a moment later. Delta Spark has it read what it replaces."
        )
    if PAIRS[first, second].is_done_again:
        return (
            "It is done again at once: the rows that it chose were only written to other files, or the other "
            "changed no row. Delta Spark leaves that to the caller."
        )
    return (
        "Rows that came or went meanwhile, and that it does not write, are as if they had done so later: "
        "tables of a lake have the isolation level `WriteSerializable`, unless their property "
        "`delta.isolationLevel` is `Serializable`. Then it is done again."
    )


INTRODUCTION: Final = """
## Pairs of operations

<!-- From here on written by docs/generate.py, of docs/delta_pairs.py: `make docs`. -->

What becomes of two operations at once, in a lake and with Delta Spark on a table of its own. The first, in
the rows below, has read all that it reads and has written its files. Then the second, in the columns, is done
from beginning to end. Then the first commits. Every cell is a test; in a lake with deletion vectors, too,
where the outcomes are the same.
"""
LEGEND: Final = """
**✓** lands with both, as if it had come after the second · **×** is refused by both, with a conflict that
names the second · **P** lands with Penstock, as if after the second, and Delta Spark refuses it · **D** lands
with Delta Spark, and Penstock refuses it. A number leads to the reason.

Whatever lands in a lake comes after the other: no pair ends in a state that neither order would have led to.
"""


def pairs_section() -> Iterator[str]:
    """The part of the page."""
    yield from INTRODUCTION.strip().splitlines()
    yield ""
    yield from (f"- *{name}*: {what}" for name, what in OPERATIONS.items())
    yield ""
    yield f"| first | {' | '.join(OPERATIONS)} |"
    yield "|---|" + ":-:|" * len(OPERATIONS)
    notes: list[str] = []
    for first in OPERATIONS:
        yield f"| *{first}* | {' | '.join(_mark(first, second, notes) for second in OPERATIONS)} |"
    yield ""
    yield from LEGEND.strip().splitlines()
    yield ""
    yield from (f"{number}. {note}" for number, note in enumerate(notes, 1))


def _mark(first: str, second: str, notes: list[str]) -> str:
    pair = PAIRS[first, second]
    if pair.lake == pair.spark:
        return "×" if pair.lake is Outcome.REFUSED else "✓"
    if (note := explain(first, second)) not in notes:
        notes.append(note)
    return f"**{'D' if pair.lake is Outcome.REFUSED else 'P'}** {notes.index(note) + 1}"
