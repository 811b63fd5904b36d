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
    "files are written through Spark's own committer, which renames each file once (copies it, in a "
    "bucket), because %s. To write files directly to their final location: %s"
)
_WARNED: Final[WeakSet[Any]] = WeakSet()
_LOG: Final = logging.getLogger("penstock.spark")


def warn_of_renames(spark: SparkSession) -> None:
    """Say once in a session what it lacks."""
    if spark not in _WARNED:
        _WARNED.add(spark)
        lack = jar.lack_of_session(spark)
        _LOG.warning(_RENAMED, lack.reason, lack.remedy)
