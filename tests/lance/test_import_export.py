"""Lance directory namespaces come to a lake in one commit, and tables of a lake can be left to one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import lance_namespace as spec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lance.namespace import DirectoryNamespace

import penstock
from penstock.errors import InvalidRequest, Unavailable
from penstock.formats.lance.chains import ManifestChains
from penstock.lake.lake import Lake
from penstock.server.access import OpenGate
from penstock.server.native import NATIVE
from tests.server.running import local


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(namespace: Any, *table: str) -> list[int]:
    found: list[int] = (
        lance.dataset(namespace_client=namespace, table_id=[*table]).to_table()["id"].to_pylist()
    )
    return sorted(found)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        yield lake


@pytest.fixture
def root(lake: Lake, tmp_path: Path) -> Path:
    """A folder below the lake's warehouse."""
    place = tmp_path / "lake" / "warehouse" / "vectors"
    place.mkdir(parents=True)
    return place


def directory(root: Path) -> Any:
    """A directory namespace with tables in three depths, one of them only declared."""
    found: Any = DirectoryNamespace(root=str(root))  # type: ignore[no-untyped-call]
    for namespace in (["shop"], ["shop", "deep"]):
        found.create_namespace(spec.CreateNamespaceRequest(id=namespace))
    for number, table in enumerate((["plain"], ["shop", "one"], ["shop", "deep", "two"])):
        lance.write_dataset(rows(number), namespace_client=found, table_id=table)
        lance.write_dataset(rows(10 + number), namespace_client=found, table_id=table, mode="append")
    found.declare_table(spec.DeclareTableRequest(id=["shop", "later"]))
    return found


def test_a_directory_namespace_comes_in_one_commit_with_all_versions(lake: Lake, root: Path) -> None:
    directory(root)
    before = len(lake.log())
    done = lake.import_lance(root, "search")
    assert [str(one.key) for one in done.tables] == [
        "search.plain",
        "search.shop.deep.two",
        "search.shop.later",
        "search.shop.one",
    ]
    assert len(lake.log()) == before + 1
    namespace = lake.lance()
    assert ids(namespace, "search", "plain") == [0, 10]
    assert ids(namespace, "search", "shop", "deep", "two") == [2, 12]
    old = lance.dataset(namespace_client=namespace, table_id=["search", "shop", "one"], version=1)
    assert old.to_table()["id"].to_pylist() == [1]
    lance.write_dataset(rows(20), namespace_client=namespace, table_id=["search", "plain"], mode="append")
    assert ids(namespace, "search", "plain") == [0, 10, 20]
    lance.write_dataset(
        rows(30), namespace_client=namespace, table_id=["search", "shop", "later"], mode="overwrite"
    )
    assert ids(namespace, "search", "shop", "later") == [30]


def test_a_folder_of_tables_without_a_list_comes_too_and_gets_none(lake: Lake, root: Path) -> None:
    lance.write_dataset(rows(1), str(root / "a.lance"))
    lance.write_dataset(rows(2), str(root / "b.lance"))
    assert [str(one.key) for one in lake.import_lance(root).tables] == ["a", "b"]
    assert ids(lake.lance(), "b") == [2]
    assert not (root / "__manifest").exists()


def test_a_dry_run_registers_nothing(lake: Lake, root: Path) -> None:
    directory(root)
    head = lake.resolve()
    done = lake.import_lance(root, dry_run=True)
    assert (len(done.tables), done.commit, done.dry_run) == (4, "", True)
    assert lake.resolve() == head


def test_if_some_tables_cannot_come_none_does_and_all_reasons_are_listed(lake: Lake, root: Path) -> None:
    directory(root)
    (root / "broken.lance" / "_versions").mkdir(parents=True)
    (root / "broken.lance" / "_versions" / "18446744073709551614.manifest").write_bytes(b"no manifest")
    namespace = lake.lance()
    lance.write_dataset(rows(5), namespace_client=namespace, table_id=["plain"])
    head = lake.resolve()
    with pytest.raises(InvalidRequest) as refused:
        lake.import_lance(root)
    assert "plain: this key is already in use" in refused.value.message
    assert "broken: Lance cannot open it" in refused.value.message
    assert refused.value.message.startswith("2 of the tables")
    assert lake.resolve() == head


def test_tables_outside_the_roots_of_the_lake_are_refused(lake: Lake, tmp_path: Path) -> None:
    lance.write_dataset(rows(1), str(tmp_path / "elsewhere" / "a.lance"))
    with pytest.raises(InvalidRequest, match="root add"):
        lake.import_lance(tmp_path / "elsewhere")


def test_a_place_without_tables_is_told_from_one_that_is_not_there(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no Lance directory namespace"):
        lake.import_lance(tmp_path / "nothing")


def test_who_leaves_finds_all_tables_in_a_directory_namespace(lake: Lake, tmp_path: Path) -> None:
    namespace = lake.lance()
    namespace.create_namespace(spec.CreateNamespaceRequest(id=["search"]))
    for number, table in enumerate((["plain"], ["search", "one"])):
        lance.write_dataset(rows(number), namespace_client=namespace, table_id=table)
    warehouse = tmp_path / "lake" / "warehouse"
    assert lake.export_lance(warehouse, dry_run=True).unchanged == 0
    assert not (warehouse / "__manifest").exists()
    done = lake.export_lance(warehouse)
    assert [(str(one.key), one.version) for one in done.tables] == [("plain", 1), ("search.one", 1)]
    plain: Any = DirectoryNamespace(root=str(warehouse), dir_listing_enabled="false")  # type: ignore[no-untyped-call]
    assert (ids(plain, "plain"), ids(plain, "search", "one")) == ([0], [1])
    lance.write_dataset(rows(7), namespace_client=namespace, table_id=["plain"], mode="append")
    lance.write_dataset(rows(8), namespace_client=namespace, table_id=["search", "new"])
    again = lake.export_lance(warehouse)
    assert (len(again.tables), again.unchanged) == (3, 2)
    assert (ids(plain, "plain"), ids(plain, "search", "new")) == ([0, 7], [8])
    lake.close()
    lance.write_dataset(rows(9), namespace_client=plain, table_id=["plain"], mode="append")
    assert ids(plain, "plain") == [0, 7, 9]


def test_another_branch_is_listed_as_it_is_there(lake: Lake, tmp_path: Path) -> None:
    lance.write_dataset(rows(1), namespace_client=lake.lance(), table_id=["a"])
    lake.branch("dev").create()
    lance.write_dataset(rows(2), namespace_client=lake.lance("dev"), table_id=["a"], mode="append")
    lance.write_dataset(rows(3), namespace_client=lake.lance(), table_id=["a"], mode="append")
    warehouse = tmp_path / "lake" / "warehouse"
    lake.export_lance(warehouse, "dev")
    plain: Any = DirectoryNamespace(root=str(warehouse), dir_listing_enabled="false")  # type: ignore[no-untyped-call]
    assert ids(plain, "a") == [1, 2]
    lake.export_lance(warehouse)
    assert ids(plain, "a") == [1, 3]


def test_a_table_whose_newest_version_is_not_where_readers_look_is_not_listed_as_if_it_were(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(rows(1), namespace_client=lake.lance(), table_id=["a"])
    lake.finish_background()
    warehouse = tmp_path / "lake" / "warehouse"
    with monkeypatch.context() as now:

        def put(*_: Any) -> Any:
            raise Unavailable("storage is away")

        now.setattr(ManifestChains, "put_manifest", put)
        lance.write_dataset(rows(2), namespace_client=lake.lance(), table_id=["a"], mode="append")
        with pytest.raises(Unavailable, match="version 2 of 'a' could not be copied"):
            lake.export_lance(warehouse)
    assert [one.version for one in lake.export_lance(warehouse).tables] == [2]
    plain: Any = DirectoryNamespace(root=str(warehouse), dir_listing_enabled="false")  # type: ignore[no-untyped-call]
    assert ids(plain, "a") == [1, 2]


def test_tables_that_were_dropped_or_renamed_go_from_the_list_and_others_stay(
    lake: Lake, root: Path, tmp_path: Path
) -> None:
    namespace, warehouse = lake.lance(), tmp_path / "lake" / "warehouse"
    namespace.create_namespace(spec.CreateNamespaceRequest(id=["search"]))
    for number, table in enumerate((["plain"], ["search", "one"], ["search", "two"])):
        lance.write_dataset(rows(number), namespace_client=namespace, table_id=table)
    lake.export_lance(warehouse)
    lance.write_dataset(rows(9), str(root / "own.lance"))
    plain: Any = DirectoryNamespace(root=str(warehouse), dir_listing_enabled="false")  # type: ignore[no-untyped-call]
    plain.register_table(spec.RegisterTableRequest(id=["own"], location="vectors/own.lance"))
    namespace.drop_table(spec.DropTableRequest(id=["plain"]))
    namespace.rename_table(spec.RenameTableRequest(id=["search", "one"], new_table_name="first"))
    done = lake.export_lance(warehouse)
    assert (len(done.tables), done.unchanged, done.removed) == (2, 1, 2)
    assert plain.list_tables(spec.ListTablesRequest(id=[])).tables == ["own"]
    assert sorted(plain.list_tables(spec.ListTablesRequest(id=["search"])).tables) == ["first", "two"]
    assert (ids(plain, "search", "first"), ids(plain, "own")) == ([1], [9])
    for name in ("first", "two"):
        namespace.drop_table(spec.DropTableRequest(id=["search", name]))
    assert lake.export_lance(warehouse).removed == 2
    assert plain.list_tables(spec.ListTablesRequest(id=["search"])).tables == []


def test_tables_that_cannot_be_listed_are_named(lake: Lake, tmp_path: Path) -> None:
    lance.write_dataset(rows(1), namespace_client=lake.lance(), table_id=["a"])
    lance.write_dataset(rows(1), namespace_client=lake.lance(), table_id=["b"])
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidRequest) as refused:
        lake.export_lance(tmp_path / "other")
    assert refused.value.message.count("which is outside") == 2
    with pytest.raises(InvalidRequest, match="'main~1' is not a branch"):
        lake.export_lance(tmp_path / "lake" / "warehouse", "main~1")


def test_tables_with_names_of_all_kinds_come_under_these_names(lake: Lake, root: Path) -> None:
    old = directory(root)
    named = (["shop", "with blank"], ["shop", "Bücher"], ["Größe"], ["top blank"], ["per%41cent"])
    for number, table in enumerate(named):
        lance.write_dataset(rows(number), namespace_client=old, table_id=table)
    lance.write_dataset(rows(8), str(root / "by itself ü.lance"))
    done = lake.import_lance(root, "all")
    assert {one.key[1:] for one in done.tables} == {
        *map(tuple, named),
        ("by itself ü",),
        *(("plain",), ("shop", "one"), ("shop", "deep", "two"), ("shop", "later")),
    }
    assert [str(one.key) for one in done.tables if one.is_declared] == ["all.shop.later"]
    namespace = lake.lance()
    for number, table in enumerate(named):
        where: Any = {"namespace_client": namespace, "table_id": ["all", *table]}
        lance.write_dataset(rows(100 + number), mode="append", **where)
        assert ids(namespace, "all", *table) == [number, 100 + number]


def test_tables_with_names_of_all_kinds_come_from_a_folder_without_a_list(lake: Lake, root: Path) -> None:
    for name in ("with blank", "Größe", "per%20cent"):
        lance.write_dataset(rows(1), str(root / f"{name}.lance"))
    found = lake.import_lance(root).tables
    assert [one.key[0] for one in found] == ["Größe", "per%20cent", "with blank"]
    assert ids(lake.lance(), "per%20cent") == [1]


def test_a_table_is_registered_by_the_url_of_its_folder(lake: Lake, root: Path) -> None:
    place = root / "with blank and ü.lance"
    lance.write_dataset(rows(1), str(place))
    lake.lance().register_table(spec.RegisterTableRequest(id=["t"], location=place.as_uri()))
    assert ids(lake.lance(), "t") == [1]
    assert lake.lance().describe_table(spec.DescribeTableRequest(id=["t"])).location == str(place)


def test_a_folder_without_tables_is_told(lake: Lake, root: Path) -> None:
    (root / "letters").mkdir()
    (root / "letters" / "a.txt").write_text("dear")
    with pytest.raises(InvalidRequest, match="no Lance table at"):
        lake.import_lance(root)


def test_a_lake_behind_a_server_takes_tables_in_and_lets_them_go(lake: Lake, root: Path) -> None:
    """Its folders are those that this program reads: it looks at them, and the server registers them."""
    directory(root)
    with (
        local(lake.catalogue, [NATIVE], gate=OpenGate()) as server,
        penstock.open(server.url, author="far") as far,
    ):
        assert len(far.import_lance(root, dry_run=True).tables) == 4
        far.import_lance(root, "search")
        assert ids(lake.lance(), "search", "shop", "one") == [1, 11]
        done = far.export_lance(root.parent)
        assert len(done.tables) == 4
    plain: Any = DirectoryNamespace(root=str(root.parent), dir_listing_enabled="false")  # type: ignore[no-untyped-call]
    assert ids(plain, "search", "plain") == [0, 10]
