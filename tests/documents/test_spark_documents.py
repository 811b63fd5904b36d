"""The examples that need Spark are true, in the suite's Spark. README starts its own in tests/release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.documents.pages import DOCUMENTS_WITH_SPARK, as_parameters
from tests.documents.runner import WrongDocument, run_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("path", as_parameters(DOCUMENTS_WITH_SPARK))
def test_the_examples_of_a_document_are_true(path: Path, tmp_path: Path, started_spark: SparkSession) -> None:
    run_document(str(path), path.read_text("utf-8"), tmp_path)
    assert started_spark.range(3).count() == 3


# --- what the runner does with the Spark that runs --------------------------------------------------------

SESSION = """
```python
import penstock
from penstock.spark import session

lake = penstock.open("./lake")
spark = session(lake)
```
"""


def test_relative_paths_of_spark_lie_below_the_documents_directory(
    tmp_path: Path, started_spark: SparkSession
) -> None:
    text = (
        SESSION
        + """
```python
spark.range(2).write.parquet("numbers")
spark.stop()
lake.close()
```
"""
    )
    run_document("example.md", text, tmp_path)
    assert (tmp_path / "numbers" / "_SUCCESS").exists()


def test_a_session_that_was_stopped_does_nothing_more(tmp_path: Path, started_spark: SparkSession) -> None:
    text = SESSION + "```python\nspark.stop()\nlake.close()\nspark.range(2).count()\n```\n"
    with pytest.raises(WrongDocument, match=r"^example\.md:12: AttributeError"):
        run_document("example.md", text, tmp_path)
    assert started_spark.range(2).count() == 2


def test_a_document_stops_its_session(tmp_path: Path, started_spark: SparkSession) -> None:
    with pytest.raises(WrongDocument, match="'spark' is never stopped"):
        run_document("example.md", SESSION + "```python\nlake.close()\n```\n", tmp_path)
