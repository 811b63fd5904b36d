"""Choosing rows by a condition, as Spark means it, and what follows from it for whole files.

Spark decides which rows a condition is true for. Before it reads anything, the lake's statistics may leave
out files, and the owner is told which partitions were looked at. For that, parts of a condition are read by
Penstock too, but only those that mean the same to both: the others are passed over, and more files are read
than would be needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.partition_folders import list_partition_fields
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.column_mapping import stored_name
from penstock.formats.delta.spark.scan.log_values import log_value
from penstock.formats.rows.schema import Field, StructType
from penstock.formats.rows.spark_conditions import has_same_meaning_in_spark
from penstock.spark import jar
from penstock.spark.analysis import AnalyzedCondition, explain_analysis
from penstock.spark.schemas import is_case_sensitive, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.formats.delta.spark.job.tables import JobTable

_WORDS: Final = re.compile(r"'[^']*'|`[^`]*`|\w+|[()]")
_STEP: Final = r"(?:`(?:[^`]|``)*`|\w+)"
_NAMES: Final = re.compile(rf"'[^']*'|({_STEP})((?:\s*\.\s*{_STEP})*)")
"""Texts, which have no groups, and names: their first step, and the others."""
_ENCLOSED: Final = re.compile(r"\s*\((.*)\)\s*", re.DOTALL)
_CAST: Final = re.compile(r"\bCAST\((-?[0-9]+) AS (?:BIGINT|INT|SMALLINT|TINYINT)\)")
"""How Spark shows a number that it compares with a column of another width."""
_UNCLEAR: Final = ('"', "\\", "''", "--", "/*")
"""Signs of texts that Spark takes apart in other ways than ``_WORDS``."""
_PARTITION: Final = "__penstock_partition"


def check_of_one_row(df: DataFrame, expressions: Iterable[Column], place: str = "") -> None:
    """``InvalidRequest`` for expressions over what ``df`` does not have, or that are not made of one row.

    In a selection Spark would take the others too, and evaluate them over whatever rows are there.
    """
    from pyspark.sql import functions as f

    with explain_analysis(place):
        _ = df.where(reduce(and_, (expression.isNotNull() for expression in expressions), f.lit(True))).schema


def check_deterministic(df: DataFrame, subject: str) -> None:
    """``InvalidRequest`` if a frame could have other rows when it is evaluated again.

    Files are found first and rewritten then: both must see the same rows. A session of Spark Connect does not
    tell, and nothing is checked there.
    """
    with explain_analysis():
        _ = df.schema
    if jar.is_classic(df.sparkSession) and not df._jdf.queryExecution().analyzed().deterministic():
        raise InvalidRequest(f"{subject} is not deterministic; compute its values into a column first")


def make_necessary_condition(df: DataFrame, condition: AnalyzedCondition, schema: StructType) -> str | None:
    """What must be true of a row of a table for which a condition of Spark's is true, in the words of the
    lake's own conditions; ``None`` if nothing can be told. The condition is over the rows of ``df``.
    """
    return _join_understood_parts(
        df, schema, [part.strip() for part in _split_conjunction(_format_condition(df, condition))]
    )


def make_necessary_target_condition(
    df: DataFrame, condition: AnalyzedCondition, schema: StructType
) -> str | None:
    """As ``make_necessary_condition``, where ``df`` joins the table, as ``target``, with a ``source``.

    A column may be qualified so; what speaks of the source is passed over.
    """
    if is_case_sensitive(df.sparkSession):
        return None  # a column of the source may be called as one of the table is, but for the case
    return _join_understood_parts(
        df,
        schema,
        [
            _remove_target_qualifier(part.strip())
            for part in _split_conjunction(_format_condition(df, condition))
        ],
    )


def _join_understood_parts(df: DataFrame, schema: StructType, found: Sequence[str | None]) -> str | None:
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone", None)
    understood = [
        part for part in found if part is not None and has_same_meaning_in_spark(part, schema, zone)
    ]
    return " and ".join(f"({part})" for part in understood) or None


def is_about_partitions(df: DataFrame, condition: AnalyzedCondition, table: JobTable) -> bool:
    """Whether it is sure that a condition on rows of the table names partition columns alone."""
    expression = _analyze_condition(df, condition)
    if expression is None:
        return False
    named = expression.references().toSeq()
    names = {named.apply(at).name().lower() for at in range(named.size())}
    return names <= {name.lower() for name in table.partition_columns}


def files_of_partitions(spark: SparkSession, table: JobTable, condition: AnalyzedCondition) -> list[Add]:
    """The files of the partitions for whose values a condition is true, which names nothing else.

    Spark decides it, value by value: no data file is read. ``InvalidLog`` if the log has a value that is none
    of its column's type.
    """
    fields, place = list_partition_fields(table.metadata), table.snapshot.place
    stored = [stored_name(field) for field in fields]
    by_values: dict[tuple[str | None, ...], list[Add]] = {}
    for file in table.find_candidate_files(None):
        values = tuple(file.partition_values.get(name) for name in stored)
        by_values.setdefault(values, []).append(file)
    rows = [
        (
            number,
            *(
                log_value(place, partition_field.type, text)
                for partition_field, text in zip(fields, values, strict=True)
            ),
        )
        for number, values in enumerate(by_values)
    ]
    schema = to_spark_schema(StructType((Field(name=_PARTITION, type="long", nullable=False), *fields)))
    partition_rows = spark.createDataFrame(rows, schema, verifySchema=False)
    chosen = partition_rows.where(condition.column).select(_PARTITION).collect()
    groups = list(by_values.values())
    return [file for row in chosen for file in groups[row[0]]]


def _format_condition(df: DataFrame, condition: AnalyzedCondition) -> str:
    """A condition as SQL; empty if it is not known."""
    if condition.text is not None:
        return condition.text
    expression = _analyze_condition(df, condition)
    return (
        ""
        if expression is None or not _has_matching_qualifiers(df, expression)
        else _CAST.sub(r"\1", expression.sql())
    )


def _has_matching_qualifiers(df: DataFrame, found: Any) -> bool:
    """Whether a condition names its columns as rows do: a ``Column`` that was taken from a frame before that
    was joined as ``source`` does not say so."""
    qualifiers = dict(_table_qualifiers(df._jdf.queryExecution().analyzed().output()))
    return all(
        qualifiers.get(expression_id) == shown
        for expression_id, shown in _table_qualifiers(found.references().toSeq())
    )


def _table_qualifiers(attributes: Any) -> Iterator[tuple[int, str]]:
    for at in range(attributes.size()):
        attribute = attributes.apply(at)
        yield attribute.exprId().id(), attribute.qualifier().mkString(".")


def _analyze_condition(df: DataFrame, condition: AnalyzedCondition) -> Any:
    """The condition as analyzed by Spark; ``None`` over Spark Connect, which does not expose it."""
    if not jar.is_classic(df.sparkSession):
        return None
    plan = df.where(condition.column)._jdf.queryExecution().analyzed()
    return plan.condition() if plan.nodeName() == "Filter" else None


def _split_conjunction(text: str) -> list[str]:
    """The parts of a condition joined by AND; empty if the text is not simple enough to split."""
    if any(sign in text for sign in _UNCLEAR):
        return []
    parts, start, depth, is_between = [], 0, 0, False
    for match in _WORDS.finditer(text):
        word = match[0].lower()
        depth += (word == "(") - (word == ")")
        if depth or word not in {"and", "or", "between", "case"}:
            continue
        if word in {"or", "case"}:
            return [text]
        if word == "between":
            is_between = True
        elif is_between:
            is_between = False
        else:
            parts.append(text[start : match.start()])
            start = match.end()
    parts.append(text[start:])
    if len(parts) == 1:
        inside = _ENCLOSED.fullmatch(text)
        return _split_conjunction(inside[1]) if inside and _is_closed(inside[1]) else parts
    return [inner_part for part in parts for inner_part in _split_conjunction(part)]


def _is_closed(text: str) -> bool:
    """Whether every parenthesis of a text has its partner there."""
    depth = 0
    for word in _WORDS.findall(text):
        depth += (word == "(") - (word == ")")
        if depth < 0:
            return False
    return depth == 0


def _remove_target_qualifier(text: str) -> str | None:
    """A condition on columns of the target only, with the qualifier ``target`` removed; ``None`` if it names
    the source."""
    firsts = {_normalise_name(match[1]) for match in _NAMES.finditer(text)}
    if "source" in firsts:
        return None
    return _NAMES.sub(_strip_target_name, text)


def _strip_target_name(found: re.Match[str]) -> str:
    """A name without the table's: only its first step can be that, and only if others follow."""
    is_qualified = _normalise_name(found[1]) == "target" and found[2]
    return found[2].lstrip().removeprefix(".").lstrip() if is_qualified else found[0]


def _normalise_name(step: str | None) -> str | None:
    return None if step is None else step.strip("`").lower()
