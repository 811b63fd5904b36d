"""Roaring bitmaps: what is written is read again, by this module and by others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.roaring import pack_numbers, read_numbers

NUMBERS = st.sets(st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1)), max_size=50)


@given(NUMBERS)
def test_what_is_packed_is_read(numbers: set[int]) -> None:
    assert list(read_numbers(pack_numbers(numbers))) == sorted(numbers)


@pytest.mark.parametrize("count", [4096, 4097, 70_000])
def test_containers_of_either_kind_are_read(count: int) -> None:
    numbers = range(65_000, 65_000 + 3 * count, 3)
    assert list(read_numbers(pack_numbers(numbers))) == list(numbers)


def test_runs_are_read() -> None:
    runs = bytes.fromhex("3b3000000100000400010003000400")
    assert list(read_numbers(runs)) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("data", [b"", b"\x00" * 8, bytes.fromhex("3a30000001000000")])
def test_what_is_no_bitmap_is_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bitmap|ends"):
        list(read_numbers(data))
