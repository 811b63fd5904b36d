"""What a namespace answers to requests about namespaces, tables and versions, good ones and bad ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import lance_namespace as ln
import pytest
from lance_namespace import errors
from lance_namespace.errors import LanceNamespaceError

import penstock
from penstock.errors import InvalidRequest
from penstock.formats.lance.lake.calls import CommitLance, CreateLanceVersion, DeclareLance
from penstock.formats.lance.lake.namespace import PenstockNamespace
from penstock.formats.lance.names import make_manifest_path
from penstock.lake.calls import ListEntries
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from penstock.storage.locations import make_own_place
from tests.lance.tables import ids_at, opened, rows, written


@pytest.fixture
def namespace(lake: Lake) -> PenstockNamespace:
    return lake.lance()


def code(do: Callable[[], Any]) -> int:
    with pytest.raises(LanceNamespaceError) as caught:
        do()
    return int(caught.value.code)


# -- namespaces --------------------------------------------------------------------------------------------


def test_namespaces_are_created_described_listed_and_dropped(namespace: PenstockNamespace) -> None:
    create, listed = namespace.create_namespace, namespace.list_namespaces
    create(ln.CreateNamespaceRequest(id=["a"], properties={"owner": "ann"}))
    create(ln.CreateNamespaceRequest(id=["a", "b"]))
    create(ln.CreateNamespaceRequest(id=["c"]))
    assert listed(ln.ListNamespacesRequest(id=[])).namespaces == ["a", "c"]
    assert listed(ln.ListNamespacesRequest(id=["a"])).namespaces == ["b"]
    assert namespace.describe_namespace(ln.DescribeNamespaceRequest(id=["a"])).properties == {"owner": "ann"}
    assert namespace.describe_namespace(ln.DescribeNamespaceRequest()).properties == {}
    namespace.drop_namespace(ln.DropNamespaceRequest(id=["c"]))
    assert listed(ln.ListNamespacesRequest()).namespaces == ["a"]


def test_a_namespace_that_is_there_is_treated_as_the_mode_says(namespace: PenstockNamespace) -> None:
    def create(mode: str | None, **properties: str) -> dict[str, str]:
        request = ln.CreateNamespaceRequest(id=["a"], mode=mode, properties=properties)
        return dict(namespace.create_namespace(request).properties or {})

    create(None, n="1")
    assert code(lambda: create("Create")) == 2
    assert create("exist_ok", n="2") == {"n": "1"}
    assert create("Overwrite", n="3") == {"n": "3"}
    written(namespace, "a", "t", ids=[1], mode="create")
    assert code(lambda: create("overwrite")) == 3
    assert code(lambda: create("sometimes")) == 13
    assert code(lambda: namespace.create_namespace(ln.CreateNamespaceRequest(id=[]))) == 2
    assert code(lambda: namespace.create_namespace(ln.CreateNamespaceRequest(id=["x", "y"]))) == 1


def test_a_namespace_is_dropped_with_all_that_is_lances_in_it(
    lake: Lake, namespace: PenstockNamespace
) -> None:
    for one in (["a"], ["a", "b"]):
        namespace.create_namespace(ln.CreateNamespaceRequest(id=one))
    written(namespace, "a", "b", "t", ids=[1], mode="create")
    drop = namespace.drop_namespace
    assert code(lambda: drop(ln.DropNamespaceRequest(id=["a"]))) == 3
    assert code(lambda: drop(ln.DropNamespaceRequest(id=[]))) == 13
    assert code(lambda: drop(ln.DropNamespaceRequest(id=["z"]))) == 1
    drop(ln.DropNamespaceRequest(id=["z"], mode="Skip"))
    lake.branch().put("a.other", IcebergTable(metadata_location="s3://b/v1.json"))
    assert code(lambda: drop(ln.DropNamespaceRequest(id=["a"], behavior="Cascade"))) == 3
    lake.branch().drop("a.other")
    drop(ln.DropNamespaceRequest(id=["a"], behavior="Cascade"))
    assert lake.tables() == []
    assert code(lambda: namespace.namespace_exists(ln.NamespaceExistsRequest(id=["a"]))) == 1


# -- tables ------------------------------------------------------------------------------------------------


def test_tables_are_listed_by_page_and_others_are_not_seen(lake: Lake, namespace: PenstockNamespace) -> None:
    namespace.create_namespace(ln.CreateNamespaceRequest(id=["a"]))
    for name in ("one", "two", "three"):
        namespace.declare_table(ln.DeclareTableRequest(id=["a", name]))
    written(namespace, "a", "two", ids=[1])
    written(namespace, "top", ids=[1], mode="create")
    lake.branch().put("a.iceberg", IcebergTable(metadata_location="s3://b/v1.json"))
    page = namespace.list_tables(ln.ListTablesRequest(id=["a"], limit=2))
    assert (page.tables, page.page_token) == (["one", "three"], "three")
    page = namespace.list_tables(ln.ListTablesRequest(id=["a"], limit=2, page_token=page.page_token))
    assert (page.tables, page.page_token) == (["two"], None)
    assert namespace.list_tables(ln.ListTablesRequest(id=["a"], include_declared=False)).tables == ["two"]
    everything = namespace.list_all_tables(ln.ListTablesRequest(limit=3))
    assert (everything.tables, everything.page_token) == (["a$one", "a$three", "a$two"], "a.two")
    rest = namespace.list_all_tables(ln.ListTablesRequest(page_token=everything.page_token))
    assert (rest.tables, rest.page_token) == (["top"], None)
    assert code(lambda: namespace.list_tables(ln.ListTablesRequest(id=["z"]))) == 1
    none = namespace.list_tables(ln.ListTablesRequest(id=["a"], limit=0))
    assert (none.tables, none.page_token) == ([], None)
    assert len(namespace.list_tables(ln.ListTablesRequest(id=["a"], limit=-1)).tables) == 3
    assert code(lambda: namespace.describe_table(ln.DescribeTableRequest(id=["a", "iceberg"]))) == 4


def test_a_list_costs_no_more_for_what_is_deeper(lake: Lake) -> None:
    class Counting(Lake):
        entries = 0

        def do(self, call: Any, *more: Any) -> Any:
            answer = super().do(call, *more)
            self.entries += len(answer) if isinstance(call, ListEntries) else 0
            return answer

    deep = [Key("a", f"n{one}", f"t{number:03}") for one in range(3) for number in range(450)]
    odd = [Key("a", "n1", "\U0010ffff" + f"{number:03}") for number in range(250)]
    points = [Put(key, IcebergTable(metadata_location="s3://b/v1.json")) for key in deep + odd]
    lake.commit(points, create_namespaces=True)
    counting = Counting(lake.catalogue)
    namespace = counting.lance()
    namespace.declare_table(ln.DeclareTableRequest(id=["a", "table"]))
    names = namespace.list_namespaces(ln.ListNamespacesRequest(id=["a"])).namespaces
    assert (names, namespace.list_tables(ln.ListTablesRequest(id=["a"])).tables) == (
        ["n0", "n1", "n2"],
        ["table"],
    )
    assert counting.entries <= 2 * 700


def test_a_declared_table_is_there_without_a_version(namespace: PenstockNamespace) -> None:
    request = ln.DeclareTableRequest(id=["t"], properties={"k": "v"})
    made = namespace.declare_table(request)
    assert (made.managed_versioning, made.properties) == (True, {"k": "v"})
    assert code(lambda: namespace.declare_table(request)) == 5
    missing = ln.DeclareTableRequest(id=["a", "t"])
    assert code(lambda: namespace.declare_table(missing)) == 1
    told = namespace.describe_table(
        ln.DescribeTableRequest(id=["t"], check_declared=True, with_table_uri=True)
    )
    assert (told.is_only_declared, told.location, told.version) == (True, made.location, None)
    assert told.table_uri == Path(made.location or "").as_uri()
    newest = ln.DescribeTableVersionRequest(id=["t"])
    assert code(lambda: namespace.describe_table_version(newest)) == 11


def test_a_description_tells_of_the_version_that_is_asked_for(namespace: PenstockNamespace) -> None:
    written(namespace, "t", ids=[1], mode="create")
    written(namespace, "t", ids=[2])
    namespace.create_table_tag(ln.CreateTableTagRequest(id=["t"], tag="first", version=1))
    namespace.create_table_branch(ln.CreateTableBranchRequest(id=["t"], name="own", from_version=1))

    def described(**chosen: Any) -> int | None:
        found: int | None = namespace.describe_table(ln.DescribeTableRequest(id=["t"], **chosen)).version
        return found

    assert (described(), described(version=1), described(tag="first"), described(branch="own")) == (
        2,
        1,
        1,
        1,
    )
    assert code(lambda: described(version=9)) == 11
    assert code(lambda: described(tag="none")) == 8
    assert code(lambda: described(branch="none")) == 22
    assert code(lambda: described(tag="first", version=1)) == 13
    detailed = namespace.describe_table(ln.DescribeTableRequest(id=["t"], load_detailed_metadata=True))
    assert (detailed.table, detailed.namespace, detailed.is_only_declared) == ("t", [], False)
    assert detailed.var_schema is not None
    assert [field.name for field in detailed.var_schema.fields] == ["id", "x"]


def test_a_table_is_renamed_with_its_history(lake: Lake, namespace: PenstockNamespace) -> None:
    namespace.create_namespace(ln.CreateNamespaceRequest(id=["a"]))
    written(namespace, "t", ids=[1], mode="create")
    rename = namespace.rename_table
    rename(ln.RenameTableRequest(id=["t"], new_table_name="u", new_namespace_id=["a"]))
    assert ids_at(namespace, "a", "u") == [1]
    written(namespace, "a", "u", ids=[2])
    assert ids_at(namespace, "a", "u", version=1) == [1]
    assert code(lambda: rename(ln.RenameTableRequest(id=["t"], new_table_name="v"))) == 4
    written(namespace, "a", "w", ids=[1], mode="create")
    assert code(lambda: rename(ln.RenameTableRequest(id=["a", "w"], new_table_name="u"))) == 5
    assert code(lambda: rename(ln.RenameTableRequest(id=["a", "w"], new_table_name="w"))) == 13
    missing = ln.RenameTableRequest(id=["a", "w"], new_table_name="w", new_namespace_id=["z"])
    assert code(lambda: rename(missing)) == 1


def test_a_table_that_goes_leaves_its_files_for_who_still_has_it(
    lake: Lake, namespace: PenstockNamespace
) -> None:
    for name in ("dropped", "forgotten"):
        written(namespace, name, ids=[1], mode="create")
    before = lake.lance(lake.resolve())
    dropped = namespace.drop_table(ln.DropTableRequest(id=["dropped"]))
    forgotten = namespace.deregister_table(ln.DeregisterTableRequest(id=["forgotten"]))
    assert namespace.list_tables(ln.ListTablesRequest(id=[])).tables == []
    for name, answer in (("dropped", dropped), ("forgotten", forgotten)):
        assert (answer.id, lance.dataset(answer.location).count_rows()) == ([name], 1)
        assert ids_at(before, name) == [1]
        assert code(lambda name=name: namespace.table_exists(ln.TableExistsRequest(id=[name]))) == 4  # type: ignore[misc]
    assert code(lambda: namespace.drop_table(ln.DropTableRequest(id=["dropped"]))) == 4
    assert code(lambda: namespace.deregister_table(ln.DeregisterTableRequest(id=["forgotten"]))) == 4
    written(namespace, "dropped", ids=[2], mode="create")
    assert ids_at(namespace, "dropped") == [2]


def test_a_table_that_is_there_is_registered_and_goes_on(
    lake: Lake, own: Lake, namespace: PenstockNamespace
) -> None:
    place = f"{lake.warehouse}/outside/old.lance"
    for number in range(3):
        lance.write_dataset(rows([number]), place, mode="append" if number else "create")
    made = namespace.register_table(ln.RegisterTableRequest(id=["t"], location=place))
    assert made.location == place
    assert ids_at(namespace, "t") == [0, 1, 2]
    assert ids_at(namespace, "t", version=1) == [0]
    written(namespace, "t", ids=[3])
    own.finish_background()
    assert lance.dataset(place).version == 4
    again = ln.RegisterTableRequest(id=["t"], location=place)
    assert code(lambda: namespace.register_table(again)) == 5
    assert code(lambda: namespace.register_table(ln.RegisterTableRequest(id=["u"], location=place))) == 13
    gone = f"{lake.warehouse}/outside/none.lance"
    assert code(lambda: namespace.register_table(ln.RegisterTableRequest(id=["u"], location=gone))) == 4
    assert code(lambda: namespace.register_table(ln.RegisterTableRequest(id=["u"], location="old"))) == 4


def test_a_place_outside_of_the_lakes_roots_is_refused(namespace: PenstockNamespace, tmp_path: Path) -> None:
    place = str(tmp_path / "elsewhere")
    lance.write_dataset(rows([1]), place)
    assert code(lambda: namespace.register_table(ln.RegisterTableRequest(id=["t"], location=place))) == 13
    assert code(lambda: namespace.declare_table(ln.DeclareTableRequest(id=["t"], location=place))) == 13


# -- versions ----------------------------------------------------------------------------------------------


def staged(namespace: PenstockNamespace, table: str, version: int) -> dict[str, Any]:
    """A request for a version whose manifest says so: the newest one's rows, once more."""
    from penstock.formats.lance.manifests import Manifest, ManifestOperation, make_transaction
    from penstock.formats.lance.protobuf import ProtobufMessage

    dataset = opened(namespace, table)
    folder = Path(dataset.uri)
    newest = Manifest.decode((folder / make_manifest_path("", "", dataset.version)).read_bytes())
    said = make_transaction(
        ManifestOperation.OVERWRITE, dataset.version, f"{table}-{version}", ProtobufMessage.from_fields(), {}
    )
    data = newest.make_version(version, None, said, 1).encode()
    path = folder / f"{make_manifest_path('', '', version)}-{table}"
    path.write_bytes(data)
    return {
        "id": [table],
        "version": version,
        "manifest_path": str(path).lstrip("/"),
        "manifest_size": len(data),
        "naming_scheme": "V2",
    }


@pytest.fixture
def tables(namespace: PenstockNamespace) -> PenstockNamespace:
    for name in ("left", "right"):
        written(namespace, name, ids=[1], mode="create")
        written(namespace, name, ids=[2])
    return namespace


def versions(namespace: PenstockNamespace, table: str) -> list[int]:
    told = namespace.list_table_versions(ln.ListTableVersionsRequest(id=[table])).versions
    return [one.version for one in told]


def test_versions_of_several_tables_come_all_or_none(tables: PenstockNamespace) -> None:
    entries = [staged(tables, "left", 3), staged(tables, "right", 4)]
    with pytest.raises(errors.ConcurrentModificationError, match=r"^operation 1: "):
        tables.batch_create_table_versions({"entries": entries})
    assert (versions(tables, "left"), versions(tables, "right")) == ([2, 1], [2, 1])
    entries[1] = staged(tables, "right", 3)
    made = tables.batch_create_table_versions({"entries": entries})
    assert [one.version for one in made.versions] == [3, 3]
    assert (versions(tables, "left"), versions(tables, "right")) == ([3, 2, 1], [3, 2, 1])


def test_a_branch_of_lances_own_that_is_not_there_is_told_by_every_operation(
    tables: PenstockNamespace,
) -> None:
    good = staged(tables, "left", 3)
    table, below = good["manifest_path"].split("/_versions/")
    for wrong in ({}, {"manifest_path": f"{table}/tree/nope/_versions/{below}"}):
        create = {**good, "branch": "nope", **wrong}
        delete = {"id": ["left"], "branch": "nope", "ranges": [{"start_version": 1, "end_version": 2}]}
        assert code(lambda create=create: tables.create_table_version(create)) == 22  # type: ignore[misc]
        for entries in ([create], [staged(tables, "right", 3), create]):
            with pytest.raises(errors.TableBranchNotFoundError, match=rf"^operation {len(entries) - 1}: "):
                tables.batch_create_table_versions({"entries": entries})
        for operation in ({"create_table_version": create}, {"delete_table_versions": delete}):
            with pytest.raises(errors.TableBranchNotFoundError, match=r"^operation 0: .*no branch 'nope'"):
                batch(tables, operation)
    assert versions(tables, "left") == [2, 1]


def test_a_manifest_that_is_not_what_was_said_is_refused(tables: PenstockNamespace) -> None:
    good = staged(tables, "left", 3)
    for wrong in (
        {"version": 4},
        {"manifest_size": 7},
        {"manifest_path": good["manifest_path"] + "-gone"},
        {"manifest_path": "etc/passwd"},
        {"manifest_path": staged(tables, "right", 3)["manifest_path"]},
        {"naming_scheme": "V3"},
        {"naming_scheme": "V1"},
        {"branch": "../up"},
        {"version": 0},
    ):
        assert code(lambda wrong=wrong: tables.create_table_version({**good, **wrong})) in (13, 22), wrong  # type: ignore[misc]
    told = {**good, "naming_scheme": "V1"}
    with pytest.raises(errors.InvalidInputError, match="use the naming scheme V2"):
        tables.create_table_version(told)
    assert code(lambda: tables.create_table_version({**good, "id": ["none"]})) == 4
    assert code(lambda: tables.create_table_version({**good, "id": []})) == 13
    assert code(lambda: tables.create_table_version({"id": ["left"]})) == 13
    assert versions(tables, "left") == [2, 1]


def test_versions_are_deleted_but_not_those_that_something_needs(tables: PenstockNamespace) -> None:
    written(tables, "left", ids=[3])
    tables.create_table_tag(ln.CreateTableTagRequest(id=["left"], tag="kept", version=2))

    def delete(start: int, end: int) -> int | None:
        ranges = [{"start_version": start, "end_version": end}]
        found: int | None = tables.batch_delete_table_versions(
            {"id": ["left"], "ranges": ranges}
        ).deleted_count
        return found

    assert delete(1, 2) == 1
    assert code(lambda: delete(2, 3)) == 19
    assert code(lambda: delete(0, -1)) == 19
    assert code(lambda: delete(3, 2)) == 13
    assert versions(tables, "left") == [3, 2]
    tables.delete_table_tag(ln.DeleteTableTagRequest(id=["left"], tag="kept"))
    assert delete(0, 3) == 1
    assert versions(tables, "left") == [3]


# -- Lance's own branches and tags -------------------------------------------------------------------------


def test_tags_and_branches_are_refused_where_they_cannot_be(tables: PenstockNamespace) -> None:
    tag = {"id": ["left"], "tag": "a", "version": 1}
    tables.create_table_tag(tag)
    assert code(lambda: tables.create_table_tag(tag)) == 9
    assert code(lambda: tables.create_table_tag({**tag, "tag": "b", "version": 7})) == 11
    assert code(lambda: tables.create_table_tag({**tag, "tag": "../b"})) == 13
    assert code(lambda: tables.update_table_tag({**tag, "tag": "b"})) == 8
    tables.update_table_tag({**tag, "version": 2})
    assert tables.get_table_tag_version({"id": ["left"], "tag": "a"}).version == 2
    assert code(lambda: tables.delete_table_tag({"id": ["left"], "tag": "b"})) == 8
    branch = {"id": ["left"], "name": "x"}
    tables.create_table_branch(branch)
    assert code(lambda: tables.create_table_branch(branch)) == 23
    assert code(lambda: tables.create_table_branch({**branch, "name": "y", "from_branch": "z"})) in (11, 22)
    assert code(lambda: tables.delete_table_branch({**branch, "name": "y"})) == 22
    tables.delete_table_branch(branch)
    assert tables.list_table_branches({"id": ["left"]}).branches == {}


# -- batches -----------------------------------------------------------------------------------------------


def batch(namespace: PenstockNamespace, *operations: dict[str, Any], **more: Any) -> Any:
    return namespace.batch_commit_tables({"operations": list(operations), **more})


def test_a_batch_of_everything_is_one_commit(lake: Lake, tables: PenstockNamespace) -> None:
    written(tables, "third", ids=[1], mode="create")
    before = lake.resolve()
    ranges = [{"start_version": 1, "end_version": 2}]
    answer = batch(
        tables,
        {"declare_table": {"id": ["fresh"]}},
        {"create_table_version": staged(tables, "left", 3)},
        {"delete_table_versions": {"id": ["right"], "ranges": ranges}},
        {"deregister_table": {"id": ["third"]}},
    )
    declared, created, deleted, gone = answer.results
    assert declared.declare_table.location
    assert created.create_table_version.version.version == 3
    assert deleted.delete_table_versions.deleted_count == 1
    assert gone.deregister_table.id == ["third"]
    assert lake.resolve("main~1") == before
    assert answer.transaction_id == lake.resolve()
    assert tables.list_tables(ln.ListTablesRequest(id=[])).tables == ["fresh", "left", "right"]
    assert (versions(tables, "left"), versions(tables, "right")) == ([3, 2, 1], [2])


def first_version(place: Path) -> dict[str, Any]:
    """A request for the first version of a table at a place, whose manifest and rows are there."""
    lance.write_dataset(rows([7]), str(place))
    path = place / f"{make_manifest_path('', '', 1)}-first"
    (place / make_manifest_path("", "", 1)).rename(path)
    size = path.stat().st_size
    return {"version": 1, "manifest_path": str(path).lstrip("/"), "manifest_size": size}


def test_a_batch_declares_a_table_at_a_place_and_writes_to_it(lake: Lake, tables: PenstockNamespace) -> None:
    place = Path(lake.warehouse, "outside", "fresh.lance")
    create = {"id": ["fresh"], **first_version(place)}
    before = lake.resolve()
    declared, made, other = batch(
        tables,
        {"declare_table": {"id": ["fresh"], "location": f"{place}/"}},
        {"create_table_version": create},
        {"create_table_version": staged(tables, "left", 3)},
    ).results
    assert declared.declare_table.location == str(place)
    assert made.create_table_version.version.version == 1
    assert other.create_table_version.version.version == 3
    assert lake.resolve("main~1") == before
    assert ids_at(tables, "fresh") == [7]
    assert lance.dataset(str(place)).version == 1


def test_a_table_is_declared_with_an_id_and_written_to_in_one_commit(lake: Lake) -> None:
    identity = UUID("0188a5a0-0000-4000-8000-000000000001")
    place = Path(make_own_place(lake.warehouse, identity))
    create = first_version(place)
    done = lake.do(
        CommitLance(
            operations=(
                DeclareLance(key=Key("fresh"), id=identity),
                CreateLanceVersion(key=Key("fresh"), version=1, manifest=f"/{create['manifest_path']}"),
            )
        )
    ).done
    assert (done[0].location, done[1].version and done[1].version.version) == (str(place), 1)
    assert ids_at(lake.lance(), "fresh") == [7]
    with pytest.raises(InvalidRequest, match="already had a table"):
        lake.do(CommitLance(operations=(DeclareLance(key=Key("other"), id=identity),)))


def test_a_table_is_declared_and_then_written_to_by_a_batch_as_anybody_can(tables: PenstockNamespace) -> None:
    location = tables.declare_table(ln.DeclareTableRequest(id=["fresh"])).location
    create = {"id": ["fresh"], **first_version(Path(location or ""))}
    batch(tables, {"create_table_version": create}, {"create_table_version": staged(tables, "left", 3)})
    assert (ids_at(tables, "fresh"), versions(tables, "left")) == ([7], [3, 2, 1])


def test_a_batch_in_a_transaction_writes_to_what_was_declared_there(
    lake: Lake, tables: PenstockNamespace
) -> None:
    with lake.transaction() as transaction:
        within = transaction.lance
        location = within.declare_table(ln.DeclareTableRequest(id=["fresh"])).location
        create = {"id": ["fresh"], **first_version(Path(location or ""))}
        batch(within, {"create_table_version": create}, {"create_table_version": staged(tables, "left", 3)})
        assert (ids_at(within, "fresh"), versions(within, "left")) == ([7], [3, 2, 1])
        assert versions(tables, "left") == [2, 1]
        assert code(lambda: tables.table_exists(ln.TableExistsRequest(id=["fresh"]))) == 4
    assert (ids_at(tables, "fresh"), versions(tables, "left")) == ([7], [3, 2, 1])
    assert lance.dataset(location).version == 1


def test_a_batch_that_writes_to_what_it_declares_has_to_say_where(
    lake: Lake, tables: PenstockNamespace
) -> None:
    create = {"id": ["fresh"], **first_version(Path(lake.warehouse, "outside", "fresh.lance"))}
    with pytest.raises(errors.TableNotFoundError, match=r"^operation 1: .*'fresh'"):
        batch(tables, {"declare_table": {"id": ["fresh"]}}, {"create_table_version": create})
    assert code(lambda: tables.table_exists(ln.TableExistsRequest(id=["fresh"]))) == 4


def test_a_batch_that_fails_says_where_and_does_nothing(lake: Lake, tables: PenstockNamespace) -> None:
    before = lake.resolve()
    good = {"create_table_version": staged(tables, "left", 3)}
    for bad, number in (
        ({"declare_table": {"id": ["right"]}}, 5),
        ({"declare_table": {"id": ["a", "b"]}}, 1),
        ({"create_table_version": staged(tables, "right", 7)}, 14),
        ({"create_table_version": {**staged(tables, "right", 3), "id": ["none"]}}, 4),
        ({"deregister_table": {"id": ["none"]}}, 4),
        ({"delete_table_versions": {"id": ["right"], "ranges": []}}, 13),
        (
            {"delete_table_versions": {"id": ["right"], "ranges": [{"start_version": 2, "end_version": 3}]}},
            19,
        ),
        ({}, 13),
        ({"declare_table": {"id": ["x"]}, "deregister_table": {"id": ["right"]}}, 13),
        ({"declare_table": {}}, 13),
    ):
        with pytest.raises(LanceNamespaceError, match=r"^operation 1: ") as caught:
            batch(tables, good, bad)
        assert int(caught.value.code) == number, bad
    assert code(lambda: batch(tables)) == 13
    assert lake.resolve() == before


def test_operations_that_contradict_each_other_are_refused(tables: PenstockNamespace) -> None:
    create = {"create_table_version": staged(tables, "left", 3)}
    forget = {"deregister_table": {"id": ["left"]}}
    delete = {"delete_table_versions": {"id": ["left"], "ranges": [{"start_version": 3, "end_version": -1}]}}
    declare = {"declare_table": {"id": ["fresh"]}}
    for pair in ((create, forget), (forget, create), (create, create), (create, delete), (declare, declare)):
        assert code(lambda pair=pair: batch(tables, *pair)) == 13  # type: ignore[misc]
    assert versions(tables, "left") == [2, 1]


def test_a_batch_that_is_sent_again_is_answered_as_the_first_time(
    lake: Lake, own: Lake, tables: PenstockNamespace
) -> None:
    operations = (
        {"declare_table": {"id": ["fresh"]}},
        {"create_table_version": staged(tables, "left", 3)},
        {"create_table_version": staged(tables, "right", 3)},
    )
    first = batch(tables, *operations)
    for one in first.results[1:]:  # an answer names a manifest where it is by then
        one.create_table_version.version.manifest_path = "left or right"
    written(tables, "left", ids=[9])
    own.finish_background()
    before = lake.resolve()
    again = batch(tables, *operations)
    assert {
        Path(one.create_table_version.version.manifest_path).parent.name for one in again.results[1:]
    } == {"_versions"}
    for one in again.results[1:]:
        one.create_table_version.version.manifest_path = "left or right"
    assert again == first
    assert lake.resolve() == before


def test_a_request_with_a_key_is_done_once(lake: Lake, tables: PenstockNamespace) -> None:
    request = {"id": ["fresh"], "context": {"idempotency_key": "only once"}}
    first = tables.declare_table(request)
    before = lake.resolve()
    assert tables.declare_table(request).location == first.location
    assert lake.resolve() == before
    assert code(lambda: tables.declare_table({**request, "id": ["other"]})) == 13


# -- as a whole --------------------------------------------------------------------------------------------


def test_what_is_no_request_is_refused(namespace: PenstockNamespace) -> None:
    for bad in (None, 7, {"id": "text"}, {"id": [""]}, {"id": ["a\x00b"]}, {"id": ["a"] * 30}):
        assert code(lambda bad=bad: namespace.describe_table(bad)) == 13, bad  # type: ignore[misc]
        assert code(lambda bad=bad: namespace.create_table_version(bad)) == 13, bad  # type: ignore[misc]


def test_a_branch_that_is_gone_is_told_as_a_namespace_that_is_not_there(lake: Lake) -> None:
    lake.branch("dev").create()
    dev = lake.lance("dev")
    lake.branch("dev").delete()
    assert code(lambda: dev.list_tables(ln.ListTablesRequest(id=[]))) == 1


def test_without_lance_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in list(sys.modules):
        if name.startswith("penstock.formats.lance.lake.namespace"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lance_namespace", None)
    for name in ("errors", "namespaces", "tables", "versions", "own_refs", "batches", "data"):
        monkeypatch.delitem(sys.modules, f"penstock.formats.lance.lake.{name}", raising=False)
    with penstock.open("memory:") as lake, pytest.raises(InvalidRequest, match=r"penstock\[lance\]"):
        lake.lance()


def test_a_table_whose_folder_is_gone_is_told_as_damaged(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        made = written(lake.lance(), "t", ids=[1], mode="create")
        lake.branch("dev").create()
    shutil.rmtree(made.uri)
    with penstock.open(tmp_path / "lake") as lake:
        assert code(lambda: lake.lance("dev").describe_table(ln.DescribeTableRequest(id=["t"]))) == 18
