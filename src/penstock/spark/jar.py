"""Penstock's classes for Spark: where their jar is, and whether a session has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMIT_PROTOCOL: Final = "io.penstock.spark.CommitProtocol"
COMMIT_PROTOCOL_SETTING: Final = "spark.sql.sources.commitProtocolClass"
STREAM_PROTOCOL: Final = "io.penstock.spark.StreamProtocol"
STREAM_PROTOCOL_SETTING: Final = "spark.sql.streaming.commitProtocolClass"
"""Of Spark's streams to files, which would pass over what a path stands for."""
NAME: Final = "penstock-spark.jar"

_PLACE: Final = Path(__file__).parent / "jars"
_NOTE: Final = "missing.txt"


class MissingJar(NamedTuple):
    """Why there is no jar, and what would bring it."""

    reason: str
    remedy: str


def find_jar() -> Path | None:
    """The jar that came with this package; None if the package was built without it."""
    jar = _PLACE / NAME
    return jar if jar.is_file() else None


def lack_of_package() -> MissingJar:
    """Why this package, which has no jar, was built without: what the build has noted."""
    try:
        reason, remedy = (_PLACE / _NOTE).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return MissingJar("the reason was not recorded", "install Penstock with pip on a machine with a JDK")
    return MissingJar(reason, remedy)


LACK_OVER_CONNECT: Final = MissingJar(
    "with Spark Connect, the Spark of the server writes the files",
    "use a Spark session in this process, as penstock.spark.session() starts it",
)


def lack_of_session(spark: SparkSession) -> MissingJar:
    """Why writes of a session do not go through Penstock's protocol."""
    if not is_classic(spark):
        return LACK_OVER_CONNECT
    if not is_jar_loaded(spark._jvm):
        return lack_of_start()
    if not has_reads(spark):
        return MissingJar(
            "Spark was started without Penstock's jar, so reads do not go through Penstock",
            f"start Spark with --jars {find_jar() or NAME}",
        )
    return lack_of_protocol(spark.conf.get(COMMIT_PROTOCOL_SETTING) or "")


def lack_of_protocol(chosen: str) -> MissingJar:
    """Why they do not, where the classes are and somebody has chosen another protocol."""
    return MissingJar(f"the session's {COMMIT_PROTOCOL_SETTING} is {chosen}", f"set it to {COMMIT_PROTOCOL}")


def lack_of_start() -> MissingJar:
    """Why they do not, where the classes are not."""
    absent = "Penstock's jar is not in this Spark session"
    jar = find_jar()
    if jar is None:
        lack = lack_of_package()
        return MissingJar(f"{absent}: the package was built without it ({lack.reason})", lack.remedy)
    return MissingJar(
        f"{absent}: Spark was started without it",
        f"create it with penstock.spark.session(), or start Spark with --jars {jar}",
    )


def has_protocol(spark: SparkSession) -> bool:
    """Whether writes of a session go through Penstock's protocol.

    They do when its JVM has Penstock's classes and its commit protocol is ours.
    """
    return has_classes(spark) and spark.conf.get(COMMIT_PROTOCOL_SETTING) == COMMIT_PROTOCOL


def has_reads(spark: SparkSession) -> bool:
    """Whether what a session reads at paths that stand for tables is asked of the lake.

    It is if Spark was started with the jar: only then it takes in what the jar adds to sessions.
    """
    if not has_classes(spark):
        return False
    rules: Any = spark._jvm.io.penstock.spark.SessionRules  # type: ignore[union-attr]
    return bool(rules.areIn(spark._jsparkSession))


def has_classes(spark: SparkSession) -> bool:
    """Whether a session's JVM has Penstock's classes, which is all that reading needs.

    Never so over Spark Connect, where the JVM is somebody else's.
    """
    return is_classic(spark) and is_jar_loaded(spark._jvm)


def is_classic(spark: SparkSession) -> bool:
    """Whether a session has a JVM of its own, rather than a connection to a Spark Connect server."""
    return not type(spark).__module__.startswith("pyspark.sql.connect.")


def is_jar_loaded(jvm: Any) -> bool:
    """Whether a JVM, as py4j shows it, finds our classes."""
    from py4j.protocol import Py4JJavaError

    thread: Any = getattr(jvm, "java.lang.Thread")  # at once: by its packages it takes a question for each
    loader = thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(COMMIT_PROTOCOL)
    except Py4JJavaError:
        return False
    return True
