"""Filters that a program adds to a DataFrame leave out files by the statistics in a Delta log, and no row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.scan_conditions import skip_files
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.rows.pruning import FilePruner
from penstock.lake.lake import Lake
from penstock.lake.scan_files import ScanCondition, SkippedFiles
from penstock.lake.table import Table
from penstock.spark.reader import read
from tests.spark.test_sql_served import served  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INNER: Final = pa.struct([("whole", pa.int64()), ("word", pa.string())])
COLUMNS: Final = pa.schema([
    ("id", pa.int64()), ("small", pa.int8()), ("whole", pa.int32()), ("word", pa.string()),
    ("real", pa.float64()), ("short_real", pa.float32()), ("money", pa.decimal128(10, 2)),
    ("large", pa.decimal128(38, 2)), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
    ("local", pa.timestamp("us")), ("flag", pa.bool_()), ("inner", INNER),
])  # fmt: skip
LONG: Final = "x" * 40
VALUES: Final[dict[str, list[Any]]] = {
    "small": [-128, 0, 5, 127],
    "whole": [-(2**31), -1, 0, 7, 2**31 - 1],
    "word": [
        "",
        "a",
        "ab",
        "b_",
        "B%",
        "ß",
        "\U0001f600",
        LONG,
        f"{LONG}y",
        f"{LONG}\U0010ffff",
        "it's",
        "\\",
    ],
    "real": [-0.0, 0.0, 1.5, float("nan"), float("inf"), float("-inf"), -2.25, 1e300],
    "short_real": [-0.0, 0.1, 1.5, float("nan"), 3e38],
    "money": [Decimal("-1.25"), Decimal("0.00"), Decimal("0.10"), Decimal("12345678.99")],
    "large": [Decimal("0.01"), Decimal("123456789012345678901234567890.12")],
    "day": [date(1, 1, 1), date(1969, 12, 31), date(2026, 11, 18), date(9999, 12, 31)],
    "at": [datetime(2026, 11, 18, 23, 59, 59, 999_999, UTC), datetime(1969, 12, 31, 1, tzinfo=UTC)],
    "local": [datetime(2026, 11, 18, 0, 0, 0, 1), datetime(1970, 1, 1)],  # noqa: DTZ001 - without a zone
    "flag": [True, False],
}
LITERALS: Final = {
    "small": ["0", "5Y", "200"],
    "whole": ["-1", "7", "7L", "2147483648", "0.5"],
    "word": ["''", "'a'", "'ab'", f"'{LONG}'", f"'{LONG}y'", "'it\\'s'", "'ß'", "'\\\\'"],
    "real": ["0D", "-0D", "1.5D", "double('NaN')", "double('inf')", "1", "1e300"],
    "short_real": ["0.1", "float(0.1)", "float('NaN')", "1.5D"],
    "money": ["0.10BD", "0", "-1.25", "1e3", "'0.1'"],
    "large": ["0.01", "123456789012345678901234567890.12"],
    "day": ["DATE '2026-11-18'", "'1969-12-31'", "TIMESTAMP '2026-11-18 00:00:00'", "DATE '0001-01-01'"],
    "at": ["TIMESTAMP '2026-11-18 23:59:59.999999Z'", "'2026-11-18'", "DATE '1969-12-31'"],
    "local": ["TIMESTAMP_NTZ '2026-11-18 00:00:00.000001'", "'1970-01-01'"],
    "flag": ["true", "false"],
    "inner.whole": ["0", "7"],
    "inner.word": ["'a'", f"'{LONG}'"],
}


def make_rows(random: Random, ids: range) -> pa.Table:
    """Rows with a value in five that is null."""

    def row(number: int) -> dict[str, Any]:
        values = {name: random.choice([*some, None]) for name, some in VALUES.items()}
        inner = {"whole": random.choice([*range(9), None]), "word": random.choice([*VALUES["word"], None])}
        return {"id": number, **values, "inner": random.choice([inner, inner, None])}

    return pa.Table.from_pylist([row(number) for number in ids], COLUMNS)


def make_filter(random: Random, depth: int = 2) -> str:
    """A condition of Spark's SQL."""
    if depth and random.random() < 0.5:
        first, second = (make_filter(random, depth - 1) for _ in range(2))
        return random.choice([f"({first} AND {second})", f"({first} OR {second})", f"NOT ({first})"])
    column = random.choice(list(LITERALS))
    literal, other = (random.choice(LITERALS[column]) for _ in range(2))
    sign = random.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
    forms = [
        *[f"{column} {sign} {literal}"] * 5,
        f"{literal} {sign} {column}",
        f"{column} IS NULL",
        f"{column} IS NOT NULL",
        f"{column} IN ({literal}, {other})",
        f"{column} NOT IN ({literal}, NULL)",
        f"coalesce({column}, {literal}) {sign} {other}",
        f"{column} BETWEEN {literal} AND {other}",
        f"id {sign} {random.randrange(30)}",
    ]
    if column.endswith("word"):
        pattern = random.choice(["a%", "b\\\\_%", "%b", "_b%", f"{LONG}%", "ß%", "B\\\\%"])
        forms += [f"{column} LIKE '{pattern}'", f"{column} NOT LIKE '{pattern}'"] * 3
    if column == "flag":
        forms += ["flag", "NOT flag"] * 3
    return random.choice(forms)


def files_read(rows: DataFrame) -> int:
    """How many files Spark opens for the rows of a DataFrame, which is not read before."""
    rows.collect()
    return files_opened(rows)


def files_opened(rows: DataFrame) -> int:
    """The same of one that was read once."""
    return sum(_counts(rows._jdf.queryExecution().executedPlan()))


def _counts(plan: Any) -> Iterator[int]:
    leaves = plan.collectLeaves()
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        kind = leaf.getClass().getSimpleName()
        if kind == "AdaptiveSparkPlanExec":
            yield from _counts(leaf.executedPlan())
        elif kind.endswith("QueryStageExec"):
            yield from _counts(leaf.plan())
        elif leaf.metrics().contains("numFiles"):
            yield leaf.metrics().apply("numFiles").value()


def numbered(lake: Lake, **more: Any) -> Table:
    """A table of four files, whose ids tell them apart."""
    table = lake.create_table("s.t", schema=pa.schema([("id", pa.int64()), ("name", pa.string())]), **more)
    for start in (0, 10, 20, 30):
        table.append(pa.table({"id": [start, start + 1], "name": [f"n{start}", None]}))
    return table


def test_a_filter_that_is_added_leaves_out_the_files_that_a_condition_leaves_out(
    lake: Lake, spark: SparkSession
) -> None:
    numbered(lake)
    rows = read(spark, "s.t")
    assert files_read(rows) == 4
    for where, count in (
        ("id = 10", 1),
        ("id > 11 AND name LIKE 'n2%'", 1),
        ("id IN (0, 31)", 2),
        ("id < 0", 0),
    ):
        assert files_read(rows.where(where)) == count == len(read(spark, "s.t", where=where).inputFiles())
        assert files_read(spark.table("lake.s.t").where(where)) == count
        assert files_read(spark.sql(f"SELECT name FROM (SELECT * FROM lake.s.t) WHERE {where}")) == count
    assert files_read(rows.where("id % 10 = 1")) == 4
    assert files_read(rows.select(rows.id.alias("other")).where("other = 10 OR other = 20")) == 2
    joined = rows.where("id = 10").join(rows.withColumnRenamed("name", "n").where("id < 2"), "id", "left")
    assert [tuple(row) for row in joined.collect()] == [(10, "n10", None)]


def test_names_of_columns_in_files_are_those_of_the_mapping(lake: Lake, spark: SparkSession) -> None:
    table = numbered(lake, properties={"delta.columnMapping.mode": "name"})
    lake.delta.rename_column(table.key, "id", "number")
    lake.delta.rename_column(table.key, "name", "id")
    rows = read(spark, "s.t")
    assert [tuple(row) for row in rows.where("number = 10").collect()] == [(10, "n10")]
    assert files_read(rows.where("number = 10")) == 1
    assert files_read(rows.where("id = 'n20'")) == 1


def test_rows_of_deletion_vectors_stay_away(lake: Lake, spark: SparkSession) -> None:
    table = numbered(lake, properties={"delta.enableDeletionVectors": "true"})
    table.delete("id = 10")
    assert any(file.deletion_vector for file in table.snapshot().files())
    rows = read(spark, "s.t").where("id >= 10 AND id < 20")
    assert [row.id for row in rows.collect()] == [11]
    assert files_opened(rows) == 1


def test_all_files_are_read_if_nobody_can_say_which_are_not_needed(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.lake.sql_catalog.steps import BY_NAME

    def fail(*_: object) -> None:
        raise RuntimeError("on purpose")

    numbered(lake)
    monkeypatch.setitem(BY_NAME, "skip_files", fail)
    rows = read(spark, "s.t").where("id = 10")
    assert [row.id for row in rows.collect()] == [10]
    assert files_opened(rows) == 4


def test_a_server_says_it_to_drivers_without_python(lake: Lake, served: SparkSession) -> None:  # noqa: F811
    numbered(lake)
    rows = served.table("served.s.t")
    assert files_read(rows) == 4
    assert files_read(rows.select("*").where("id = 10")) == 1


def test_files_that_a_condition_left_out_are_not_looked_at_again(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    keeps = FilePruner.may_match

    def note_and_keep(pruner: FilePruner, file: Add) -> bool:
        looked_at.append(file.path)
        return keeps(pruner, file)

    numbered(lake)
    monkeypatch.setattr(FilePruner, "may_match", note_and_keep)
    rows = spark.sql("SELECT id FROM lake.s.t WHERE id = 10")
    assert files_read(rows) == 1
    assert len(looked_at) == 2  # by the statement, then by Spark's own filters
    assert len(set(looked_at)) == 1  # the others are ruled out by the bounds of the column

    # Where nothing is left, nobody is asked.
    looked_at.clear()
    assert spark.sql("SELECT id FROM lake.s.t WHERE id = 15").collect() == []
    assert looked_at == []


def test_what_a_join_says_of_the_rest_leaves_out_files_that_a_condition_kept(
    lake: Lake, spark: SparkSession
) -> None:
    numbered(lake)
    lake.create_table("s.other", schema=pa.schema([("id", pa.int64())])).append(pa.table({"id": [10]}))
    rows = spark.sql("""
        SELECT t.id FROM (SELECT * FROM lake.s.t WHERE id > 5) t JOIN lake.s.other o ON t.id = o.id
        WHERE o.id = 10
    """)
    assert [row.id for row in rows.collect()] == [10]
    assert files_opened(rows) == 2


def test_files_are_known_by_their_names_in_whatever_spelling(lake: Lake, spark: SparkSession) -> None:
    names = ["a b", "50%", "%20", "ü=ö", "a/b", "a+b", "c:d", "it's", "[x]"]
    table = lake.create_table(
        "s.t", schema=pa.schema([("id", pa.int64()), ("name", pa.string())]), partition_by=["name"]
    )
    for start in (0, 100):
        ids = range(start, start + len(names))
        table.append(pa.table({"id": list(ids), "name": names}))
    rows = read(spark, "s.t")
    for number, name in enumerate(names):
        named = rows.where(rows.name == name).where("id < 50")
        assert [tuple(row) for row in named.collect()] == [(number, name)]
        assert files_opened(named) == 1


def test_of_named_files_those_are_told_that_are_left_out(lake: Lake) -> None:
    snapshot = numbered(lake).snapshot()
    where = ScanCondition(kind="compare", operator="=", column=("id",), type="long", values=("10",))
    names = [file.path for file in snapshot.files()]
    (needed,) = [file.path for file in snapshot.files("id = 10")]
    others = set(names) - {needed}
    assert skip_files(snapshot, [where]) == SkippedFiles(is_kept=True, files=(needed,))
    for among in (names, [needed, "x//y"], [needed], sorted(others)[:1], ["x//y"]):
        answer = skip_files(snapshot, [where], among)
        assert not answer.is_kept  # or else a name that is spelled otherwise would be left out
        assert set(answer.files) == others & set(among)


def test_what_is_not_understood_may_be_true_for_any_row(lake: Lake) -> None:
    snapshot = numbered(lake).snapshot()
    first = ScanCondition(kind="compare", operator="<", column=("id",), type="long", values=("5",))
    unknown = ScanCondition(kind="unknown")

    def is_skipped(*conditions: ScanCondition) -> bool:
        return bool(skip_files(snapshot, conditions).files)

    both, either = ScanCondition(kind="and", parts=2), ScanCondition(kind="or", parts=2)
    opposite = ScanCondition(kind="not", parts=1)
    assert is_skipped(first, unknown)
    assert is_skipped(first, unknown, both)
    assert not is_skipped(first, unknown, either)
    assert is_skipped(first, unknown, either, opposite)
    assert not is_skipped(first, unknown, both, opposite)
    assert is_skipped(first, opposite, opposite)
    for wrong in (
        ScanCondition(kind="compare", operator="<", column=("id",), type="integer", values=("5",)),
        ScanCondition(kind="compare", operator="~", column=("id",), type="long", values=("5",)),
        ScanCondition(kind="compare", operator="<", column=("nothing",), type="long", values=("5",)),
        ScanCondition(kind="compare", operator="<", column=("id",), type="long", values=("five",)),
        ScanCondition(kind="in", column=("id",), type="long"),
        ScanCondition(kind="other", column=("id",), type="long", values=("5",)),
        ScanCondition(kind="not"),
        ScanCondition(kind="and"),
    ):
        assert not is_skipped(wrong), wrong
    assert not is_skipped(first, *[opposite] * 1000)
    for number in (2, -1):
        with pytest.raises(InvalidRequest):
            is_skipped(first, ScanCondition(kind="and", parts=number))


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 25), *(pytest.param(seed, 60, marks=pytest.mark.verify) for seed in range(2, 5))]
)
def test_no_filter_loses_a_row(lake: Lake, spark: SparkSession, seed: int, count: int) -> None:
    """Spark says of each row whether a filter is true, without leaving anything out."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    random = Random(seed)
    properties = {"delta.enableDeletionVectors": "true"}
    if seed % 2 == 0:
        properties["delta.columnMapping.mode"] = "name"
    table = lake.create_table("t", schema=COLUMNS, properties=properties)
    for start in range(0, 24, 2):
        table.append(make_rows(random, range(start, start + random.choice([1, 2]))))
    table.delete("id in (2, 9, 13)")
    spark.conf.set("spark.sql.session.timeZone", random.choice(["UTC", "Asia/Kolkata"]))
    spark.conf.set("spark.sql.ansi.enabled", False)
    filters = [make_filter(random) for _ in range(count)]
    answers = read(spark, "t").select("id", *map(F.expr, filters)).collect()
    skipped = 0
    for at, where in enumerate(filters, 1):
        rows = read(spark, "t").where(where).select("id")
        assert sorted(row.id for row in rows.collect()) == sorted(row.id for row in answers if row[at]), where
        skipped += 12 - files_opened(rows)
    assert skipped > count
