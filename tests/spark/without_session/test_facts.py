"""What a write of Spark's means for the lake, decided from what Spark tells of it."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.session_facts import WriteFacts, find_job
from penstock.lake.write_jobs import SaveMode
from penstock.spark.settings import settings_of_tables
from penstock.storage.hadoop import ACCOUNT

TABLES = {
    "/data/raw": "raw.all",
    "/data/raw/events": "raw.events",
    "s3://bucket/orders/": "raw.orders",
    "hdfs://name/x": "raw.x",
}


def facts(path: str = "file:/data/raw/events", **more: Any) -> WriteFacts:
    return WriteFacts(
        **{
            "job": "j",
            "attempt": "a",
            "path": path,
            "home": "file:///",
            "tables": json.dumps(TABLES),
            "mode": "Append",
            **more,
        }
    )


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("file:/data/raw/events", ("raw.events", "")),
        ("file:/data/raw/events/day=1/x", ("raw.events", "day=1/x/")),
        ("file:/data/raw/events2", ("raw.all", "events2/")),
        ("file:///data/raw/", ("raw.all", "")),
        ("file:/data", None),
        ("hdfs://name/data/raw", None),
        ("s3a://bucket/orders", ("raw.orders", "")),
        ("s3a://bucket2/orders", None),
        ("hdfs://name/x/y", ("raw.x", "y/")),
        ("hdfs://other/x/y", None),
    ],
)
def test_the_longest_path_that_is_mapped_names_the_table_and_the_rest_is_a_folder(
    path: str, found: tuple[str, str] | None
) -> None:
    job = find_job(facts(path))
    assert (None if job is None else (str(job.key), job.folder)) == found


def test_a_path_without_a_scheme_is_in_the_file_system_that_spark_starts_from() -> None:
    assert find_job(facts("hdfs://name/data/raw", home="hdfs://name")) is not None
    assert find_job(facts("file:/data/raw", home="hdfs://name")) is None


def test_an_option_names_the_table_whatever_the_path() -> None:
    job = find_job(facts(options={"penstock.table": "sales.orders"}))
    assert job is not None
    assert (str(job.key), job.folder) == ("sales.orders", "")


@pytest.mark.parametrize(
    ("mapped", "path"),
    [
        ("s3n://bucket/x/", "s3a://bucket/x"),
        ("S3://Bucket/x", "s3a://bucket/x"),
        ("az://raw/x", "abfss://raw@shop.dfs.core.windows.net/x"),
        ("abfs://raw@shop.dfs.core.windows.net/x", "abfss://raw@shop.dfs.core.windows.net/x"),
        ("wasbs://raw@shop.blob.core.windows.net/x", "az://raw/x"),
        ("hdfs://name/x", "hdfs://name:8020/x"),
        ("hdfs://NAME:8020/x", "hdfs://name/x"),
        ("file://localhost/data//x/.", "file:/data/x"),
        ("/data/x", "file:///data/y/../x"),
        ("file:///data/a%20b", "file:/data/a b"),
        ("/data/a%20b", "file:/data/a%20b"),
    ],
)
def test_a_place_is_the_same_however_it_is_spelled(
    monkeypatch: pytest.MonkeyPatch, mapped: str, path: str
) -> None:
    monkeypatch.setenv(ACCOUNT, "shop")
    job = find_job(facts(f"{path}/p=a%2Fb", tables=json.dumps({mapped: "raw.events"})))
    assert job is not None
    assert (str(job.key), job.folder) == ("raw.events", "p=a%2Fb/")


@pytest.mark.parametrize(
    ("mapped", "path"),
    [
        ("az://raw/x", "abfss://raw@other.dfs.core.windows.net/x"),
        ("hdfs://name/x", "hdfs://name:9000/x"),
        ("/data/a b", "file:/data/a%20b"),
        ("s3://bucket/X", "s3a://bucket/x"),
    ],
)
def test_another_place_is_another(monkeypatch: pytest.MonkeyPatch, mapped: str, path: str) -> None:
    monkeypatch.setenv(ACCOUNT, "shop")
    assert find_job(facts(path, tables=json.dumps({mapped: "raw.events"}))) is None


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"/data/x/../y": "raw.y"}, r"'/data/x/\.\./y' cannot be mapped to 'raw.y'"),
        ({"s3://b/x": "raw.x", "s3a://b/x/": "raw.y"}, "is mapped to both 'raw.x' and 'raw.y'"),
        ({"az://raw/x": "raw.x"}, ACCOUNT),
    ],
)
def test_paths_that_could_be_missed_are_refused_when_a_session_is_told_of_them(
    monkeypatch: pytest.MonkeyPatch, tables: dict[str | os.PathLike[str], str], message: str
) -> None:
    monkeypatch.delenv(ACCOUNT, raising=False)
    with pytest.raises(InvalidRequest, match=message):
        settings_of_tables(tables)
    with pytest.raises(InvalidRequest, match=message):
        find_job(facts(tables=json.dumps(tables)))


@pytest.mark.parametrize("given", [None, "append", "overwrite", "error", "ignore"])
@pytest.mark.parametrize("spark", ["Append", "Overwrite", "ErrorIfExists", "Ignore"])
def test_the_lakes_mode_counts_and_without_it_only_two_of_sparks_do(spark: str, given: str | None) -> None:
    asked = facts(mode=spark, options={} if given is None else {"penstock.mode": given})
    if given is None and spark in ("ErrorIfExists", "Ignore"):
        meant = "error" if spark == "ErrorIfExists" else "ignore"
        with pytest.raises(InvalidRequest) as caught:
            find_job(asked)
        assert f'.mode("append").option("penstock.mode", "{meant}")' in caught.value.message
        return
    job = find_job(asked)
    assert job is not None
    assert job.mode is (SaveMode(given) if given is not None else SaveMode(spark.lower()))


def test_a_write_that_spark_would_skip_is_refused_even_if_its_mode_is_given() -> None:
    with pytest.raises(InvalidRequest, match="Spark decides mode 'ignore'"):
        find_job(facts(mode="Ignore", is_skipped=True, options={"penstock.mode": "ignore"}))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mode": ""}, "does not pass on the details of a write"),
        ({"if_not_exists": True}, "IF NOT EXISTS"),
        ({"statement": "SaveAsV1TableCommand"}, "saveAsTable and CREATE TABLE AS"),
        ({"statement": "CreateDataSourceTableAsSelectCommand"}, "saveAsTable and CREATE TABLE AS"),
        ({"options": {"penstock.mode": "upsert"}}, "unknown penstock.mode 'upsert'; the modes are append,"),
        ({"options": {"penstock.moed": "append"}}, "unknown option 'penstock.moed'"),
        ({"options": {"penstock.job_branch": "yes"}}, "penstock.job_branch must be true or false, got 'yes'"),
        ({"options": {"penstock.timeout_s": "1h"}}, "penstock.timeout_s must be a number of seconds"),
        ({"mode": "Overwrite", "partition_overwrite": "both"}, "unknown partition overwrite mode 'both'"),
        ({"tables": "raw"}, "spark.penstock.tables must be a JSON object"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        find_job(facts(**more))


@pytest.mark.parametrize(
    ("static_folder", "setting", "option", "is_dynamic"),
    [
        ("", "static", None, False),
        ("", "dynamic", None, True),
        ("", "DYNAMIC", None, True),
        ("", "dynamic", "static", False),
        ("", "static", "dynamic", True),
        ("a=1/", "dynamic", None, True),
        ("a=1/b=2/", "dynamic", None, False),
    ],
)
def test_partitions_are_overwritten_as_the_option_or_the_session_says_unless_all_are_fixed(
    static_folder: str, setting: str, option: str | None, is_dynamic: bool
) -> None:
    job = find_job(
        facts(
            mode="Overwrite",
            partition_by=("a", "b"),
            static_folder=static_folder,
            partition_overwrite=setting,
            options={} if option is None else {"penstock.partition_overwrite": option},
        )
    )
    assert job is not None
    assert job.is_dynamic == is_dynamic


def test_columns_in_the_path_are_partition_columns_of_the_table() -> None:
    job = find_job(facts("file:/data/raw/events/day=1", partition_by=("hour",), schema="{}", format="csv"))
    assert job is not None
    assert (job.layout.partition_by, job.layout.schema) == (("day", "hour"), "{}")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"options": {"penstock.tabel": "raw.x"}}, "unknown option 'penstock.tabel' for a write"),
        ({"options": {"penstock.branch": "dev"}}, "but no table: the path is not mapped to one"),
        (
            {"settings": ("spark.penstock.lake", "spark.penstock.tabels")},
            "unknown setting 'spark.penstock.tabels'",
        ),
    ],
)
def test_names_that_there_are_not_are_refused_also_where_no_table_is_named(
    more: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why):
        find_job(facts("file:/elsewhere", **more))


def test_a_session_that_would_not_read_what_it_writes_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"could not read 'raw\.events' at file:/data/raw/events"):
        find_job(facts(has_reads=False))
    assert find_job(facts("file:/elsewhere", has_reads=False)) is None
