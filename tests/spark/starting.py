"""The one Spark of a process of the suite: started when it is first asked for, small and quiet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Compiled once and quickly rather than well: what runs for seconds does not repay more.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Nor does a query of ten rows repay a Java class of its own: Spark does the same without. README, and tests
# on clusters, run Spark as it comes.
INTERPRETED = {"spark.sql.codegen.wholeStage": False, "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="session")
def started_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark of this process. It works with a lake that no test writes to."""
    from penstock.spark.java import find_java
    from penstock.spark.sessions import session

    try:
        find_java()
    except InvalidRequest as missing:
        pytest.skip(missing.message)
    home = tmp_path_factory.mktemp("spark")
    with penstock.open(home / "lake", create=True) as lake:
        spark = session(
            lake,
            app="penstock tests",
            master="local[2]",
            conf={
                "spark.ui.enabled": False,
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.warehouse.dir": home / "warehouse",
                "spark.local.dir": home / "scratch",
                "spark.driver.extraJavaOptions": QUICK_JVM,
                **INTERPRETED,
            },
        )
        yield spark
        spark.stop()
