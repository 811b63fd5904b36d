"""Ranges of numbers that a table gives to its rows, each given away once, for all branches.

A lake keeps a row for each table that numbers rows: the last number that was given away, of each sequence. A
writer reserves a range before it writes rows. What it does not use is a gap. Copies and backups of a lake
leave these rows behind, so whoever reserves says how far the table itself has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import InvalidRequest
from penstock.kernel.records import RecordType, ReplaceRow, RowSubject
from penstock.kernel.settings import Settings
from penstock.model.encoding import encode, make_decoder
from penstock.stores.port import Store

PREFIX: Final = "@numbers/"
"""No branch or tag has a name that begins so."""
KIND: Final = "numbers"
NUMBER_MAX: Final = 2**63 - 1


class NumberRanges(NamedTuple):
    """What a row holds: the last number of each sequence that was given away."""

    last: dict[str, int]


class RangeRequest(NamedTuple):
    """How many numbers of a sequence are reserved, and what is known of it."""

    start: int
    step: int
    reached: int | None
    """A number from which on none is free, as far as the table tells; ``None`` if it does not."""
    size: int


def reserve_numbers(
    store: Store, settings: Settings, table: UUID, requests: Mapping[str, RangeRequest]
) -> dict[str, int]:
    """Reserve numbers of a table's sequences, and return the last one of each range.

    The numbers before it follow by the step. ``InvalidRequest`` if a sequence has no more. After an unknown
    outcome another range is reserved: the first one may be somebody else's.
    """

    def decide_change(ranges: NumberRanges | None) -> ReplaceRow[NumberRanges]:
        last = {} if ranges is None else dict(ranges.last)
        for name, request in requests.items():
            last[name] = _find_last(request, last.get(name), name)
        return ReplaceRow(NumberRanges(last), is_counted=True)

    reserved = NUMBERS.update_record(store, settings, table.hex, decide_change)
    return {name: reserved.last[name] for name in requests}


def find_ranges(store: Store, table: UUID) -> NumberRanges | None:
    """What was given away of a table's numbers; ``None`` if nobody has reserved any here."""
    return NUMBERS.find_record(store, table.hex)


def _find_last(request: RangeRequest, last: int | None, name: str) -> int:
    """The last number of a sequence once a range after all others is given away."""
    sign = 1 if request.step > 0 else -1
    numbers = [sign * number for number in (last, request.reached) if number is not None]
    start, step = sign * request.start, abs(request.step)
    furthest = max(numbers, default=start - step)
    steps = -(-(furthest - start) // step)  # the first number of the sequence that is not before it
    furthest = start + max(-1, steps) * step
    reserved = sign * (furthest + request.size * step)
    if not -NUMBER_MAX - 1 <= reserved <= NUMBER_MAX:
        raise InvalidRequest(
            f"the identity column '{name}' has fewer than {request.size} unused numbers left", column=name
        )
    return reserved


def _range_subject(id: str) -> RowSubject:  # noqa: A002
    table = str(UUID(hex=id))
    advice = "Repeating the write is safe: it reserves other numbers."
    return RowSubject(f"the numbers of table {table}", advice, {"table": table})


NUMBERS: Final[RecordType[NumberRanges]] = RecordType(
    PREFIX, lambda _: KIND, encode, make_decoder(NumberRanges).decode, _range_subject
)
