"""SQL over a lake: procedures that keep tables in order, and say what they did."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import EraseRefused, InvalidRequest, KeyNotFound
from penstock.lake.lake import Lake
from penstock.spark.settings import CATALOG, find_catalog_class
from tests.remote.serving import serving
from tests.spark.sql_session import ids, refusal, run
from tests.transactions.pipelines import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def call(spark: SparkSession, procedure: str) -> list[dict[str, Any]]:
    """The rows that a procedure answers, by the names of their columns."""
    return [row.asDict() for row in spark.sql(f"CALL {procedure}").collect()]


def write_three_times(lake: Lake, key: str) -> None:
    for number in (1, 2, 3):
        lake.table(key).write(rows(number), format="delta")


@pytest.mark.verify
def test_files_of_a_table_are_put_together(lake: Lake, spark: SparkSession) -> None:
    write_three_times(lake, "s.t")
    lake.branch("dev").create()
    (answer,) = call(
        spark,
        "lake.system.optimize(table => 's.t', zorder_by => array('id'), branch => 'dev', message => 'z')",
    )
    assert (answer["key"], answer["files_removed"], answer["files_added"]) == ("s.t", 3, 1)
    assert answer["version"] == lake.table("s.t", "dev").version
    assert len([*lake.table("s.t").snapshot().files()]) == 3
    assert lake.log("dev", limit=1)[0].message == "z"
    (answer,) = call(spark, "lake.system.optimize('s.t')")
    assert answer["files_removed"] == 3
    (answer,) = call(spark, "lake.system.optimize('s.t')")
    assert (answer["version"], answer["files_removed"]) == (None, 0)
    assert ids(spark, "lake.s.t") == ids(spark, "lake.s.`t@dev`") == [1, 2, 3]
    assert isinstance(refusal(spark, "CALL lake.system.optimize('s.none')"), KeyNotFound)
    run(spark, "BEGIN TRANSACTION IN lake")
    assert "COMMIT or ROLLBACK" in str(refusal(spark, "CALL lake.system.optimize('s.t')"))
    run(spark, "ROLLBACK IN lake")


@pytest.mark.verify
def test_a_table_is_restored_to_a_revision_a_version_or_a_time(lake: Lake, spark: SparkSession) -> None:
    write_three_times(lake, "s.t")
    time = lake.show("main~1").time.isoformat()
    (answer,) = call(spark, "lake.system.restore(table => 's.t', version => 0, dry_run => true)")
    assert (answer["is_changed"], answer["rows_added"], answer["rows_removed"]) == (True, 0, 2)
    assert ids(spark, "lake.s.t") == [1, 2, 3]
    for how, expected in (
        ("version => 0", [1]),
        (f"timestamp => '{time}'", [1, 2]),
        ("to_ref => 'main~2'", [1, 2, 3]),
    ):
        (answer,) = call(spark, f"lake.system.restore(table => 's.t', {how})")
        assert answer["hash"] == lake.branch().head
        assert ids(spark, "lake.s.t") == expected
    assert isinstance(refusal(spark, "CALL lake.system.restore('s.t')"), InvalidRequest)
    assert isinstance(refusal(spark, "CALL lake.system.restore('s.t', 'main', version => 1)"), InvalidRequest)


@pytest.mark.parametrize("is_served", [False, pytest.param(True, marks=pytest.mark.verify)])
def test_what_nothing_needs_is_counted_and_removed(lake: Lake, spark: SparkSession, is_served: bool) -> None:
    write_three_times(lake, "s.t")
    lake.table("s.f").write(rows(1), format="parquet")
    lake.table("s.t").delete("id = 2")
    with serving(lake.catalogue) as server:
        for setting, value in {"": find_catalog_class(), ".lake": server.url}.items():
            spark.conf.set(f"{CATALOG}served{setting}", value)
        system = "served.system" if is_served else "lake.system"
        (answer,) = call(spark, f"{system}.vacuum(table => 's.t', dry_run => true)")
        assert (answer["key"], answer["files"], answer["is_removed"], answer["problem"]) == (
            "s.t",
            0,
            False,
            None,
        )
        assert answer["kept"] == 3
        assert call(spark, f"{system}.vacuum('s.t')")[0]["kept"] == 3
        swept = call(spark, f"{system}.sweep(remove_data => true, dry_run => true)")
        assert [(row["part"], row["key"]) for row in swept] == [
            ("objects of the lake", None),
            ("table", "s.t"),
            ("tables of files", None),
        ]
        assert swept[0]["kept"] > 0
        assert len(call(spark, f"{system}.sweep()")) == 3
        lake.tag("old").create("main~1")
        dry = call(spark, f"{system}.erase(table => 's.t', dry_run => true)")[0]
        assert (dry["key"], dry["is_finished"]) == ("s.t", False)
        assert "old" in dry["remaining"]
        assert isinstance(refusal(spark, f"CALL {system}.erase('s.t')"), EraseRefused)
        erased = call(spark, f"{system}.erase(table => 's.t', all_references => true)")[0]
        assert erased["is_finished"] or erased["until"].astimezone(UTC) > datetime.now(UTC)
        assert ids(spark, "lake.s.t") == [1, 3]
        for statement in ("vacuum('s.none')", "erase('s.none')", "vacuum()"):
            with pytest.raises(Exception, match=r"s\.none|REQUIRED"):
                run(spark, f"CALL {system}.{statement}")
        if is_served:
            assert "PySpark" in str(refusal(spark, f"CALL {system}.optimize('s.t')"))
    assert lake.transactions() == []
