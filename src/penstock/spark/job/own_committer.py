"""Jobs that write by Spark's own committer, because Penstock's jar is not there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from penstock.spark import jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITTER: Final = {
    # Clusters often set the second version, which shows files of attempts that fail later.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_RENAMED: Final = (
    "files are written through Spark's own committer, and each is renamed once, in a bucket by a copy, "
    "because %s. To have them written straight to their place: %s"
)
_WARNED: Final[WeakSet[Any]] = WeakSet()
_LOG: Final = logging.getLogger("penstock.spark")


def warn_of_renames(spark: SparkSession) -> None:
    """Say once in a session what it lacks."""
    if spark not in _WARNED:
        _WARNED.add(spark)
        lack = jar.lack_of_session(spark)
        _LOG.warning(_RENAMED, lack.reason, lack.remedy)
