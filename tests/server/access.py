"""What the tests of access share: a lake with something to hide, and callers of all kinds."""

from __future__ import annotations

from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.tokens import parse_grant
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.server.access import Caller, CheckedCatalogue
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row

ROOT = "s3://lake"


def table(name: str) -> IcebergTable:
    return IcebergTable(metadata_location=f"{ROOT}/{name}.json")


def put(key: str, name: str = "new") -> Put:
    return Put(Key.parse(key), table(name))


def new_lake(store: MemoryStore | None = None) -> Lake:
    """A lake where ``main``, ``dev/etl`` and ``secret`` differ, each in ``sales`` and in ``hr``."""
    lake = open_lake(store or MemoryStore(), author="ada")
    lake.add_root(ROOT)
    namespaces = [Put(Key("sales"), Namespace()), Put(Key("hr"), Namespace())]
    lake.commit([*namespaces, put("sales.orders"), put("hr.pay")], message="begin with hr.pay")
    lake.tag("v1").create()
    for branch in ("dev/etl", "secret"):
        lake.branch(branch).create()
        lake.commit([put("sales.orders", f"{branch}-1")], branch=branch, message=f"orders of {branch}")
        lake.commit([put("hr.pay", f"{branch}-2")], branch=branch, message="raise hr.pay")
        lake.commit([put("sales.returns", f"{branch}-3")], branch=branch, message=f"returns of {branch}")
    lake.branch("gone").create(at="secret").delete()
    lake.branch("dev/gone").create().delete()
    return lake


def rows_of(store: MemoryStore) -> list[Row]:
    """Everything that a call can change: all rows of all kinds. Objects alone are seen by nobody."""
    return [row for kind in Kind for row in store.references(kind)]


def caller(*grants: str, name: str = "tester") -> Caller:
    return Caller(name=name, grants=tuple(map(parse_grant, grants)))


def guarded(lake: Lake, *grants: str) -> CheckedCatalogue:
    """The lake as a caller with these grants sees it."""
    return CheckedCatalogue(lake.catalogue, caller(*grants))


CALLERS = {
    "reader": ("read",),
    "writer": ("write",),
    "admin": ("admin",),
    "dev_reader": ("read:dev/*",),
    "dev_writer": ("write:dev/*", "read:main"),
    "sales_reader": ("read:*:sales.*",),
    "sales_writer": ("write:dev/*:sales.*", "read:main:sales.*"),
    "restorer": ("restore",),
    "eraser": ("erase",),
    "maintainer": ("maintain",),
    "sales_maintainer": ("maintain:*:sales.*",),
    "backup": ("backup",),
    "mover": ("move",),
}

HOLDERS = {"restorer", "eraser", "maintainer", "sales_maintainer", "backup", "mover"}
"""Those of a single role that includes no other."""
