"""The demonstration with Spark: a small pipeline whose tables land on main at one instant."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.lake.opening import open_lake

if TYPE_CHECKING:
    from penstock.cli.commands.demo import Story
    from penstock.lake.lake import Lake

ORDERS: Final = 20_000
CUSTOMERS: Final = 500
DAYS: Final = 7


def what_is_missing() -> str:
    """What would have to be there for this to be told; nothing if all is."""
    if find_spec("pyspark") is None or find_spec("deltalake") is None:
        return "pip install 'penstock[spark,jdk]' deltalake"
    from penstock.spark.java import find_java

    try:
        find_java()
    except PenstockError as problem:
        return problem.message
    return ""


def tell_of_spark(story: Story) -> None:
    """Files arrive; tables are built on a branch, corrected there, and merged."""
    landing = story.place / "landing"
    story.chapter("Orders and customers arrive as files")
    _arrive(landing)
    story.say(f"  {ORDERS:,} orders of {DAYS} days and {CUSTOMERS} customers, as JSON in {landing}")
    with _started(story) as (lake, spark):
        story.chapter("Customers are a table already")
        story.python(load_customers, spark, landing)
        story.chapter("A pipeline builds two more Delta tables, on a branch")
        story.python(build, lake, spark, landing)
        story.chapter("A reader of main sees nothing of it")
        story.run("tables")
        story.run("diff main nightly")
        story.chapter("Something is wrong with the data, and is put right where nobody sees it")
        story.python(correct, spark)
        story.chapter("One merge, and all of it is on main at one instant")
        story.run("merge nightly --into main -m 'nightly load'")
        story.run("log main")
        story.chapter("Spark reads all tables as they were at one commit")
        story.python(query, spark)
        story.chapter("And programs that know nothing of Penstock see them, too")
        story.python(read_elsewhere, lake, deltalake="deltalake")


def load_customers(spark: Any, landing: Path) -> None:
    from penstock.spark import write

    write(spark.read.json(f"{landing}/customers"), "sales.customers", message="first load")


def build(lake: Lake, spark: Any, landing: Path) -> None:
    from penstock.spark import write

    lake.branch("nightly").create()
    orders = spark.read.json(f"{landing}/orders").selectExpr("id", "customer", "amount", "DATE(day) AS day")
    by_day = orders.groupBy("day").agg({"id": "count", "amount": "sum"}).toDF("day", "orders", "revenue")
    write(orders, "sales.orders", branch="nightly", partition_by="day")
    write(by_day, "sales.by_day", branch="nightly")


def correct(spark: Any) -> None:
    from penstock.spark import delete, read, write

    delete(spark, "sales.orders", "amount < 0", branch="nightly", message="drop test orders")
    orders = read(spark, "sales.orders", ref="nightly")
    by_day = orders.groupBy("day").agg({"id": "count", "amount": "sum"}).toDF("day", "orders", "revenue")
    write(by_day, "sales.by_day", mode="overwrite", branch="nightly", message="sums without test orders")


def query(spark: Any) -> None:
    from penstock.spark import view

    view(spark, "sales.orders", "sales.customers")
    spark.sql("""
        SELECT country, count(*) AS orders, round(sum(amount), 2) AS revenue
        FROM orders JOIN customers ON orders.customer = customers.id
        GROUP BY country ORDER BY revenue DESC
    """).show()


def read_elsewhere(lake: Lake, deltalake: Any) -> None:
    for key in ("sales.orders", "sales.customers", "sales.by_day"):
        lake.table(key).backfill_to_version()
        found = deltalake.DeltaTable(lake.table(key).location)
        print(f"{key}: version {found.version()}, {found.to_pyarrow_table().num_rows:,} rows")


@contextmanager
def _started(story: Story) -> Iterator[tuple[Lake, Any]]:
    """The lake, and a session of Spark for it, which takes a few seconds to start."""
    from penstock.spark import session

    with open_lake(story.place, author="ada") as lake:
        with story.waiting("starting Spark"), _quiet_java():
            spark = session(lake, app="penstock-demo", conf={"spark.ui.enabled": False})
        try:
            yield lake, spark
        finally:
            spark.stop()


@contextmanager
def _quiet_java() -> Iterator[None]:
    """Meanwhile Java starts without its line on a module that nothing here uses. Its errors come through."""
    from penstock.spark.java import find_java, quiet_home

    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = quiet_home(find_java())
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME")
        if before is not None:
            os.environ["JAVA_HOME"] = before


def _arrive(landing: Path) -> None:
    """Files as a shop would send them, the same every time; a few orders are of its tests."""
    random = Random(7)
    first = date(2026, 11, 2)
    countries = ("Austria", "Belgium", "Canada", "Denmark")
    orders = landing / "orders"
    orders.mkdir(parents=True)
    for day in range(DAYS):
        numbers = range(day, ORDERS, DAYS)
        lines = (
            {
                "id": number,
                "customer": random.randrange(CUSTOMERS),
                "amount": -1.0 if number % 997 == 0 else round(random.uniform(5, 250), 2),
                "day": str(first + timedelta(days=day)),
            }
            for number in numbers
        )
        (orders / f"{first + timedelta(days=day)}.json").write_text(_lines(lines))
    customers = landing / "customers"
    customers.mkdir()
    known = ({"id": number, "country": random.choice(countries)} for number in range(CUSTOMERS))
    (customers / "all.json").write_text(_lines(known))


def _lines(values: Iterator[dict[str, Any]]) -> str:
    return "".join(json.dumps(one) + "\n" for one in values)
