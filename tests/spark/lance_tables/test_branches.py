"""Branches, transactions and commits: what is written where, and who sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import KeyNotFound
from penstock.formats.lance.lake.calls import GetLanceTable
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.spark import read, view
from tests.remote.serving import serving
from tests.spark.lance_tables.cases import ITEMS, head, ids, rows, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.verify
def test_a_branch_has_its_own_rows_until_it_is_merged(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    dev = lake.branch("dev").create(at="main")
    save(rows(spark, 10), branch="dev")
    save(rows(spark, 30), "vectors.new", branch="dev")
    save(rows(spark, 20))
    assert sorted(one.id for one in read(spark, ITEMS, ref="dev").collect()) == [0, 1, 2, 10, 11, 12]
    assert ids(lake) == [0, 1, 2, 20, 21, 22]
    with pytest.raises(KeyNotFound):
        read(spark, "vectors.new")
    dev.merge_into("main")
    assert ids(lake) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    save(rows(spark, 40), "vectors.new")
    assert sorted(one.id for one in read(spark, "vectors.new").collect()) == [30, 31, 32, 40, 41, 42]


@pytest.mark.verify
def test_a_transaction_sees_what_it_wrote_and_nobody_else_does(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    before = head(lake)
    with lake.transaction() as tx:
        save(rows(spark, 10), branch=tx.branch)
        save(rows(spark, 30), "vectors.new", branch=tx.branch)
        assert read(spark, ITEMS, ref=tx.branch).count() == 6
        assert read(spark, "vectors.new", ref=tx.branch).count() == 3
        assert (head(lake), read(spark, ITEMS).count()) == (before, 3)
    assert ids(lake) == [0, 1, 2, 10, 11, 12]
    assert ids(lake, "vectors.new") == [30, 31, 32]


@pytest.mark.verify
def test_a_job_that_fails_in_a_transaction_takes_back_the_table_that_it_declared(
    spark: SparkSession, lake: Lake
) -> None:
    with lake.transaction() as tx:
        with pytest.raises(Exception, match="no more"):
            save(spark.range(3).selectExpr("IF(id = 2, raise_error('no more'), id) AS id"), branch=tx.branch)
        with pytest.raises(KeyNotFound):
            lake.do(GetLanceTable(key=Key.parse(ITEMS), at=tx.branch))


@pytest.mark.verify
def test_views_are_all_of_one_commit(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    save(rows(spark, 5), "vectors.others")
    commit = view(spark, ITEMS, "vectors.others")
    save(rows(spark, 10))
    assert commit == lake.resolve("main~1")
    (both,) = spark.sql("SELECT (SELECT count(*) FROM items), (SELECT max(id) FROM others)").collect()
    assert tuple(both) == (3, 7)


@pytest.fixture
def remote(lake: Lake) -> Iterator[Lake]:
    """The test's lake, as a client of its server has it."""
    with serving(lake.catalogue) as served, penstock.open(served.url) as opened:
        yield opened


@pytest.mark.verify
def test_a_lake_behind_a_server_is_written_and_read_alike(
    spark: SparkSession, lake: Lake, remote: Lake
) -> None:
    first = save(rows(spark, 0), lake=remote, job_id="first")
    again = save(rows(spark, 0), lake=remote, job_id="first")
    assert first is not None
    assert again is not None
    assert again.commit == first.commit
    remote.branch("dev").create(at="main")
    save(rows(spark, 10), lake=remote, branch="dev")
    assert read(spark, ITEMS, lake=remote, ref="dev").count() == 6
    assert ids(lake) == [0, 1, 2]
    assert ids(lake, ref="dev") == [0, 1, 2, 10, 11, 12]
