"""Penstock's classes for Spark: where their jar is, and whether a session has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMIT_PROTOCOL: Final = "io.penstock.spark.CommitProtocol"
COMMIT_PROTOCOL_SETTING: Final = "spark.sql.sources.commitProtocolClass"
NAME: Final = "penstock-spark.jar"


def path() -> Path | None:
    """The jar that came with this package; None if the package was built without a Java compiler."""
    jar = Path(__file__).parent / "jars" / NAME
    return jar if jar.is_file() else None


def is_loaded(spark: SparkSession) -> bool:
    """Whether writes of a session go through Penstock's protocol.

    They do when its JVM has Penstock's classes and its commit protocol is ours. Never so over Spark Connect,
    where the JVM is somebody else's.
    """
    if not is_classic(spark):
        return False
    return spark.conf.get(COMMIT_PROTOCOL_SETTING) == COMMIT_PROTOCOL and is_in(spark._jvm)


def is_classic(spark: SparkSession) -> bool:
    """Whether a session has a JVM of its own, rather than a connection to a Spark Connect server."""
    return not type(spark).__module__.startswith("pyspark.sql.connect.")


def is_in(jvm: Any) -> bool:
    """Whether a JVM, as py4j shows it, finds our classes."""
    from py4j.protocol import Py4JJavaError

    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(COMMIT_PROTOCOL)
    except Py4JJavaError:
        return False
    return True
