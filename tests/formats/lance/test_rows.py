"""Sets of rows and layouts, held against plain sets and lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.lance.row_sets import (
    RowSpan,
    count_layout_rows,
    count_numbers,
    find_places,
    intersect_ranges,
    list_numbers,
    list_rows_of_layout,
    make_ranges,
    remove_places,
    split_layout,
    subtract_ranges,
    subtract_row_sets,
    unite_ranges,
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
    mine, others = make_ranges(one), make_ranges(other)
    assert (set(list_numbers(mine)), count_numbers(mine)) == (one, len(one))
    assert unite_ranges(mine, others) == make_ranges(one | other)
    assert intersect_ranges(mine, others) == make_ranges(one & other)
    assert subtract_ranges(mine, others) == make_ranges(one - other)


@given(LAYOUTS, NUMBERS)
def test_places_of_a_layout_are_those_of_its_rows(spans: list[tuple[str, int, int]], gone: set[int]) -> None:
    layout = layout_of(spans)
    rows = rows_in(layout)
    left = remove_places(layout, make_ranges(gone))
    assert rows_in(left) == [row for place, row in enumerate(rows) if place not in gone]
    removed = subtract_row_sets(list_rows_of_layout(layout), list_rows_of_layout(left))
    assert set(list_numbers(find_places(layout, removed))) == {place for place in gone if place < len(rows)}


@given(LAYOUTS, st.integers(0, 30))
def test_a_layout_in_pieces_has_all_its_rows(spans: list[tuple[str, int, int]], first: int) -> None:
    layout = layout_of(spans)
    first = min(first, count_layout_rows(layout))
    pieces = split_layout(layout, [first, count_layout_rows(layout) - first])
    assert [count_layout_rows(one) for one in pieces] == [first, count_layout_rows(layout) - first]
    assert [row for one in pieces for row in rows_in(one)] == rows_in(layout)
