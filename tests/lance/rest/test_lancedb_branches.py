"""LanceDB, whose Lance is older than pylance's, on branches of a lake: each opens, writes and merges what the
other one wrote."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import lance
import lancedb
import pytest
from lance_namespace import CreateNamespaceRequest
from lancedb.index import BTree, IvfFlat

from penstock.formats.lance.lake.calls import ListLanceVersions
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.rest.api import LANCE
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake, open_lake
from penstock.model.keys import Key
from penstock.server.access import OpenGate
from tests.lance.rest.talking import lance_at, some_rows
from tests.server.running import Local, local

WS = ["ws"]
NAME = "ws.items"


class LanceDb:
    """A table at a branch, by LanceDB."""

    def __init__(self, url: str) -> None:
        self._database = lancedb.connect_namespace("rest", {"uri": url})

    def create(self, *ids: int) -> None:
        self._database.create_table("items", data=some_rows(*ids), namespace_path=WS)

    def open(self) -> Any:
        return self._database.open_table("items", namespace_path=WS)

    def append(self, *ids: int) -> None:
        self.open().add(some_rows(*ids))

    def delete(self, where: str) -> None:
        self.open().delete(where)

    def index(self) -> None:
        self.open().create_index("id", config=BTree())
        self.open().create_index("vector", config=IvfFlat(num_partitions=1))

    def ids(self, where: str = "id >= 0") -> list[int]:
        return sorted(self.open().search().where(where).limit(999).to_arrow()["id"].to_pylist())

    def nearest(self, number: int) -> int:
        found = self.open().search([float(number), 1.0]).limit(1).to_list()
        return int(found[0]["id"])


class PyLance:
    """The same by pylance."""

    def __init__(self, url: str) -> None:
        self._at: dict[str, Any] = {"namespace_client": lance_at(url), "table_id": ["ws", "items"]}

    def create(self, *ids: int) -> None:
        lance.write_dataset(some_rows(*ids), **self._at)

    def open(self) -> Any:
        return lance.dataset(**self._at)

    def append(self, *ids: int) -> None:
        lance.write_dataset(some_rows(*ids), **self._at, mode="append")

    def delete(self, where: str) -> None:
        self.open().delete(where)

    def index(self) -> None:
        self.open().create_scalar_index("id", "BTREE")
        self.open().create_index("vector", "IVF_FLAT", num_partitions=1)

    def ids(self, where: str = "id >= 0") -> list[int]:
        return sorted(self.open().to_table(columns=["id"], filter=where)["id"].to_pylist())

    def nearest(self, number: int) -> int:
        found = self.open().to_table(nearest={"column": "vector", "q": [float(number), 1.0], "k": 1})
        return int(found["id"][0].as_py())


Client = LanceDb | PyLance
CLIENTS: dict[str, Callable[[str], Client]] = {"lancedb": LanceDb, "pylance": PyLance}
BOTH = [(one, other) for one in CLIENTS for other in CLIENTS if (one, other) != ("pylance", "pylance")]


@pytest.fixture(autouse=True)
def namespace(lake: Lake) -> None:
    make_namespace(lake)


def make_namespace(lake: Lake) -> None:
    lake.lance().create_namespace(CreateNamespaceRequest(id=WS))


def at(server: Local, client: str, branch: str = "") -> Client:
    return CLIENTS[client](f"{server.url}/lance" + (f"/branch/{branch}" if branch else ""))


def check(server: Local, branch: str, ids: list[int]) -> None:
    """Every client finds these rows on a branch, without an index and with one."""
    for client in CLIENTS:
        found = at(server, client, branch)
        assert found.ids() == ids
        assert found.ids(f"id = {ids[-1]}") == [ids[-1]]
        assert found.nearest(ids[-1]) == ids[-1]


@pytest.mark.parametrize(("one", "other"), BOTH)
def test_what_one_indexed_the_other_reads_and_writes_on_a_branch_and_it_is_merged(
    lake: Lake, server: Local, one: str, other: str
) -> None:
    at(server, one).create(*range(1, 5))
    at(server, one).index()
    lake.branch("dev").create()
    check(server, "dev", [1, 2, 3, 4])
    at(server, other, "dev").append(10)
    at(server, one).append(20)
    lake.merge("dev", "main")
    check(server, "", [1, 2, 3, 4, 10, 20])
    lake.merge("main", "dev")
    check(server, "dev", [1, 2, 3, 4, 10, 20])
    at(server, one, "dev").delete("id = 2")
    at(server, other).append(30)
    lake.merge("dev", "main")
    check(server, "", [1, 3, 4, 10, 20, 30])


def test_an_index_made_on_a_branch_lands(lake: Lake, server: Local) -> None:
    at(server, "lancedb").create(*range(1, 5))
    lake.branch("dev").create()
    at(server, "lancedb", "dev").index()
    lake.merge("dev", "main")
    check(server, "", [1, 2, 3, 4])


def test_a_transaction_of_lancedb_lands_on_top_of_what_came(lake: Lake, server: Local) -> None:
    at(server, "lancedb").create(1, 2)
    with lake.transaction() as tx:
        inside = LanceDb(f"{server.url}/lance/tx/{tx.id}")
        inside.append(3)
        at(server, "lancedb").append(4)
    check(server, "", [1, 2, 3, 4])


def test_an_update_by_lancedb_is_merged_with_rows_that_others_appended(lake: Lake, server: Local) -> None:
    at(server, "lancedb").create(1, 2)
    lake.branch("dev").create()
    at(server, "lancedb", "dev").open().update(where="id = 1", values={"text": "new"})
    at(server, "lancedb").append(3)
    lake.merge("dev", "main")
    found = at(server, "lancedb").open().to_arrow()
    texts = dict(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True))
    assert (sorted(texts), texts[1]) == ([1, 2, 3], "new")


def test_lancedb_makes_own_branches(lake: Lake, server: Local) -> None:
    at(server, "lancedb").create(1, 2)
    at(server, "lancedb").index()
    table = at(server, "lancedb").open()
    own = table.branches.create("own")
    own.add(some_rows(3))
    assert sorted(own.to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert at(server, "lancedb").ids() == [1, 2]
    assert "own" in at(server, "lancedb").open().branches.list()
    assert at(server, "pylance").open().checkout_version(("own", None)).count_rows() == 3


def test_versions_say_what_lancedb_did(lake: Lake, server: Local) -> None:
    client = at(server, "lancedb")
    client.create(1, 2, 3)
    client.append(4)
    client.delete("id = 1")
    client.open().update(where="id = 2", values={"text": "new"})
    client.open().create_index("id", config=BTree())
    client.open().optimize()
    said = [str(one.operation) for one in lake.do(ListLanceVersions(key=Key.parse(NAME), at="main"))]
    assert "other" not in said
    assert said[-5:] == ["create index", "update", "delete", "append", "overwrite"]


def test_a_branch_is_opened_that_an_earlier_penstock_began_with_a_damaged_manifest(tmp_path: Path) -> None:
    place, warehouse = str(tmp_path / "lake"), str(tmp_path / "warehouse")
    with init_lake(place, warehouse=warehouse, author="ada") as lake, serving(lake) as server:
        make_namespace(lake)
        at(server, "lancedb").create(*range(1, 5))
        at(server, "lancedb").index()
        lake.branch("dev").create()
        check(server, "dev", [1, 2, 3, 4])
    for path in tmp_path.glob("warehouse/*/_penstock/*/_versions/*.manifest"):
        damage(path)
    with open_lake(place, author="ada") as lake, serving(lake) as server:
        check(server, "dev", [1, 2, 3, 4])
        at(server, "lancedb", "dev").append(5)
        check(server, "dev", [1, 2, 3, 4, 5])


def serving(lake: Lake) -> AbstractContextManager[Local]:
    return local(lake.catalogue, [LANCE], gate=OpenGate(any_location=True))


def damage(path: Path) -> None:
    """Tell Lance 13 of a transaction at a place where there is none."""
    found = Manifest.decode(path.read_bytes())
    packed, place = found.encode(), found.body.get_number(23)
    assert place is not None
    footer = packed[-16:]
    body = found.body.replace_field(21, place + 100).replace_field(23, place).replace_field(6, 0).encode()
    start = int.from_bytes(footer[:8], "little")
    path.write_bytes(packed[:start] + len(body).to_bytes(4, "little") + body + footer)
