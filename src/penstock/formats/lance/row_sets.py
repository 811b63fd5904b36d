"""Sets of rows, by where each row was first written: a data file and a place in it.

A row keeps that name for life. Compaction writes rows to other files, in their order; a *layout* tells of
each place in such a file which row is there. So two versions of a table can be compared row by row, whatever
was compacted in between. An update gives a row another name: it deletes one and appends another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Sets of numbers: sorted and disjoint ranges, each without its end."""
RowSet: TypeAlias = Mapping[str, Ranges]
"""By the whole paths of data files. No file has an empty set."""


class RowSpan(NamedTuple):
    """Some rows that follow one another, as they were first written."""

    file: str
    start: int
    rows: int


Layout: TypeAlias = tuple[RowSpan, ...]
"""The rows in a data file, one span after the other."""


def make_ranges(numbers: Iterable[int]) -> Ranges:
    """A set of numbers that come in any order."""
    return _join_ranges((number, number + 1) for number in sorted(numbers))


def list_numbers(ranges: Ranges) -> Iterator[int]:
    return (number for start, end in ranges for number in range(start, end))


def count_numbers(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges)


def unite_ranges(ranges: Ranges, other: Ranges) -> Ranges:
    return _join_ranges(sorted((*ranges, *other))) if ranges and other else ranges or other


def intersect_ranges(ranges: Ranges, other: Ranges) -> Ranges:
    shared: list[tuple[int, int]] = []
    at = place = 0
    while at < len(ranges) and place < len(other):
        start, end = max(ranges[at][0], other[place][0]), min(ranges[at][1], other[place][1])
        if start < end:
            shared.append((start, end))
        if ranges[at][1] < other[place][1]:
            at += 1
        else:
            place += 1
    return tuple(shared)


def subtract_ranges(ranges: Ranges, other: Ranges) -> Ranges:
    if not ranges or not other:
        return ranges
    return intersect_ranges(ranges, _invert_ranges(other, ranges[0][0], ranges[-1][1]))


def _invert_ranges(ranges: Ranges, start: int, end: int) -> Ranges:
    """What lies between the ranges, from a number on and up to another one."""
    edges = [start, *(edge for each in ranges for edge in each), end]
    return tuple((low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high)


def _join_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges that come in the order of their starts, without overlaps and gaps of nothing."""
    joined: list[tuple[int, int]] = []
    for start, end in ranges:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return tuple(joined)


# -- rows of several files ---------------------------------------------------------------------------------


def unite_row_sets(sets: Iterable[RowSet]) -> RowSet:
    """The rows that any of the sets has."""
    united: dict[str, Ranges] = {}
    for rows in sets:
        for file, ranges in rows.items():
            united[file] = unite_ranges(united.get(file, ()), ranges)
    return united


def count_rows(rows: RowSet) -> int:
    return sum(map(count_numbers, rows.values()))


def intersect_row_sets(rows: RowSet, other: RowSet) -> RowSet:
    shared = ((file, intersect_ranges(ranges, other.get(file, ()))) for file, ranges in rows.items())
    return {file: ranges for file, ranges in shared if ranges}


def subtract_row_sets(one: RowSet, *others: RowSet) -> RowSet:
    """The rows of a set that none of the others has."""
    remaining = dict(one)
    for rows in others:
        for file in remaining.keys() & rows.keys():
            remaining[file] = subtract_ranges(remaining[file], rows[file])
    return {file: ranges for file, ranges in remaining.items() if ranges}


# -- layouts -----------------------------------------------------------------------------------------------


def list_rows_of_layout(layout: Layout) -> RowSet:
    """The rows that a layout has."""
    ranges_by_file: dict[str, list[tuple[int, int]]] = {}
    for span in layout:
        ranges_by_file.setdefault(span.file, []).append((span.start, span.start + span.rows))
    return {file: _join_ranges(sorted(ranges)) for file, ranges in ranges_by_file.items()}


def remove_places(layout: Layout, places: Ranges) -> Layout:
    """A layout without the rows at some places of it."""
    spans: list[RowSpan] = []
    at = 0
    for span in layout:
        for start, end in _invert_ranges(_clip_ranges(places, at, at + span.rows), at, at + span.rows):
            spans.append(RowSpan(span.file, span.start + start - at, end - start))
        at += span.rows
    return tuple(spans)


def find_places(layout: Layout, rows: RowSet) -> Ranges:
    """The places of a layout at which some rows are."""
    places: list[tuple[int, int]] = []
    at = 0
    for span in layout:
        end = span.start + span.rows
        for start, stop in _clip_ranges(rows.get(span.file, ()), span.start, end):
            places.append((at + start - span.start, at + stop - span.start))
        at += span.rows
    return _join_ranges(places)


def split_layout(layout: Layout, counts: Iterable[int]) -> list[Layout]:
    """A layout in pieces of so many rows each."""
    spans: list[Layout] = []
    rest = list(layout[::-1])
    for count in counts:
        piece: list[RowSpan] = []
        while count and rest:
            span = rest.pop()
            rows_taken = min(count, span.rows)
            piece.append(span._replace(rows=rows_taken))
            if rows_taken < span.rows:
                rest.append(RowSpan(span.file, span.start + rows_taken, span.rows - rows_taken))
            count -= rows_taken
        spans.append(tuple(piece))
    return spans


def count_layout_rows(layout: Layout) -> int:
    return sum(span.rows for span in layout)


def _clip_ranges(ranges: Ranges, start: int, end: int) -> Ranges:
    """The part of a set between two numbers. Sets are long, and looked into often."""
    first = bisect_right(ranges, start, key=lambda span: span[1])
    inside: list[tuple[int, int]] = []
    for low, high in ranges[first:] if first else ranges:
        if low >= end:
            break
        inside.append((max(low, start), min(high, end)))
    return tuple(inside)
