"""What Spark and PySpark say of errors on the terminal: nothing that was not asked for."""

from __future__ import annotations

import logging
import logging.handlers
from io import StringIO
from typing import TYPE_CHECKING

import pytest

from penstock.spark import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_errors_of_queries_are_raised_and_not_printed_as_well(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    for name in settings.ERROR_LOGS:
        kinds = [type(one) for one in logging.getLogger(name).handlers]  # pytest may have put some there
        assert logging.NullHandler in kinds
        assert logging.StreamHandler not in kinds
    with pytest.raises(AnalysisException, match="nowhere"):
        spark.sql("SELECT nowhere FROM range(1)")
    with pytest.raises(AnalysisException, match="nowhere"):
        spark.range(1).select(f.col("nowhere"))
    assert capfd.readouterr() == ("", "")


def test_a_log_that_the_user_wants_goes_on(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    log = logging.getLogger(settings.ERROR_LOGS[0])
    wanted = logging.StreamHandler(told := StringIO())
    log.addHandler(wanted)
    try:
        settings.keep_errors_off_the_terminal()
        with pytest.raises(AnalysisException):
            spark.sql("SELECT nowhere FROM range(1)")
    finally:
        log.removeHandler(wanted)
    assert "UNRESOLVED_COLUMN" in told.getvalue()
