"""Places that a lake gives to its tables: told apart by an id, and readable by people."""

from __future__ import annotations

from pathlib import PurePosixPath
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.locations import (
    LENGTH_MAX,
    NAME_MAX_CHARS,
    make_own_place,
    normalise_location,
    parse_table_of_place,
)

ID = UUID("0188a5a0-0000-4000-8000-000000000001")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("", f"{ID}"),
        ("search.items", f"{ID}_search.items"),
        ("a_b-c.D9", f"{ID}_a_b-c.D9"),
        ("my table%2e/../x\\y$z", f"{ID}_my-table-2e-..-x-y-z"),
        ("..", f"{ID}"),
        ("日本", f"{ID}"),
        ("größe", f"{ID}_gr-e"),
        ("x" * 500, f"{ID}_{'x' * NAME_MAX_CHARS}"),
    ],
)
def test_a_folder_carries_the_readable_part_of_a_name(name: str, folder: str) -> None:
    assert make_own_place("/lake/warehouse/", ID, name) == f"/lake/warehouse/{folder}"
    assert make_own_place("s3://bucket/w", ID, name) == f"s3://bucket/w/{folder}"
    assert parse_table_of_place(folder) == ID


@given(st.text())
def test_no_name_leads_elsewhere(name: str) -> None:
    place = make_own_place("/lake/warehouse", ID, name)
    assert PurePosixPath(place).parent == PurePosixPath("/lake/warehouse")
    assert normalise_location(place) == place
    assert parse_table_of_place(PurePosixPath(place).name) == ID


def test_a_name_is_left_out_where_a_location_would_become_too_long() -> None:
    above = "/" + "/".join(["a" * 99] * 9)
    deep = f"{above}/{'b' * (LENGTH_MAX - len(above) - len(str(ID)) - 6)}"
    assert make_own_place(deep, ID, "abc") == f"{deep}/{ID}_abc"
    assert make_own_place(deep, ID, "abcd") == f"{deep}/{ID}"


@pytest.mark.parametrize(
    "folder", ["items", f"{ID}x", f"{ID}_", f"{ID}_a b", str(ID).upper(), f"{ID}_{'x' * 65}"]
)
def test_other_folders_are_no_tables_of_the_lake(folder: str) -> None:
    assert parse_table_of_place(folder) is None
