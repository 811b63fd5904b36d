"""A night's load on a branch of its own: two tables change, a check runs, and both land at once.

Run it anywhere: ``python examples/branches.py``. It makes a lake in the directory ``lake``.

It prints::

    on nightly  + sales.by_day
    on nightly  ~ sales.orders
    on main     sales.orders is at v1
    merged      2 tables in one commit
    on main     sales.orders is at v2
    before      sales.orders is at v1
    conflict    'sales.orders' changed meanwhile
"""

import penstock
from penstock import DeltaTable, IcebergTable, Key, Put, errors


def orders(version: int) -> IcebergTable:
    return IcebergTable(metadata_location=f"s3://bucket/sales/orders/metadata/v{version}.json")


def version(lake: penstock.Lake, ref: str) -> str:
    content = lake.at(ref).get("sales.orders")
    assert isinstance(content, IcebergTable)
    return content.metadata_location.rpartition("/")[2].removesuffix(".json")


with penstock.open("./lake") as lake:
    main = lake.branch()
    main.put("sales.orders", orders(1), message="first load")

    # Nobody on main sees what is committed here.
    nightly = lake.branch("nightly").create(at="main")
    nightly.commit(
        [
            Put(Key("sales", "orders"), orders(2)),
            Put(Key("sales", "by_day"), DeltaTable(location=f"{lake.warehouse}/sales/by_day")),
        ],
        base=nightly.head,
        message="nightly load",
    )
    for change in lake.diff("main", "nightly"):
        print(f"on nightly  {change.sign} {change.key}")
    print(f"on main     sales.orders is at {version(lake, 'main')}")

    # Checks would run here, on the branch. Then both tables appear at one instant.
    preview = nightly.merge_into("main", dry_run=True)
    assert not preview.conflicts
    result = nightly.merge_into("main", if_head=preview.head)
    print(f"merged      {len(result.keys)} tables in one commit")
    print(f"on main     sales.orders is at {version(lake, 'main')}")
    print(f"before      sales.orders is at {version(lake, 'main~1')}")

    # Somebody who still works from what was there before is told so.
    try:
        main.put("sales.orders", orders(3), base="main~1")
    except errors.CommitConflict as refused:
        print("conflict   ", str(refused.conflicts[0]).partition(" (")[0])
