"""The Spark application that a job is part of, as commits tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.spark import jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkApplication(NamedTuple):
    """A Spark application; what is not known of it is empty."""

    id: str
    name: str


def get_application(spark: SparkSession) -> SparkApplication:
    """The application of a session."""
    application_id = (
        spark.sparkContext.applicationId if jar.is_classic(spark) else spark.conf.get("spark.app.id", "")
    )
    return SparkApplication(application_id or "", spark.conf.get("spark.app.name", "") or "")
