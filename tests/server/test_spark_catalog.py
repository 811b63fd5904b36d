"""The questions of a catalog of SQL, from whoever sends them: bad ones are refused, and take no memory."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidRequest, PenstockError, TooLarge
from penstock.formats.delta.lake import sql_writes
from penstock.formats.delta.log.read_versions import ReadVersions
from penstock.lake.lake import Lake
from penstock.lake.sql_catalog.requests import CatalogRequest, WrittenRows
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
    ids=["no base64", "no gzip", "no JSON", "no list of files", "no id of a plan"],
)
def test_files_that_cannot_be_read_are_refused(files: str, more: dict[str, str], lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be read|is not a table id"):
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
    with pytest.raises(
        InvalidRequest,
        match=r"^the request (names no|lacks) |outside the supported range|write mode 'nonsense'",
    ):
        WITHOUT_PYTHON[step](lake, CatalogRequest(**asked))


def test_a_change_of_nothing_is_refused(lake: Lake) -> None:
    lake.create_table("sales.orders", schema=COLUMNS)
    request = CatalogRequest(names=("sales", "orders"))
    with pytest.raises(InvalidRequest, match="contains no change of"):
        WITHOUT_PYTHON["alter"](lake, request)


@pytest.mark.parametrize("limit", ["nonsense", ".", "9" * 5000])
def test_a_number_of_commits_that_is_none_is_refused(lake: Lake, limit: str) -> None:
    request = CatalogRequest(procedure="show_log", arguments={"limit": limit})
    with pytest.raises(InvalidRequest, match="'limit' of 'show_log' must be a whole number"):
        WITHOUT_PYTHON["call"](lake, request)


def test_files_of_a_job_that_tells_none_are_refused(lake: Lake) -> None:
    written = WrittenRows(job="a", planned="b", began_us=0, files="")
    request = CatalogRequest(names=("sales", "orders"), provider="parquet", mode="error", written=written)
    with pytest.raises(InvalidRequest, match="whose jobs commit their files themselves"):
        WITHOUT_PYTHON["commit_rows"](lake, request)


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("number", ['"x"', "null", "[]", "1.5", "true"])
def test_ids_of_columns_that_are_none_are_replaced_or_refused(lake: Lake, mode: str, number: str) -> None:
    noted = f'"metadata":{{"delta.columnMapping.id":{number}'
    properties = {"provider": "delta", "delta.columnMapping.mode": mode}
    asked: dict[str, Any] = {"names": ("sales", "orders"), "properties": properties}
    named = COLUMNS.replace('"metadata":{', f'{noted},"delta.columnMapping.physicalName":"id"')
    with pytest.raises(PenstockError, match="the column 'id' lacks"):
        WITHOUT_PYTHON["create"](lake, CatalogRequest(**asked, schema=named))
    WITHOUT_PYTHON["create"](lake, CatalogRequest(**asked, schema=COLUMNS.replace('"metadata":{', noted)))
    assert lake.table("sales.orders").count() == 0


def test_a_largest_id_that_no_column_has_is_replaced(lake: Lake) -> None:
    properties: dict[str, str | None] = {
        "provider": "delta",
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "9" * 5000,
    }
    request = CatalogRequest(names=("sales", "orders"), schema=COLUMNS, properties=properties)
    WITHOUT_PYTHON["create"](lake, request)
    assert lake.table("sales.orders").count() == 0


def test_a_table_is_described_without_a_look_at_its_log(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"delta.appendOnly": "true"}
    table = lake.create_table("sales.orders", schema=pa.schema([("id", pa.int64())]), properties=properties)
    table.append(pa.table({"id": [1]}))
    request = CatalogRequest(names=("sales", "orders"))
    at_version = WITHOUT_PYTHON["table"](lake, msgspec.structs.replace(request, revision="1"))

    def fail(*_: Any) -> Any:
        raise AssertionError("the log is read")

    monkeypatch.setattr(ReadVersions, "replay_segment", fail)
    described = WITHOUT_PYTHON["table"](lake, request)
    assert described.properties["delta.appendOnly"] == "true"
    for name in ("schema", "partition_by", "properties", "defaults", "computed"):
        assert getattr(described, name) == getattr(at_version, name)
