"""A shop's nightly pipeline: files in, two Delta tables and a Lance table out, all of them at one instant.

It needs Spark with a Java, Lance, DuckDB and deltalake:
``pip install 'penstock[spark,jdk,lance,sql]' deltalake``. Run it anywhere: ``python examples/pipeline.py``.
It makes a lake in the directory ``lake``.

It prints::

    arrived    customers/all.csv, orders/2026-11-13.json
    in tx      raw.shop, sales.by_day, sales.orders, search.customers
    on main    raw.shop
    landed     friday: + sales.by_day, + sales.orders, + search.customers
    by day     2026-11-13: 95.0
    arrived    orders/2026-11-14.json
    failed     check 'no negative totals' failed: 2026-11-14: -20.0
    by day     2026-11-13: 95.0
    audit      no negative amounts: it finds 1 row, such as id = 5, amount = -70.0
    audit      no negative amounts: holds
    published  saturday: ~ sales.by_day, ~ sales.orders
    by day     2026-11-13: 95.0, 2026-11-14: 50.0
    refused    check 'no negative amounts' rejected the change to 'main'
    deltalake  sales.by_day has 2 rows
    deltalake  sales.orders has 4 rows
    pylance    buys like that: ada
"""

import json

import deltalake
import lance
import pyarrow as pa
from pyspark.sql.functions import expr

import penstock
from penstock import errors
from penstock.spark import delete, read, session

NO_NEGATIVES = "SELECT id, amount FROM sales.orders WHERE amount < 0"


def load(tx, day):
    """The orders of a day, and what follows from all orders. It reads what it has just written."""
    columns = "id LONG, customer STRING, amount DOUBLE, day DATE"
    orders = tx.read("raw.shop", format="json", folder="orders", schema=columns)
    tx.write(orders.where(f"day = '{day}'"), "sales.orders", partition_by="day")
    sum_up(tx)


def sum_up(tx):
    by_day = tx.read("sales.orders").groupBy("day").sum("amount").toDF("day", "total")
    tx.write(by_day, "sales.by_day", mode="overwrite")


def embed(tx):
    """Every customer as a vector, here of what they bought."""
    customers = tx.read("raw.shop", format="csv", folder="customers", options={"header": True})
    orders = tx.read("sales.orders").withColumnRenamed("customer", "name").groupBy("name")
    totals = orders.agg(expr("count(*) AS orders"), expr("sum(amount) AS total"))
    bought = customers.join(totals, "name")
    vectors = bought.selectExpr("name", "country", "array(float(orders), float(total / 10)) AS vector")
    tx.write(vectors, "search.customers", mode="overwrite", format="lance", options={"vector.vector": 2})


def check(tx):
    negative = days(tx.read("sales.by_day", where="total < 0"))
    tx.check("no negative totals", not negative, negative)


def arrive(lake, **files):
    """Files as others send them: all of these in one commit."""
    lake.table("raw.shop").files.write(files)
    print("arrived   ", ", ".join(files))


def orders(day, *rows):
    columns = ("id", "customer", "amount", "day")
    lines = (json.dumps(dict(zip(columns, (*row, day), strict=True))) for row in rows)
    return {f"orders/{day}.json": "\n".join(lines).encode()}


def days(by_day):
    return ", ".join(f"{row.day}: {row.total}" for row in by_day.orderBy("day").collect())


def changes(lake, commit):
    tables = (change for change in lake.changes(commit) if change.type != "NAMESPACE")
    return ", ".join(f"{change.sign} {change.key}" for change in tables)


with penstock.open("./lake", author="etl") as lake:
    spark = session(lake, conf={"spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2})

    # A table of files takes whatever comes.
    customers = {"customers/all.csv": b"name,country\nada,Austria\nbob,Belgium\ncyd,Canada\n"}
    friday = orders("2026-11-13", (1, "ada", 20.0), (2, "bob", 35.0), (3, "ada", 40.0))
    arrive(lake, **customers, **friday)

    # Three tables of two formats are built, and nobody sees any of them until the block ends.
    with lake.transaction("main", message="friday") as tx:
        load(tx, "2026-11-13")
        embed(tx)
        check(tx)
        print("in tx     ", ", ".join(str(table.key) for table in tx.tables()))
        print("on main   ", ", ".join(str(table.key) for table in lake.tables()))
    print("landed    ", f"{tx.commit.message}: {changes(lake, tx.commit.id)}")
    print("by day    ", days(read(spark, "sales.by_day")))

    # Something is wrong with the next day. The check ends the block, and nothing of it is there.
    arrive(lake, **orders("2026-11-14", (4, "cyd", 50.0), (5, "bob", -70.0)))
    try:
        with lake.transaction("main", message="saturday") as tx:
            load(tx, "2026-11-14")
            check(tx)
    except errors.CheckFailed as failed:
        print("failed    ", failed.message)
    print("by day    ", days(read(spark, "sales.by_day")))

    # Write, audit, publish: on a branch it can be looked into and put right, and lands once it is.
    lake.branch("saturday").create(at="main")
    with lake.transaction("saturday", message="saturday, unchecked") as tx:
        load(tx, "2026-11-14")
    audit = {"no negative amounts": NO_NEGATIVES}
    try:
        lake.publish("saturday", "main", checks=audit)
    except errors.ChecksFailed as failed:
        print("audit     ", *(f"{one['name']}: {one['reason']}" for one in failed.details["failed"]))
    with lake.transaction("saturday", message="without what was returned") as tx:
        delete(spark, "sales.orders", "amount < 0", branch=tx.branch)
        sum_up(tx)
    published = lake.publish("saturday", "main", checks=audit, message="saturday")
    print("audit     ", *(f"{name}: holds" for name in published.checks))
    print("published ", f"saturday: {changes(lake, published.commit)}")
    print("by day    ", days(read(spark, "sales.by_day")))

    # From now on main expects it of everybody, whatever they write with.
    lake.expect("no negative amounts", NO_NEGATIVES)
    try:
        lake.table("sales.orders").append(pa.table({"id": [6], "customer": ["cyd"], "amount": [-1.0]}))
    except errors.CommitVetoed as vetoed:
        print("refused   ", vetoed.message.partition(":")[0])

    # Programs that never heard of Penstock read the same tables, as soon as they are published.
    for key in ("sales.by_day", "sales.orders"):
        lake.table(key).backfill_to_version()
        rows = deltalake.DeltaTable(lake.table(key).location).to_pyarrow_table().num_rows
        print("deltalake ", f"{key} has {rows} rows")
    vectors = lance.dataset(lake.table("search.customers").location)
    nearest = {"column": "vector", "q": [2.0, 5.0], "k": 1}
    print("pylance   ", "buys like that:", *vectors.to_table(nearest=nearest)["name"].to_pylist())
    spark.stop()
