"""Manifests: which files Spark reads where it has not Penstock's jar."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.jar import COMMIT_PROTOCOL_SETTING
from penstock.spark.reader import read
from penstock.spark.scan import manifests
from penstock.spark.scan.frames import ReadSettings
from tests.formats.delta.logs import add
from tests.spark.reading_tables import SPARKS_OWN, put_file, shown, using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def manifests_of(table: Table) -> list[Path]:
    return sorted(Path(table.location, manifests.FOLDER).glob("*/_spark_metadata/*"))


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def test_the_same_files_are_read_by_one_manifest(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", data=ids(1))
    first = read(using(spark, "fallback"), "t")
    (manifest,) = manifests_of(table)
    os.utime(manifest, (manifest.stat().st_mtime - 60,) * 2)
    before = manifest.stat().st_mtime_ns
    assert shown(read(spark, "t")) == [(1,)]
    assert [one.stat().st_mtime_ns for one in manifests_of(table)] == [before]
    table.append(ids(2))
    assert shown(read(spark, "t")) == [(1,), (2,)]
    assert len(manifests_of(table)) == 2
    assert shown(first) == [(1,)]


@pytest.mark.parametrize("what_happened", ["old", "gone", "torn"])
def test_a_manifest_that_cleaning_up_may_take_away_is_written_again(
    spark: SparkSession, lake: Lake, what_happened: str
) -> None:
    table = lake.create_table("t", data=ids(1))
    read(using(spark, "fallback"), "t")
    (manifest,) = manifests_of(table)
    content = manifest.read_bytes()
    if what_happened == "old":
        os.utime(manifest, (1, 1))
    elif what_happened == "torn":
        manifest.write_bytes(content[:10])
    else:
        manifest.unlink()
    assert shown(read(spark, "t")) == [(1,)]
    assert manifest.read_bytes() == content
    assert manifest.stat().st_mtime > 1


def test_a_manifest_that_is_gone_is_an_error_and_not_a_table_without_rows(
    spark: SparkSession, lake: Lake
) -> None:
    """As Spark Connect meets it, which analyses a plan again whenever it is used."""
    from pyspark.errors import AnalysisException

    table = lake.create_table("t", data=ids(1))
    schema = read(using(spark, "fallback"), "t").schema
    (manifest,) = manifests_of(table)
    folder = manifest.parent.parent
    assert shown(manifests._read_manifest_files(spark, f"file://{folder}", schema, ReadSettings())) == [(1,)]
    manifest.unlink()
    for left in (manifest.parent, folder, folder.parent):
        assert left.is_dir()
        with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
            manifests._read_manifest_files(spark, f"file://{folder}", schema, ReadSettings())
        shutil.rmtree(left)


def test_a_manifest_costs_nothing_but_the_files_that_it_names(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("t", data=ids(1))
    rows: Any = read(using(spark, "fallback"), "t")
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert plan.count("FileScan") == 1
    assert "Join" not in plan


def test_a_session_with_the_jar_and_another_commit_protocol_reads_without_a_manifest(
    spark: SparkSession, lake: Lake
) -> None:
    table = lake.create_table("t", data=ids(1))
    spark.conf.set(COMMIT_PROTOCOL_SETTING, SPARKS_OWN)
    assert shown(read(spark, "t")) == [(1,)]
    assert manifests_of(table) == []


NAMES = [
    "a b.parquet",
    "p=ü%2F/c+d.parquet",
    "100%.parquet",
    "q/%41.parquet",
    "A.parquet",
    "q/A.parquet",
    "[x]{y}~'!$&,;@.parquet",
]


def test_every_file_is_found_by_its_own_name(spark: SparkSession, lake: Lake) -> None:
    """Names that percent-encoding could mix up: each file has another value for its rows."""
    schema = pa.schema({"id": pa.int64(), "p": pa.string()})
    table = lake.create_table("t", schema=schema, partition_by="p")
    adds = []
    for number, name in enumerate(NAMES):
        file = put_file(Path(table.location), name, ids(number), partition_values={"p": name})
        adds.append(replace(file, path=quote(name)))
    table.append_actions(adds)
    wanted = sorted(enumerate(NAMES))
    assert sorted(shown(read(spark, "t"))) == wanted
    assert sorted(shown(read(using(spark, "fallback"), "t"))) == wanted


def test_a_file_that_spark_names_otherwise_is_an_error_and_not_fewer_rows(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    lake.create_table("t", data=pa.table({"id": [1, 2], "p": ["a", "b"]}), partition_by="p")
    monkeypatch.setattr(manifests, "_address_spellings", lambda address: (f"elsewhere:{address}",))
    rows = read(using(spark, "fallback"), "t")
    assert rows.select("id").count() == 2
    with pytest.raises((Py4JError, PySparkException), match="uses another name for a file"):
        rows.collect()


def test_a_table_opens_without_a_look_at_its_files(spark: SparkSession, lake: Lake) -> None:
    """None of the files exists but one: whoever listed them, or asked for their sizes, would be told so."""
    schema = pa.schema({"id": pa.int64(), "p": pa.string()})
    table = lake.create_table("t", schema=schema, partition_by="p")
    real = put_file(Path(table.location), "real.parquet", ids(7), partition_values={"p": "real"})
    table.append_actions([real, *(add(f"{one}.parquet", partition_values={"p": "x"}) for one in range(2000))])
    rows = read(spark, "t")
    assert len(rows.inputFiles()) == 2001
    assert shown(rows.where("p = 'real'")) == [(7, "real")]
    assert len(read(using(spark, "fallback"), "t").inputFiles()) == 2001
    assert shown(read(spark, "t", where="p = 'real'")) == [(7, "real")]
