"""Sets of rows and layouts, held against plain sets and lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.lance.row_sets import (
    RowSpan,
    count,
    difference,
    intersection,
    numbers_in,
    other_rows,
    places_of,
    ranges_of,
    rows_of,
    size,
    split,
    union,
    without_places,
)

NUMBERS = st.sets(st.integers(0, 30))
LAYOUTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(1, 6)), max_size=5)


def layout_of(spans: list[tuple[str, int, int]]) -> tuple[RowSpan, ...]:
    """Spans that have no row in common: each file's begin where the one before ended."""
    ends: dict[str, int] = {}
    found = []
    for file, gap, rows in spans:
        start = ends.get(file, 0) + gap
        ends[file] = start + rows
        found.append(RowSpan(file, start, rows))
    return tuple(found)


def rows_in(layout: tuple[RowSpan, ...]) -> list[tuple[str, int]]:
    return [(span.file, row) for span in layout for row in range(span.start, span.start + span.rows)]


@given(NUMBERS, NUMBERS)
def test_ranges_are_sets(one: set[int], other: set[int]) -> None:
    mine, others = ranges_of(one), ranges_of(other)
    assert (set(numbers_in(mine)), count(mine)) == (one, len(one))
    assert union(mine, others) == ranges_of(one | other)
    assert intersection(mine, others) == ranges_of(one & other)
    assert difference(mine, others) == ranges_of(one - other)


@given(LAYOUTS, NUMBERS)
def test_places_of_a_layout_are_those_of_its_rows(spans: list[tuple[str, int, int]], gone: set[int]) -> None:
    layout = layout_of(spans)
    rows = rows_in(layout)
    left = without_places(layout, ranges_of(gone))
    assert rows_in(left) == [row for place, row in enumerate(rows) if place not in gone]
    removed = other_rows(rows_of(layout), rows_of(left))
    assert set(numbers_in(places_of(layout, removed))) == {place for place in gone if place < len(rows)}


@given(LAYOUTS, st.integers(0, 30))
def test_a_layout_in_pieces_has_all_its_rows(spans: list[tuple[str, int, int]], first: int) -> None:
    layout = layout_of(spans)
    first = min(first, size(layout))
    pieces = split(layout, [first, size(layout) - first])
    assert [size(one) for one in pieces] == [first, size(layout) - first]
    assert [row for one in pieces for row in rows_in(one)] == rows_in(layout)
