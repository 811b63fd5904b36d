"""Of the matrix of features and operations, one operation of each feature, by Arrow. All cells are in
``tests/interop/test_feature_matrix.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from docs.delta_features import EXCEPTIONS, FEATURES, OPERATIONS, WRITERS
from penstock.lake.lake import Lake
from tests.formats.delta.feature_life import ArrowWriter, FeatureLife
from tests.formats.delta.feature_tables import TABLES

CHANGES = OPERATIONS[2:-1]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with penstock.open(tmp_path_factory.mktemp("diagonal") / "lake", author="tester") as lake:
        yield lake


def test_the_registry_names_the_tables_of_the_tests_and_operations_that_there_are() -> None:
    assert list(FEATURES) == list(TABLES)
    for feature, writer, operation in EXCEPTIONS:
        assert (feature in FEATURES, writer in WRITERS, operation in OPERATIONS) == (True, True, True)


@pytest.mark.parametrize(("number", "name"), list(enumerate(FEATURES)))
def test_one_operation_of_each_feature(lake: Lake, number: int, name: str) -> None:
    feature, key, operation = TABLES[name], f"t{number}", CHANGES[number % len(CHANGES)]
    writer = ArrowWriter(feature)
    writer.create(lake, key, [1, 2])
    life = FeatureLife(lake, key, writer, {1: "n1", 2: "n2"}, writer)
    life.live([operation])
    assert not life.refused
    for version, rows in life.versions.items():
        found = life.table.snapshot(version=version).to_arrow(columns=["id", "name"]).to_pylist()
        assert {row["id"]: row["name"] for row in found} == rows
        assert len(found) == len(rows)
    location = Path(life.table.location)
    lake.delta.release(key)
    lake.delta.adopt(location, key)
    assert lake.table(key).to_arrow(columns=["id"]).num_rows == len(life.rows)
