"""A Python process for a Spark driver that has none: it works with its Spark, and answers its catalogs.

    python -m penstock.spark.attached

Penstock's jar starts it, where a catalog names a Python, with the address and the secret of the driver's JVM
in its environment, as spark-submit starts the Python of a PySpark program. It ends when its standard input
does, which is when the driver ends.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from penstock.lake.opener import open_lake
from penstock.spark.driver import Driver, wrap_session
from penstock.spark.job.parquet_settings import unset_settings
from penstock.spark.option_guard import guard_options
from penstock.spark.settings import PROTOCOLS, WRITES, keep_errors_off_the_terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.lake import Lake

SECRET: Final = "PYSPARK_GATEWAY_SECRET"
"""The variable of the environment with the secret by which the driver's JVM lets this process in."""


class Answerers:
    """Who answers for the lakes of servers, each opened once."""

    Java: Final = SimpleNamespace(implements=["io.penstock.spark.LakeAnswerers"])
    """As py4j wants to be told of what the JVM may call."""

    def isThere(self) -> bool:  # noqa: N802 - as the JVM calls it
        return True

    def of(self, address: str, token: str) -> Driver:
        """Nothing is asked of the server yet: its errors are those of a statement."""
        lake = _ServedLake(address, token)
        return Driver("", lambda _: lake.open(), _prepare_session)


class _ServedLake:
    def __init__(self, address: str, token: str) -> None:
        self._address, self._token = address, token
        self._lake: Lake | None = None
        self._opening = Lock()

    def open(self) -> Lake:
        """The lake, which is opened when it is first asked for."""
        with self._opening:
            if self._lake is None:
                self._lake = open_lake(self._address, token=self._token or None)
            return self._lake


def _prepare_session(java: Any) -> SparkSession:
    """A session of the JVM, which writes as sessions do that Python makes for a lake."""
    spark = wrap_session(java)
    for name, value in unset_settings(spark, WRITES | PROTOCOLS).items():
        spark.conf.set(name, value)
    return spark


def attach() -> Any:
    """Work with the Spark of the driver that started this process; returns the JVM."""
    import pyspark
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    assert jvm is not None
    java = jvm.io.penstock.spark.PythonProcess.context()
    if java.version() != pyspark.__version__:
        sys.exit(
            f"the driver runs Spark {java.version()}, but {sys.executable} has PySpark "
            f"{pyspark.__version__}: set SPARK_HOME for the driver, or install the same release"
        )
    SparkContext(conf=SparkConf(_jvm=jvm, _jconf=java.getConf()), gateway=gateway, jsc=java)
    return jvm


def main() -> None:
    """Answer until the driver ends."""
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started

    jvm = attach()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a terminal cancels is the driver's to end
    keep_errors_off_the_terminal()
    guard_options()
    ensure_callback_server_started(SparkContext._gateway)  # type: ignore[no-untyped-call]
    jvm.io.penstock.spark.PythonProcess.ready(os.environ[SECRET], Answerers())
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)  # the JVM is gone: there is nobody to say goodbye to


if __name__ == "__main__":
    main()
