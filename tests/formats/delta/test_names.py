"""Names of files in a log."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.delta.protocol.names import (
    ChecksumName,
    ClassicName,
    CommitName,
    CompactionName,
    LogName,
    PartName,
    StagedName,
    UuidName,
    make_text_before_version,
    parse_name,
    sidecar_name,
)

ONE = UUID("3a0d65cd-4056-49b8-937b-95f9e3ee90e5")
NAMES: list[tuple[str, LogName]] = [
    ("00000000000000000012.json", CommitName(12)),
    ("00000000000000000012.crc", ChecksumName(12)),
    ("00000000000000000012.checkpoint.parquet", ClassicName(12)),
    ("00000000000000000012.checkpoint.0000000002.0000000003.parquet", PartName(12, 2, 3)),
    (f"00000000000000000012.checkpoint.{ONE}.parquet", UuidName(12, ONE, "parquet")),
    (f"00000000000000000012.checkpoint.{ONE}.json", UuidName(12, ONE, "json")),
    ("00000000000000000003.00000000000000000012.compacted.json", CompactionName(3, 12)),
    (f"_commits/00000000000000000012.{ONE}.json", StagedName(12, ONE)),
    (f"_staged_commits/00000000000000000012.{ONE}.json", StagedName(12, ONE, "_staged_commits")),
]


@pytest.mark.parametrize(("text", "name"), NAMES)
def test_every_name_of_the_protocol_is_understood_and_made(text: str, name: LogName) -> None:
    assert parse_name("_delta_log/" + text) == name
    assert type(parse_name("_delta_log/" + text)) is type(name)
    assert str(name) == "_delta_log/" + text


@pytest.mark.parametrize(
    "text",
    [
        "_last_checkpoint",
        ".00000000000000000012.json.crc",
        "12.json",
        "00000000000000000012.json.tmp",
        "00000000000000000012.parquet",
        "99999999999999999999.json",
        "00000000000000000012.checkpoint.0000000004.0000000003.parquet",
        "00000000000000000012.checkpoint.0000000000.0000000003.parquet",
        "00000000000000000012.checkpoint.not-a-uuid.parquet",
        "00000000000000000012.00000000000000000012.compacted.json",
        f"00000000000000000012.{ONE}.json",
        "_commits/00000000000000000012.json",
        f"_sidecars/{ONE}.parquet",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١٢.json",
    ],
)
def test_any_other_name_means_nothing(text: str) -> None:
    assert parse_name("_delta_log/" + text) is None


def test_a_name_outside_of_the_log_means_nothing() -> None:
    assert parse_name("00000000000000000012.json") is None


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_names_sort_by_their_versions(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert make_text_before_version(low) < str(CommitName(low))
    assert (str(CommitName(low)) < make_text_before_version(high)) == (low < high)


def test_a_sidecar_lies_in_its_folder_however_it_is_named() -> None:
    assert sidecar_name("a b.parquet") == "_delta_log/_sidecars/a b.parquet"
    assert sidecar_name("s3://x/t/_delta_log/_sidecars/a%20b.parquet") == "_delta_log/_sidecars/a b.parquet"
