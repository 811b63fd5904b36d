"""Locations: no spelling of a place outside the roots passes for one inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import LocationRefused
from penstock.storage.locations import check_under, is_under, normalise_location

ROOTS = ("s3://lake/warehouse", "/data/lake", "gs://other/a/b/")

BYPASSES = [
    "",
    " ",
    "s3://lake",
    "s3://lake/",
    "s3://lake/ware",
    "s3://lake/warehouse-2/t",
    "s3://lake/warehouse2",
    "s3://lake/warehouse.bak/t",
    "s3://lake/WAREHOUSE/t",
    "s3://lake/warehouse/..",
    "s3://lake/warehouse/../secret",
    "s3://lake/warehouse/t/../../secret",
    "s3://lake/warehouse/%2e%2e/secret",
    "s3://lake/warehouse/%2E%2E/secret",
    "s3://lake/warehouse/.%2e/secret",
    "s3://lake/warehouse/%2e./secret",
    "s3://lake/warehouse/t%2f..%2f..%2fsecret",
    "s3://lake/warehouse/t%2F%2e%2e%2Fsecret",
    "s3://lake/warehouse/..%2fsecret",
    "s3://lake/warehouse/..%5csecret",
    "s3://lake/warehouse/..\\secret",
    "s3://lake\\warehouse/t",
    "s3://lake/warehouse/..%00/secret",
    "s3://lake/warehouse/t\0/../secret",
    "s3://lake/warehouse/.\t./secret",
    "s3://lake/warehouse/.\n./secret",
    "s3://other/warehouse/t",
    "s3://lake.evil.example/warehouse/t",
    "s3://lake:443/warehouse/t",
    "s3://lake@evil.example/warehouse/t",
    "s3://user:secret@lake/warehouse/t",
    "s3://evil.example#@lake/warehouse/t",
    "s3://evil.example?@lake/warehouse/t",
    "s3://lake/warehouse/t?versionId=1",
    "s3://lake/warehouse?/../secret",
    "s3://lake/warehouse/t#part",
    "s3a://lake/warehouse/t",
    "https://lake/warehouse/t",
    "s3:///lake/warehouse/t",
    "s3:/lake/warehouse/t",
    "s3:lake/warehouse/t",
    "//lake/warehouse/t",
    "://lake/warehouse/t",
    "s3://",
    "s3://[lake/warehouse/t",
    "s3://la\u2100ke/warehouse/t",
    "file://host/data/lake/t",
    "file://127.0.0.1/data/lake/t",
    "file:///data/lake/../secret",
    "file:///data/lake-2/t",
    "file:///data/lake/%2e%2e/secret",
    "/data",
    "/data/lake-2/t",
    "/data/lakes",
    "/data/lake/../secret",
    "/data/lake/t/../../secret",
    "/data/lake/%2e%2e/secret",
    "/etc/passwd",
    "data/lake/t",
    "gs://other/a/bc",
    "gs://other/a",
]


@pytest.mark.parametrize("location", BYPASSES)
def test_a_place_outside_the_roots_is_refused_however_it_is_spelt(location: str) -> None:
    with pytest.raises(LocationRefused):
        check_under(location, ROOTS)


@pytest.mark.parametrize("location", [None, 5, b"/data/lake/t", Path("/data/lake/t")])
def test_a_location_that_is_not_text_is_refused(location: Any) -> None:
    with pytest.raises(LocationRefused):
        check_under(location, ROOTS)


@pytest.mark.parametrize(
    ("location", "normal"),
    [
        ("s3://lake/warehouse", "s3://lake/warehouse"),
        ("s3://lake/warehouse/", "s3://lake/warehouse"),
        ("s3://lake/warehouse//a///b/", "s3://lake/warehouse/a/b"),
        ("S3://lake/warehouse/a", "s3://lake/warehouse/a"),
        ("s3://lake/warehouse/...", "s3://lake/warehouse/..."),
        ("s3://lake/warehouse/..a/b..", "s3://lake/warehouse/..a/b.."),
        ("s3://lake/warehouse/day=2026-11-01/\u00e4", "s3://lake/warehouse/day=2026-11-01/\u00e4"),
        ("gs://other/a/b/c", "gs://other/a/b/c"),
        ("gs://other/a/b", "gs://other/a/b"),
        ("/data/lake/t", "/data/lake/t"),
        ("/data/lake", "/data/lake"),
        ("/data//lake/t/", "/data/lake/t"),
        ("file:///data/lake/t", "/data/lake/t"),
        ("file:///data/lake/with%20blank/%C3%BC", "/data/lake/with blank/ü"),
        ("file:///data/lake/per%2541cent", "/data/lake/per%41cent"),
        ("file://localhost/data/lake/t", "/data/lake/t"),
    ],
)
def test_a_place_below_a_root_is_allowed_and_has_one_spelling(location: str, normal: str) -> None:
    assert check_under(location, ROOTS) == normal
    assert normalise_location(normal) == normal


@pytest.mark.parametrize(
    "location", ["s3://lake/warehouse/t?", "s3://lake/warehouse/t#", " s3://lake/warehouse/t"]
)
def test_what_an_allowed_place_has_too_much_is_refused_or_gone(location: str) -> None:
    try:
        allowed = check_under(location, ROOTS)
    except LocationRefused:
        return
    assert allowed == "s3://lake/warehouse/t"


def test_relative_paths_are_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_under("tables/t", [str(tmp_path)]) == f"{tmp_path}/tables/t"
    assert is_under("tables/t", "tables")
    assert not is_under("tables-2", "tables")
    with pytest.raises(LocationRefused):
        check_under("../t", [str(tmp_path)])


def test_without_roots_every_location_is_refused() -> None:
    with pytest.raises(LocationRefused) as refused:
        check_under("s3://lake/warehouse/t", ())
    assert refused.value.details == {"location": "s3://lake/warehouse/t", "roots": []}


def test_a_bucket_as_root_lets_in_the_bucket_and_nothing_else() -> None:
    assert check_under("s3://lake/anything/t", ["s3://lake"]) == "s3://lake/anything/t"
    for other in ("s3://lake2/t", "s3://lak", "s3://lake.x/t"):
        with pytest.raises(LocationRefused):
            check_under(other, ["s3://lake"])
