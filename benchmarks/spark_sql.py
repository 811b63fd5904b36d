"""What statements of SQL cost beside functions that do the same, plain Parquet and Delta Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.parquet as pq  # type: ignore[import-untyped]

import penstock
from benchmarks.delta_tables import SCHEMA, add
from benchmarks.lakes import Workshop
from benchmarks.report import Findings, Goal, Table, at_most, table
from penstock import Lake
from penstock.spark import delete, merge, read, session, write
from tests.interop import installed
from tests.servers.process import Missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUESTION = (
    "What do statements of SQL cost beside functions that do the same, and queries beside plain Parquet and "
    "Delta Spark?"
)

ROUNDS: Final = 15
ROUNDS_OF_QUERIES: Final = 7
WARM_UPS: Final = 3
"""How many rounds are not counted: until then, Java compiles most of what the others run."""
SAME_MOST: Final = 1.05
PLAN_MOST: Final = 1.2
TASKS: Final = 2
ROWS: Final = 2_000_000
"""Of the tables that statements write and change."""
FEW_ROWS: Final = 200_000
"""Of tables with which a statement takes a tenth of a second: most of that is the same for any rows."""
QUERIED_ROWS: Final = 30_000_000
"""Of the table that is queried: that of line items of TPC-H has as many at its scale 5."""
ORDERS: Final = (
    "id",
    "id % 1000 AS customer",
    "id * 1.5 AS price",
    "date_add(DATE'2026-01-01', CAST(id % 365 AS INT)) AS day",
    "concat('order ', id % 5000) AS note",
)
QUERIES: Final = {
    "one column": "SELECT sum(price) FROM {orders}",
    "a range": "SELECT count(*), sum(price) FROM {orders} WHERE id BETWEEN 1000 AND 5000",
    "groups, as Q1": (
        "SELECT day, count(*), sum(price), avg(price) FROM {orders} WHERE day < '2026-09-01' GROUP BY day"
    ),
    "a join, as Q3": (
        "SELECT c.segment, sum(o.price) FROM {orders} o JOIN {customers} c ON o.customer = c.id"
        " WHERE o.day > '2026-03-15' GROUP BY c.segment ORDER BY 2 DESC"
    ),
    "a forecast, as Q6": (
        "SELECT sum(price * 0.1) FROM {orders}"
        " WHERE day BETWEEN '2026-01-01' AND '2026-03-31' AND customer < 480"
    ),
}
DELTA_PROGRAM: Final = Path(__file__).parent / "spark_sql_delta.py"


class Compared(NamedTuple):
    """Two ways of the same, round by round, in seconds."""

    what: str
    beside: str
    ours: list[float]
    other: list[float]
    most: float | None

    @property
    def times(self) -> float:
        return median(a / b for a, b in zip(self.ours, self.other, strict=True))


def ask(workshop: Workshop) -> Findings:
    rounds, rounds_of_queries = workshop.size(ROUNDS, 2), workshop.size(ROUNDS_OF_QUERIES, 2)
    count, queried = workshop.size(ROWS, 4000), workshop.size(QUERIED_ROWS, 4000)
    few = workshop.size(FEW_ROWS, 2000)
    files, tables = workshop.size(10_000, 20), workshop.size(20, 2)
    with workshop.place() as place, penstock.init(place / "lake") as lake:
        conf = {
            "spark.ui.enabled": False,
            "spark.sql.shuffle.partitions": TASKS,
            "spark.sql.warehouse.dir": place / "tables",
        }
        spark = session(lake, master=f"local[{TASKS}]", conf=conf)
        try:
            small = [*_writing(spark, rounds, few), *_changing(spark, rounds, few)]
            statements = [*_writing(spark, rounds, count), *_changing(spark, rounds, count)]
            queries = list(_asking(spark, place, rounds_of_queries, few, queried))
            stored = (
                f"The files of the lake are {_describe_files(Path(lake.table('bench.orders').location))}; "
                f"those of plain Parquet are {_describe_files(place / 'orders')}."
            )
            queries += _planning(spark, lake, place, rounds_of_queries, files, tables)
        finally:
            spark.stop()
    tasks = f"rows of five columns, {TASKS} tasks"
    return Findings(
        tables=(
            _table(f"Statements over {count:,} {tasks}", statements, "times is the median of the rounds."),
            _table(
                f"Statements over {few:,} {tasks}",
                small,
                "times is the median of the rounds. What a statement takes beside the function is the same "
                "for any number of rows: Spark plans it once more, as a command.",
            ),
            _table(
                f"Queries of {queried:,} {tasks}",
                queries,
                f"times is the median of the rounds. {stored} Of a small table, what is measured is how "
                "long a query takes beside reading rows. Delta Spark runs in the PySpark it is made for.",
            ),
        ),
        goals=tuple(_goals([*statements, *queries])),
    )


def _turns(
    what: str,
    beside: str,
    rounds: int,
    ours: Callable[[int], object],
    other: Callable[[int], object],
    most: float | None,
) -> Compared:
    """Both ways in turns, each of them first in every other round. The first rounds are for warming up."""
    found = Compared(what, beside, [], [], most)
    for number in range(-min(WARM_UPS, rounds), rounds):
        ways = [(found.ours, ours), (found.other, other)]
        for took, do in ways if number % 2 else reversed(ways):
            start = perf_counter()
            seconds = do(number)
            took_s = perf_counter() - start
            if number >= 0:  # who measures elsewhere says how long it took
                took.append(seconds if isinstance(seconds, float) else took_s)
    return found


# -- writing -----------------------------------------------------------------------------------------------


def _rows(spark: SparkSession, count: int, view: str) -> DataFrame:
    rows = spark.range(0, count, 1, TASKS).selectExpr(*ORDERS)
    rows.createOrReplaceTempView(view)
    return rows


def _writing(spark: SparkSession, rounds: int, count: int) -> Iterator[Compared]:
    """Both write what the same query gives. To analyse it is part of either."""
    rows = _rows(spark, count, "given")
    for key in (f"bench.sql_{count}", f"bench.function_{count}"):
        write(rows.limit(0), key)
    yield _turns(
        "INSERT INTO",
        "write",
        rounds,
        lambda _: spark.sql(f"INSERT INTO lake.bench.sql_{count} SELECT * FROM given"),
        lambda _: write(spark.sql("SELECT * FROM given"), f"bench.function_{count}", mode="append"),
        SAME_MOST,
    )
    yield _turns(
        "CREATE TABLE AS SELECT",
        "write",
        rounds,
        lambda number: spark.sql(
            f"CREATE TABLE lake.bench.sql_{count}_{number + WARM_UPS} AS SELECT * FROM given"
        ),
        lambda number: write(spark.sql("SELECT * FROM given"), f"bench.function_{count}_{number + WARM_UPS}"),
        SAME_MOST,
    )


def _changing(spark: SparkSession, rounds: int, count: int) -> Iterator[Compared]:
    """Each round changes other rows, and as many of both tables."""
    rows = _rows(spark, count, "given")
    by_sql, by_function = f"bench.changed_sql_{count}", f"bench.changed_{count}"
    for key in (by_sql, by_function):
        write(rows, key)
    each = count // 200

    def first_row(number: int) -> int:
        return (number + WARM_UPS) * 10 * each

    def create_source(number: int) -> None:
        first = first_row(number)
        source = spark.range(first, first + each, 1, 1).selectExpr("id", "0.0D AS price")
        source.createOrReplaceTempView("source")

    def merge_by_sql(number: int) -> None:
        create_source(number)
        spark.sql(
            f"MERGE INTO lake.{by_sql} t USING source s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET price = s.price"
        )

    def merge_by_function(number: int) -> None:
        create_source(number)
        statement = merge(spark.table("source"), by_function, "target.id = source.id")
        statement.when_matched_update({"price": "source.price"}).commit()

    def where(number: int) -> str:
        return f"id >= {first_row(number)} AND id < {first_row(number) + each}"

    yield _turns("MERGE", "merge", rounds, merge_by_sql, merge_by_function, SAME_MOST)
    yield _turns(
        "DELETE",
        "delete",
        rounds,
        lambda number: spark.sql(f"DELETE FROM lake.{by_sql} WHERE {where(number)}"),
        lambda number: delete(spark, by_function, where(number)),
        SAME_MOST,
    )


# -- reading -----------------------------------------------------------------------------------------------


def _asking(spark: SparkSession, place: Path, rounds: int, count: int, queried: int) -> Iterator[Compared]:
    """Queries of tables by their names, beside the function, and beside plain Parquet of the same rows."""
    customers = spark.range(0, 1000, 1, 1).selectExpr("id", "concat('s', id % 5) AS segment")
    small, orders = _rows(spark, count, "given"), _rows(spark, queried, "queried")
    for name, rows in (("orders", orders), ("customers", customers), ("small", small)):
        write(rows, f"bench.{name}")
        rows.write.parquet(str(place / name))
        spark.read.parquet(str(place / name)).createOrReplaceTempView(f"plain_{name}")

    def asked(query: str, name: str, orders: str = "orders") -> object:
        return spark.sql(
            query.format(orders=name.format(orders), customers=name.format("customers"))
        ).collect()

    def by_function(_: int) -> object:
        return read(spark, "bench.orders").selectExpr("sum(price)").collect()

    one = QUERIES["one column"]
    by_name, plain = "lake.bench.{}", "plain_{}"
    yield _turns("SELECT", "read", rounds, lambda _: asked(one, by_name), by_function, SAME_MOST)
    for what, query in QUERIES.items():
        yield _turns(
            f"SELECT: {what}",
            "plain Parquet",
            rounds,
            lambda _, query=query: asked(query, by_name),  # type: ignore[misc]
            lambda _, query=query: asked(query, plain),  # type: ignore[misc]
            SAME_MOST,
        )
    yield _turns(
        f"SELECT: one column of a small table, {count:,} rows",
        "plain Parquet",
        rounds,
        lambda _: asked(one, by_name, "small"),
        lambda _: asked(one, plain, "small"),
        None,
    )


def _describe_files(folder: Path) -> str:
    """How many files are in a folder, how large they are, and how they are compressed."""
    files = sorted(folder.glob("*.parquet"))
    codecs = {pq.read_metadata(file).row_group(0).column(0).compression for file in files}
    sizes = " and ".join(f"{file.stat().st_size:,}" for file in files)
    return f"{len(files)}, of {sizes} bytes, compressed by {' and '.join(sorted(codecs))}"


# -- planning ----------------------------------------------------------------------------------------------


def union_of(names: list[str]) -> str:
    """A query of some tables, of each of which one file has rows."""
    return " UNION ALL ".join(f"SELECT id, amount FROM {name} WHERE id = 1500" for name in names)


def plan(frame: Any) -> int:
    """Plan a query, down to the files that are read."""
    partitions: int = frame._jdf.queryExecution().toRdd().getNumPartitions()
    return partitions


def _planning(
    spark: SparkSession, lake: Lake, place: Path, rounds: int, files: int, tables: int
) -> Iterator[Compared]:
    """A query over tables of very many files that are not there: only what is planned takes time."""
    for number in range(tables):
        lake.delta.create_empty(f"bench.wide{number}", SCHEMA)
        lake.table(f"bench.wide{number}").append_actions([add(one) for one in range(files)])
    lake.finish_background()
    query = union_of([f"lake.bench.wide{number}" for number in range(tables)])
    with _delta_spark(place, files, tables) as ask_delta:
        if ask_delta is None:
            return
        yield _turns(
            f"planning over {tables} tables of {files:,} files",
            "Delta Spark",
            rounds,
            lambda _: plan(spark.sql(query)),
            lambda _: ask_delta(),
            PLAN_MOST,
        )


@contextmanager
def _delta_spark(place: Path, files: int, tables: int) -> Iterator[Callable[[], float] | None]:
    """Delta Spark in the PySpark that it needs: it plans the same query when it is asked, and tells how long
    that took."""
    try:
        python, jars = installed.python_environment("spark") / "python", installed.java_libraries("delta")
    except Missing as missing:
        print(f"Delta Spark is left out: {missing}", file=sys.stderr)
        yield None
        return
    command = [python, DELTA_PROGRAM, place / "delta", files, tables, jars, SCHEMA]
    with subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        asked, told = program.stdin, program.stdout
        lines = (line for line in told if line.startswith("took "))

        def ask_delta() -> float:
            print("plan", file=asked, flush=True)
            return float(next(lines).split()[1])

        try:
            yield ask_delta
        finally:
            asked.close()


# -- what comes of it --------------------------------------------------------------------------------------


def _table(title: str, found: list[Compared], note: str) -> Table:
    return table(
        title,
        ("statement", "beside", "seconds", "the other, s", "times"),
        [[one.what, one.beside, median(one.ours), median(one.other), one.times] for one in found],
        note=note,
    )


def _goals(found: list[Compared]) -> Iterator[Goal]:
    for one in found:
        if one.most is not None:
            yield at_most(f"{one.what}, of the time of {one.beside}", one.times, one.most)
