"""Every operation, on a table of every feature, by Arrow and by Spark; Delta Spark makes the tables, reads
back what became of them, and writes them once they are released. What each cell comes to stands in
``docs/delta_features.py``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from docs.delta_features import EXCEPTIONS, FEATURES, OPERATIONS, WRITERS
from penstock import Settings
from penstock.errors import UnsupportedFeature
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.sessions import session
from tests.formats.delta.feature_life import ArrowWriter, FeatureLife, Rows, SparkWriter, Writer
from tests.formats.delta.feature_tables import TABLES, FeatureTable
from tests.interop.delta.session import DeltaSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PHASES = (("append", "delete", "update", "merge", "branch and merge", "revert"), ("overwrite",), ("restore",))
"""Delta Spark reads the table after each: no operation hides what another one of the same phase did."""


VERIFIED = {
    "columnMapping (id)",
    "rowTracking",
    "deletionVectors",
    "icebergCompatV3",
}
"""What differs most in what it asks of a writer. A table takes 15 s: `make reliability` tries the others."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """One for all features: they share a Spark, too."""
    root = tmp_path_factory.mktemp("matrix")
    with penstock.init(root / "lake", roots=[str(root)], settings=Settings(publish_wait_s=20.0)) as lake:
        yield lake


@pytest.fixture(scope="module")
def own_spark(started_spark: SparkSession, lake: Lake) -> SparkSession:
    return session(lake)


def make(spark: DeltaSpark, feature: FeatureTable, name: str, location: Path) -> None:
    """A table of Delta Spark's, with rows 1 and 2."""
    columns = ", ".join(filter(None, (feature.first, feature.columns)))
    clause = f"{feature.clause} {feature.property_clause}"
    spark.sql(f"CREATE TABLE {name} ({columns}) USING delta {clause} LOCATION '{location}'")
    insert(spark, feature, name, feature.first, 1, 2)
    for statement in feature.statements:
        spark.sql(statement.format(t=name))


def insert(spark: DeltaSpark, feature: FeatureTable, name: str, columns: str, *numbers: int) -> None:
    names = [column.split()[0] for column in columns.split(", ")]
    extra = "".join(f", {text}" for _, _, text in feature.extra.values())
    values = " UNION ALL ".join(f"SELECT {n}, 'n{n}'{extra}" for n in numbers)
    one_file = f"SELECT /*+ COALESCE(1) */ * FROM ({values})"
    spark.sql(f"INSERT INTO {name} ({', '.join([*names, *feature.extra])}) {one_file}")


def check_versions(spark: DeltaSpark, feature: FeatureTable, table: Table, versions: dict[int, Rows]) -> None:
    """Delta Spark finds in versions the rows that they must have."""
    table.backfill_to_version()
    shown = "".join(f", {expression}" for expression in feature.shown)
    asked = " UNION ALL ".join(
        f"SELECT {version}, id, name{shown} FROM delta.`{table.location}` VERSION AS OF {version}"
        for version in versions
    )
    wanted = [
        [version, number, name, *feature.shown.values()]
        for version, rows in versions.items()
        for number, name in rows.items()
    ]
    assert sorted(spark.sql(asked)) == sorted(wanted)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in VERIFIED else pytest.mark.reliability) for name in FEATURES],
)
def test_every_operation_on_a_table_of_a_feature(
    spark: DeltaSpark,
    own_spark: SparkSession,
    lake: Lake,
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
) -> None:
    feature, number = TABLES[name], list(FEATURES).index(name)
    root = Path(lake.url).parent
    made = root / f"made{number}"
    make(spark, feature, f"made{number}", made)
    arrow = ArrowWriter(feature)
    writers: dict[str, Writer] = {"Arrow": arrow, "Spark": SparkWriter(feature, own_spark)}
    for kind in WRITERS:
        outcomes = dict(
            live(spark, lake, f"{kind.lower()}{number}", made, feature, writers[kind], arrow, kind, name)
        )
        wanted = {operation: EXCEPTIONS.get((name, kind, operation)) for operation in OPERATIONS}
        for operation, cell in wanted.items():
            if cell is None or cell.is_refused:
                assert (outcomes.get(operation) is not None) == (cell is not None), (
                    kind,
                    operation,
                    outcomes,
                )


def live(
    spark: DeltaSpark,
    lake: Lake,
    key: str,
    made: Path,
    feature: FeatureTable,
    writer: Writer,
    arrow: ArrowWriter,
    kind: str,
    name: str,
) -> Iterator[tuple[str, UnsupportedFeature]]:
    """Do everything, and tell what was refused."""
    if EXCEPTIONS.get((name, kind, "create")) is None:
        writer.create(lake, f"new.{key}", [1, 2])
        created = lake.table(f"new.{key}")
        check_versions(spark, feature, created, {created.version: {1: "n1", 2: "n2"}})
    elif EXCEPTIONS[name, kind, "create"].is_refused:
        try:
            writer.create(lake, f"new.{key}", [1, 2])
        except UnsupportedFeature as refusal:
            yield "create", refusal
    location = made.with_name(f"{made.name}-{kind}")
    shutil.copytree(made, location)
    lake.delta.adopt(location, f"adopted.{key}")
    life = FeatureLife(lake, f"adopted.{key}", writer, {1: "n1", 2: "n2"}, arrow)
    shown: dict[int, Rows] = {}
    for operations in PHASES:
        life.live(operations)
        shown[life.table.version] = life.rows
    yield from life.refused.items()
    for version, rows in life.versions.items():
        found = life.table.snapshot(version=version).to_arrow(columns=["id", "name"]).to_pylist()
        assert sorted(map(tuple, (row.values() for row in found))) == sorted(rows.items()), version
    check_versions(spark, feature, life.table, shown)
    lake.delta.release(f"adopted.{key}")
    insert(spark, feature, f"delta.`{location}`", "id BIGINT, name STRING", 1000)
    ids: list[list[Any]] = spark.sql(f"SELECT id FROM delta.`{location}`")
    assert sorted(row[0] for row in ids) == [*sorted(life.rows), 1000]
