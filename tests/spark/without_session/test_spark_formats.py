"""What the formats declare of their tables to Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.registry import list_table_formats
from penstock.spark.format import SparkFormat, default_format, files_format, get_named_format, spark_formats
from penstock.spark.requests import ReadOptions, WriteOptions
from penstock.spark.writer import check_write_options

OF_ALL = {"create", "options", "properties"}


def test_one_format_is_the_default_and_one_is_for_sources_of_spark() -> None:
    assert [one for one in spark_formats() if one.is_default] == [default_format()]
    assert [one for one in spark_formats() if one.source_name is None] == [files_format()]
    assert get_named_format("orc") is files_format()
    for one in spark_formats():
        assert one.source_name is None or get_named_format(one.source_name) is one


def test_a_format_is_the_same_to_spark_as_to_the_lake() -> None:
    declared = {one.content_type for one in list_table_formats() if one.spark is not None}
    assert {one.content_type for one in spark_formats()} == declared


def test_every_argument_that_callers_may_write_is_taken_by_a_format_and_the_other_way_round() -> None:
    written = frozenset[str]().union(*(one.write_options for one in spark_formats()))
    assert written == WriteOptions.__optional_keys__ - OF_ALL
    read = frozenset[str]().union(*(one.read_options for one in spark_formats()))
    assert read == ReadOptions.__optional_keys__ - {"format"}


@pytest.mark.parametrize("chosen", spark_formats(), ids=lambda one: one.described)
def test_an_argument_of_another_format_is_refused_by_name(chosen: SparkFormat) -> None:
    for name in sorted(WriteOptions.__optional_keys__ - OF_ALL - chosen.write_options):
        check_write_options(chosen, "orc", {name: None})  # type: ignore[misc]
        with pytest.raises(InvalidRequest, match=f"^'{name}' "):
            check_write_options(chosen, "orc", {name: "x"})  # type: ignore[misc]
    for name in sorted(chosen.write_options | OF_ALL):
        check_write_options(chosen, "orc", {name: "x"})  # type: ignore[misc]


def test_what_is_loaded_of_formats_needs_neither_pyspark_nor_lance() -> None:
    program = (
        "import sys\n"
        "import penstock.spark as spark\n"
        "assert not {one for one in sys.modules if one.startswith('penstock.spark.')}\n"
        "for name in spark.__all__: getattr(spark, name)\n"
        "from penstock.spark.format import spark_formats\n"
        "spark_formats()\n"
        "assert not {'pyspark', 'py4j', 'lance'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
