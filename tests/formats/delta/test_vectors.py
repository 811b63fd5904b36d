"""Deletion vectors: every layout that writers use, and nothing believed that was not checked."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.formats.delta.protocol.actions import DeletionVector
from penstock.formats.delta.rows.deletion_words import BitmapWords
from penstock.formats.delta.rows.vectors import get_vector_file_name, read_deleted_bitmap
from tests.formats.delta.rows import VECTOR_ID, inline_vector, vector_data, vector_file_data, z85

ROWS = 400_000
SHAPES = ("arrays", "runs")


def nowhere(name: str, start: int, length: int) -> bytes | None:
    return None


def refuse(address: str) -> str:
    raise AssertionError(f"{address} is not absolute")


def decoded(vector: DeletionVector, rows: int = ROWS) -> set[int]:
    bitmap = read_deleted_bitmap(vector, rows, nowhere, refuse)
    return {row for row in range(rows) if bitmap[row >> 3] >> (row & 7) & 1}


def some_rows(seed: int) -> dict[str, set[int]]:
    chance = random.Random(seed)
    return {
        "none": set(),
        "one": {ROWS - 1},
        "few": set(chance.sample(range(ROWS), 50)),
        "dense": set(chance.sample(range(65_536), 60_000)),
        "all": set(range(200_000)),
        "stretches": {row for row in range(ROWS) if row // 1000 % 3 == 0},
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", list(some_rows(1)))
def test_a_vector_deletes_the_rows_that_were_put_in(name: str, shape: str) -> None:
    rows = some_rows(1)[name]
    assert decoded(inline_vector(vector_data(rows, shape), len(rows))) == rows


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 150_000), max_size=300), st.sampled_from(SHAPES), st.integers(0, 3))
def test_any_set_of_rows_comes_back(rows: set[int], shape: str, more: int) -> None:
    size = max(rows, default=0) + 1 + more
    assert decoded(inline_vector(vector_data(rows, shape), len(rows)), size) == rows


def test_vectors_share_a_file_and_are_found_by_their_offsets() -> None:
    sets: list[set[int]] = [{1, 2, 3}, {70_000}, set(range(5_000))]
    data, starts = vector_file_data(*(vector_data(one) for one in sets))
    files = {f"ab/deletion_vector_{VECTOR_ID}.bin": data}

    def read(name: str, start: int, length: int) -> bytes | None:
        return files[name][start : start + length]

    for rows, start in zip(sets, starts, strict=True):
        vector = DeletionVector(
            storage_type="u",
            path_or_inline_dv="ab" + z85(VECTOR_ID.bytes),
            size_in_bytes=len(vector_data(rows)),
            cardinality=len(rows),
            offset=start,
        )
        bitmap = read_deleted_bitmap(vector, ROWS, read, refuse)
        assert int.from_bytes(bitmap, "little") == sum(1 << row for row in rows)
        # Nothing of a file is believed: neither its bytes, nor that it is long enough, nor that it is there.
        for broken in (data[: start + 9], data[: start + 8] + b"\xff" + data[start + 9 :]):
            files["broken"] = broken
            with pytest.raises(ValueError, match=r"checksum|bytes instead of"):
                read_deleted_bitmap(vector, ROWS, lambda _, at, size: read("broken", at, size), refuse)
        with pytest.raises(ValueError, match="does not exist"):
            read_deleted_bitmap(vector, ROWS, nowhere, refuse)
        shorter = msgspec.structs.replace(vector, size_in_bytes=vector.size_in_bytes - 1)
        with pytest.raises(ValueError, match="but the log says"):
            read_deleted_bitmap(shorter, ROWS, read, refuse)


def test_the_name_of_a_vectors_file_is_the_one_of_the_protocol() -> None:
    named = DeletionVector(
        storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", size_in_bytes=1, cardinality=1
    )
    assert get_vector_file_name(named) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def test_the_folder_of_a_vector_does_not_lead_out_of_the_table() -> None:
    for folder in ("..", "/etc", "a/../.."):
        vector = DeletionVector(
            storage_type="u", path_or_inline_dv=folder + z85(VECTOR_ID.bytes), size_in_bytes=1, cardinality=1
        )
        with pytest.raises(ValueError, match="is outside the table"):
            read_deleted_bitmap(vector, 10, nowhere, refuse)


@pytest.mark.parametrize(
    ("data", "cardinality", "reason"),
    [
        (b"\x00" * 12, 0, "begins with 0"),
        (vector_data({1, 2})[:-1], 2, "the bitmap ends at byte"),
        (vector_data({1, 2}), 3, "deletes 2 rows, but the log says 3"),
        (vector_data({1, 100}), 2, "names rows beyond the end of the file, which has 100"),
        (vector_data({1 << 33}), 1, "names rows beyond the end of the file, which has 100"),
        (vector_data({70_000}), 1, "names rows beyond the end of the file, which has 100"),
        (vector_data({1, 2})[:12], 0, "the bitmap ends at byte"),
    ],
    ids=["no-magic", "cut", "miscounted", "one-too-far", "beyond-32-bits", "another-container", "no-bitmap"],
)
def test_a_vector_that_is_not_what_was_noted_is_refused(data: bytes, cardinality: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decoded(inline_vector(data, cardinality), 100)


def test_an_inline_vector_shorter_than_noted_is_refused() -> None:
    vector = msgspec.structs.replace(inline_vector(vector_data({1}), 1), size_in_bytes=100)
    with pytest.raises(ValueError, match="bytes instead of 100"):
        decoded(vector)


@given(st.sets(st.integers(0, 1000), max_size=40))
def test_words_of_a_bitmap_are_the_bits_that_they_were_made_of(rows: set[int]) -> None:
    bits = sum(1 << row for row in rows)
    words = BitmapWords.from_bitmap(bits.to_bytes(1024 // 8, "little"))
    assert (words.bits, words.rows) == (bits, len(rows))
    assert 0 not in words.words.to_pylist()
    again = BitmapWords.from_numbered_words(words.numbers, words.words)
    assert (again.bits, again.rows) == (bits, len(rows))
