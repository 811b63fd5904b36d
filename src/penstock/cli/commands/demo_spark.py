"""The demonstration with Spark: a small pipeline whose tables of two formats land at one instant."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.lake.opener import open_lake
from penstock.spark.java import find_java, quiet_home

if TYPE_CHECKING:
    from penstock.cli.commands.demo import DemoStory
    from penstock.lake.lake import Lake
    from penstock.lake.transactions.transaction import Transaction

ORDERS: Final = 20_000
CUSTOMERS: Final = 500
DAYS: Final = 7
NEEDED: Final = {
    "pyspark": "penstock[spark,jdk]",
    "lance": "penstock[lance]",
    "lance_namespace": "penstock[lance]",
    "deltalake": "deltalake",
}
"""Modules that the story needs, and what brings them."""


def what_is_missing() -> str:
    """What would have to be there for this to be told; nothing if all is."""
    lacking = dict.fromkeys(brings for name, brings in NEEDED.items() if find_spec(name) is None)
    if lacking:
        return f"pip install {' '.join(map(shlex.quote, lacking))}"
    try:
        find_java()
    except PenstockError as problem:
        return problem.message
    return ""


def show_spark_demo(story: DemoStory) -> None:
    """Files become tables in one transaction; bad ones do not, until they are put right on a branch."""
    landing = story.place / "landing"
    with _start_spark(story) as (lake, spark):
        _make_incoming_files(landing)
        story.show_chapter("Orders and customers arrive as files, and are kept as they came")
        story.run_command(f"files put -r {shlex.quote(f'{landing}/')} raw.shop -m 'files of a week'")
        story.show_chapter("A pipeline makes two Delta tables and a Lance table of them, in one transaction")
        story.show_definitions(load_days, derive_tables, check_tables)
        story.run_step(run_pipeline, lake, spark)
        story.show_chapter("Since one instant all three are on main, as one commit")
        story.run_command("tables")
        story.run_command("log main")
        story.show_chapter("Something is wrong with the last day: a check fails, and nothing has happened")
        story.run_step(run_into_check, lake, spark)
        story.run_command("log main -n 1")
        story.show_chapter(
            "Write, audit, publish: on a branch it can be looked into, and is not published so"
        )
        story.run_step(write_and_audit, lake, spark)
        story.show_chapter("There it is put right, audited again, and lands")
        story.run_step(correct_and_publish, lake, spark)
        story.run_command("log main --first-parent")
        story.show_chapter(
            "Every commit stays what it was: Delta and Lance tables together, before and after"
        )
        story.run_step(query_tables, spark)
        story.show_chapter("And programs that know nothing of Penstock see the tables, too")
        story.run_command("lance promote search.customers")
        story.run_step(read_elsewhere, lake, deltalake="deltalake", lance="lance")


def load_days(tx: Transaction, spark: Any, days: str) -> None:
    columns = "id LONG, customer LONG, amount DOUBLE, day DATE"
    orders = tx.read("raw.shop", format="json", folder="orders", schema=columns)
    tx.write(orders.where(days), "sales.orders", partition_by="day")
    derive_tables(tx, spark)


def derive_tables(tx: Transaction, spark: Any) -> None:
    tx.view("sales.orders", spark=spark)  # as this transaction has it by now
    by_day = spark.sql("SELECT day, sum(amount) AS total, min(amount) AS least FROM orders GROUP BY day")
    tx.write(by_day, "sales.by_day", mode="overwrite")

    vector = "array(float(count(*)), float(avg(amount)), float(max(amount)))"
    bought = spark.sql(f"SELECT customer AS id, {vector} AS vector FROM orders GROUP BY customer")
    people = tx.read("raw.shop", format="csv", folder="customers", schema="id LONG, country STRING")
    customers = people.join(bought, "id")
    tx.write(customers, "search.customers", mode="overwrite", format="lance", options={"vector.vector": 3})


def check_tables(tx: Transaction) -> None:
    negative = tx.read("sales.by_day").where("least < 0")
    tx.check("no negative amounts", negative.isEmpty(), "a day has some")


def run_pipeline(lake: Lake, spark: Any) -> None:
    with lake.transaction("main", message="nightly load") as tx:
        load_days(tx, spark, "day < '2026-11-08'")
        check_tables(tx)
        print("in the transaction:", *(table.key for table in tx.tables()))
        print("on main meanwhile: ", *(table.key for table in lake.tables()))


def run_into_check(lake: Lake, spark: Any) -> None:
    from penstock import errors

    try:
        with lake.transaction("main", message="the last day") as tx:
            load_days(tx, spark, "day = '2026-11-08'")
            check_tables(tx)
    except errors.CheckFailed as failed:
        print(failed.message)


def write_and_audit(lake: Lake, spark: Any) -> None:
    from penstock import errors

    lake.branch("last-day").create(at="main")
    with lake.transaction("last-day", message="the last day") as tx:
        load_days(tx, spark, "day = '2026-11-08'")
    checks = {"no negative amounts": "SELECT id, amount FROM sales.orders WHERE amount < 0"}
    try:
        lake.publish("last-day", "main", checks=checks, spark=spark)
    except errors.ChecksFailed as failed:
        print(failed.message)


def correct_and_publish(lake: Lake, spark: Any) -> None:
    from penstock.spark import delete

    with lake.transaction("last-day", message="without orders of our own tests") as tx:
        delete(spark, "sales.orders", "amount < 0", branch=tx.branch)
        derive_tables(tx, spark)
    checks = {"no negative amounts": "SELECT id, amount FROM sales.orders WHERE amount < 0"}
    lake.publish("last-day", "main", checks=checks, spark=spark)


def query_tables(spark: Any) -> None:
    from penstock.spark import view

    for ref in ("main~1", "main"):
        view(spark, "sales.orders", "search.customers", ref=ref)
        spark.sql("""
            SELECT country, count(*) AS orders, round(sum(amount), 2) AS revenue
            FROM orders JOIN customers ON orders.customer = customers.id
            GROUP BY country ORDER BY country
        """).show()


def read_elsewhere(lake: Lake, deltalake: Any, lance: Any) -> None:
    for key in ("sales.orders", "sales.by_day"):
        lake.table(key).backfill_to_version()
        content = deltalake.DeltaTable(lake.table(key).location)
        print(f"{key}: version {content.version()}, {content.to_pyarrow_table().num_rows:,} rows")
    customers = lance.dataset(lake.table("search.customers").location)
    print(f"search.customers: version {customers.version}, {customers.count_rows()} rows")
    nearest = {"column": "vector", "q": [40.0, 130.0, 245.0], "k": 3}
    print("  closest to 40 orders of 130 each:", customers.to_table(nearest=nearest)["id"].to_pylist())


@contextmanager
def _start_spark(story: DemoStory) -> Iterator[tuple[Lake, Any]]:
    """The lake, and a session of Spark for it, which takes a few seconds to start."""
    from penstock.spark import session

    with open_lake(story.place, create=True, author="ada") as lake:
        with story.show_waiting("starting Spark"), _silence_java_notice():
            spark = session(lake, app="penstock-demo", conf={"spark.ui.enabled": False})
        try:
            yield lake, spark
        finally:
            spark.stop()


@contextmanager
def _silence_java_notice() -> Iterator[None]:
    """Meanwhile Java starts without its line on a module that nothing here uses. Its errors come through."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = quiet_home(find_java())
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME")
        if before is not None:
            os.environ["JAVA_HOME"] = before


def _make_incoming_files(landing: Path) -> None:
    """Files as a shop would send them, the same every time; a few orders of the last day are of its tests."""
    random = Random(7)
    first = date(2026, 11, 2)
    orders, customers = landing / "orders", landing / "customers"
    orders.mkdir(parents=True)
    customers.mkdir()
    for day in range(DAYS):
        lines = (
            {
                "id": number,
                "customer": random.randrange(CUSTOMERS),
                "amount": -1.0 if number % 997 == day == DAYS - 1 else round(random.uniform(5, 250), 2),
                "day": str(first + timedelta(days=day)),
            }
            for number in range(day, ORDERS, DAYS)
        )
        (orders / f"{first + timedelta(days=day)}.json").write_text(_format_rows(lines))
    countries = (random.choice(("Austria", "Belgium", "Canada", "Denmark")) for _ in range(CUSTOMERS))
    csv_lines = "".join(f"{number},{country}\n" for number, country in enumerate(countries))
    (customers / "all.csv").write_text(csv_lines)


def _format_rows(values: Iterator[dict[str, Any]]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)
