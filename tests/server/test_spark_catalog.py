"""The questions of a catalog of SQL, from whoever sends them: bad ones are refused, and take no memory."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import penstock
from penstock.errors import InvalidRequest, TooLarge
from penstock.formats.delta.lake import sql_writes
from penstock.lake.lake import Lake
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.lake.sql_catalog.steps import WITHOUT_PYTHON

COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
NEW: Final[dict[str, Any]] = {
    "names": ("sales", "orders"),
    "provider": "delta",
    "schema": COLUMNS,
    "mode": "error",
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        yield lake


def commit_of(lake: Lake, files: str, **more: Any) -> dict[str, Any]:
    plan = WITHOUT_PYTHON["write"](lake, CatalogRequest(**NEW))
    written = {"job": plan.job, "planned": plan.planned, "began_us": plan.began_us, "files": files, **more}
    request = msgspec.convert({**NEW, "written": written}, CatalogRequest)
    answer: dict[str, Any] = WITHOUT_PYTHON["commit_rows"](lake, request)
    return answer


@pytest.mark.parametrize(
    ("files", "more"),
    [
        ("no base64", {}),
        (base64.b64encode(b"no gzip").decode(), {}),
        (base64.b64encode(gzip.compress(b"no JSON")).decode(), {}),
        (base64.b64encode(gzip.compress(b'{"path": 1}')).decode(), {}),
        (base64.b64encode(gzip.compress(b"")).decode(), {"planned": "no id"}),
    ],
)
def test_files_that_cannot_be_read_are_refused(files: str, more: dict[str, str], lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be read|not the id of a planned table"):
        commit_of(lake, files, **more)
    assert not lake.table("sales.orders").exists


def test_files_that_unpack_to_too_much_are_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_writes, "FILES_MAX_BYTES", 1000)
    with pytest.raises(TooLarge, match="at most 1,000 bytes"):
        commit_of(lake, base64.b64encode(gzip.compress(b" " * 10_000)).decode())


@pytest.mark.parametrize(
    ("step", "asked"),
    [
        ("table", {}),
        ("table", {"names": ("a",), "time_us": 2**62}),
        ("plan", {}),
        ("write", {"names": ("a",), "mode": "nonsense", "provider": "delta"}),
        ("commit_rows", {"names": ("a",)}),
        ("truncate", {"names": ("a",)}),
        ("drop", {}),
        ("rename", {"to": ("b",)}),
        ("alter", {}),
    ],
)
def test_questions_that_lack_something_are_refused(lake: Lake, step: str, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"^the request (names|has) no |no time that|no mode 'nonsense'"):
        WITHOUT_PYTHON[step](lake, CatalogRequest(**asked))


def test_a_change_of_nothing_is_refused(lake: Lake) -> None:
    lake.create_table("sales.orders", schema=COLUMNS)
    request = CatalogRequest(names=("sales", "orders"))
    with pytest.raises(InvalidRequest, match="nothing that is to be changed"):
        WITHOUT_PYTHON["alter"](lake, request)
