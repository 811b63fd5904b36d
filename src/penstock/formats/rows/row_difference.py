"""What a difference of rows is made of, whoever compares them: which columns, which files, and the words.

Files that two states of a table share hold the same rows in both, and cancel out: only the others have to be
read. The rows that these have in common still have to be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.rows.reader import StoredRowPart
from penstock.model.keys import Key
from penstock.model.similar_names import describe_names

CHANGE: Final = "_change_type"
"""The column that says what became of a row, with the words of Delta's change data feed."""
ADDED: Final = "insert"
REMOVED: Final = "delete"
BEFORE: Final = "update_preimage"
AFTER: Final = "update_postimage"
REPEATED_MAX: Final = 3
"""How many keys that several rows have are named."""


class StoredRows(NamedTuple):
    """What the rows of a table are stored in, in one state."""

    parts: Sequence[StoredRowPart]
    bindings: Mapping[str, Hashable]
    """For each column what binds it to the values in parts."""


class UnsharedParts(NamedTuple):
    """The parts that only one of two states has."""

    before: list[StoredRowPart]
    after: list[StoredRowPart]


def find_unshared_parts(
    before: StoredRows | None, after: StoredRows | None, names: Sequence[str]
) -> UnsharedParts | None:
    """The parts by which two states may differ in some columns; ``None`` if all rows have to be read.

    That is so if it is not known what the rows of a state are stored in, or if a column is bound to other
    values in one of them, as one that was dropped and added again.
    """
    if before is None or after is None:
        return None
    if any(before.bindings[name] != after.bindings[name] for name in names):
        return None
    return UnsharedParts(
        _subtract_parts(before.parts, after.parts), _subtract_parts(after.parts, before.parts)
    )


def _subtract_parts(parts: Sequence[StoredRowPart], others: Sequence[StoredRowPart]) -> list[StoredRowPart]:
    """The parts that others have not, as often as they are there."""
    shared = Counter(part.identity for part in others)
    single: list[StoredRowPart] = []
    for part in parts:
        if shared[part.identity]:
            shared[part.identity] -= 1
        else:
            single.append(part)
    return single


def list_key_columns(on: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns that identify a row, as a caller names one, several or none."""
    return () if on is None else (on,) if isinstance(on, str) else tuple(on)


def choose_columns(
    key: Key, before: Sequence[str], after: Sequence[str], on: Sequence[str], columns: Sequence[str] | None
) -> list[str]:
    """The columns that are compared: those that both states have, or those that are named."""
    both = [name for name in before if name in after]
    chosen = [name for name in both if columns is None or name in columns or name in on]
    for name in (*(columns or ()), *on):
        if name not in both:
            raise InvalidRequest(
                f"'{key}' has no column '{name}' at both commits{describe_names(name, both)}", table=str(key)
            )
    if not chosen:
        raise InvalidRequest(f"'{key}' has no column at both commits that could be compared", table=str(key))
    return chosen


def repeated_key_error(key: Key, on: Sequence[str], repeated: Sequence[Sequence[object]]) -> InvalidRequest:
    """The refusal of columns that do not identify rows, with values that several rows have in them."""
    values = "; ".join(
        ", ".join(f"{name} = {value!r}" for name, value in zip(on, row, strict=True)) for row in repeated
    )
    return InvalidRequest(
        f"{', '.join(on)} does not identify rows of '{key}': several have {values}\n  Name more columns in "
        "on=…, or leave it out to compare whole rows.",
        table=str(key),
        columns=list(on),
    )
