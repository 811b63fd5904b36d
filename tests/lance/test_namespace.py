"""Lance's own client reads and commits through a lake's namespace, and need not know that it is one."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lance_namespace import (
    CreateTableBranchRequest,
    CreateTableTagRequest,
    DescribeTableRequest,
    ListTableBranchesRequest,
    ListTableTagsRequest,
    ListTableVersionsRequest,
)
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
)

import penstock
from penstock.errors import ForeignCommit
from penstock.formats.lance.lake.calls import PromoteLance
from penstock.formats.lance.lake.namespace import PenstockNamespace
from penstock.formats.lance.names import make_manifest_path
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from tests.lance.tables import ids_at, ids_of, opened, rows, written

ITEMS = ["items"]


@pytest.fixture
def namespace(lake: Lake) -> PenstockNamespace:
    found = lake.lance()
    written(found, "items", ids=range(10), mode="create")
    return found


def test_every_commit_of_lance_is_one_of_the_lake(lake: Lake, namespace: PenstockNamespace) -> None:
    written(namespace, "items", ids=[10, 11])
    opened(namespace, "items").delete("id < 3")
    assert ids_at(namespace, "items") == list(range(3, 12))
    assert [commit.message for commit in lake.log()] == [
        "write items",
        "write items",
        "write items",
        "declare items",
    ]


def test_what_is_committed_is_where_every_reader_looks(own: Lake, namespace: PenstockNamespace) -> None:
    made = written(namespace, "items", ids=[10])
    own.finish_background()
    plain = lance.dataset(made.uri)
    assert (plain.version, ids_of(plain)) == (2, list(range(11)))


def test_rows_are_overwritten_updated_and_merged(namespace: PenstockNamespace) -> None:
    written(namespace, "items", ids=range(5), mode="overwrite")
    opened(namespace, "items").update({"x": "x + 100"}, where="id = 4")
    merge = opened(namespace, "items").merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(rows([3, 7]))
    table = opened(namespace, "items").to_table().sort_by("id")
    assert table.to_pydict() == {"id": [0, 1, 2, 3, 4, 7], "x": [0.0, 1.0, 2.0, 3.0, 104.0, 7.0]}


def test_columns_and_indexes_are_added_and_used(namespace: PenstockNamespace) -> None:
    opened(namespace, "items").add_columns({"y": "x * 2"})
    opened(namespace, "items").create_scalar_index("id", "BTREE")
    found = opened(namespace, "items").to_table(filter="id = 4")
    assert found.to_pydict() == {"id": [4], "x": [4.0], "y": [8.0]}
    assert [one.name for one in opened(namespace, "items").describe_indices()] == ["id_idx"]
    opened(namespace, "items").drop_columns(["y"])
    assert opened(namespace, "items").schema.names == ["id", "x"]


def test_vectors_are_found_by_an_index(lake: Lake) -> None:
    namespace, count = lake.lance(), 300
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array([float(n % 17) for n in range(count * 4)], pa.float32()), 4
    )
    table = pa.table({"id": list(range(count)), "v": vectors})
    lance.write_dataset(table, namespace_client=namespace, table_id=["vectors"])
    opened(namespace, "vectors").create_index("v", "IVF_PQ", num_partitions=1, num_sub_vectors=2)
    nearest = {"column": "v", "q": table["v"][7].as_py(), "k": 3}
    assert opened(namespace, "vectors").to_table(nearest=nearest).num_rows == 3


def test_small_files_are_compacted_and_old_versions_restored(namespace: PenstockNamespace) -> None:
    for number in range(10, 14):
        written(namespace, "items", ids=[number])
    assert opened(namespace, "items").optimize.compact_files().fragments_removed == 5
    assert ids_at(namespace, "items") == list(range(14))
    opened(namespace, "items", version=2).restore()
    assert ids_at(namespace, "items") == list(range(11))


def test_a_handle_that_is_behind_commits_on_top_of_what_others_did(namespace: PenstockNamespace) -> None:
    stale = opened(namespace, "items")
    written(namespace, "items", ids=[10])
    stale.insert(rows([11]))
    assert (stale.version, ids_at(namespace, "items")) == (3, list(range(12)))


def test_of_two_who_delete_the_same_rows_one_is_told_and_does_it_again(
    namespace: PenstockNamespace,
) -> None:
    one, other = opened(namespace, "items"), opened(namespace, "items")
    one.delete("id = 1")
    other.delete("id = 1 OR id = 2")
    assert ids_at(namespace, "items") == [0, *range(3, 10)]


@pytest.mark.parametrize("wait_s", [0.0, 1.0])
def test_appends_that_race_all_land_once(tmp_path: Path, wait_s: float) -> None:
    with penstock.open(tmp_path / "lake", settings=Settings(promote_wait_s=wait_s)) as lake:
        namespace = lake.lance()
        written(namespace, "items", ids=[0], mode="create")
        barrier, problems = Barrier(3), list[BaseException]()

        def race(first: int) -> None:
            try:
                for number in range(4):
                    barrier.wait(60)
                    written(namespace, "items", ids=[first + number])
            except BaseException as problem:
                problems.append(problem)
                barrier.abort()

        threads = [Thread(target=race, args=(100 * (one + 1),)) for one in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert problems == []
        expected = [100 * one + number for one in (1, 2, 3) for number in range(4)]
        assert ids_at(namespace, "items") == [0, *expected]


def test_a_commit_whose_answer_is_lost_is_not_done_twice(lake: Lake, namespace: PenstockNamespace) -> None:
    class Losing(PenstockNamespace):
        is_lost = False

        def create_table_version(self, request: Any) -> Any:
            super().create_table_version(request)
            self.is_lost = True
            raise ServiceUnavailableError("the line went dead")

    losing = Losing(lake)
    written(losing, "items", ids=[10])
    assert losing.is_lost
    assert ids_at(namespace, "items") == list(range(11))


@pytest.mark.parametrize(
    "refusal", [InvalidInputError, ConcurrentModificationError, PermissionDeniedError, InvalidTableStateError]
)
def test_whatever_refuses_a_version_lance_only_says_that_it_is_not_known_what_came_of_it(
    tmp_path: Path, refusal: type[LanceNamespaceError]
) -> None:
    """If this fails, Lance takes an answer as definite by now, and refusals should be given as that one."""

    class Refusing(PenstockNamespace):
        def create_table_version(self, request: Any) -> Any:
            raise refusal("for this reason")

    with penstock.open(tmp_path / "lake") as lake:
        written(lake.lance(), "items", ids=[0], mode="create")
        with pytest.raises(OSError, match="result for version 2 is unknown") as caught:
            written(Refusing(lake), "items", ids=[1])
        assert "for this reason" not in str(caught.value)
        assert ids_at(lake.lance(), "items") == [0]


def test_all_versions_are_told_newest_first_and_by_page(namespace: PenstockNamespace) -> None:
    for number in range(10, 14):
        written(namespace, "items", ids=[number])
    found, token = list[int](), None
    while True:
        page = namespace.list_table_versions(
            ListTableVersionsRequest(id=ITEMS, limit=2, page_token=token, descending=True)
        )
        found += [one.version for one in page.versions]
        if (token := page.page_token) is None:
            break
    assert found == [5, 4, 3, 2, 1]
    assert [ids_at(namespace, "items", version=one)[-1] for one in (1, 3, 5)] == [9, 11, 13]


def test_lances_own_branches_are_made_and_written_by_its_client(namespace: PenstockNamespace) -> None:
    opened(namespace, "items").create_branch("trial")
    branch = opened(namespace, "items").checkout_version(("trial", None))
    branch.insert(rows([10]))
    again = opened(namespace, "items").checkout_version(("trial", None))
    assert (ids_of(again), ids_at(namespace, "items")) == (list(range(11)), list(range(10)))
    told = namespace.list_table_branches(ListTableBranchesRequest(id=ITEMS)).branches
    assert {name: one.parent_version for name, one in told.items()} == {"trial": 1}


def test_branches_and_tags_that_the_namespace_makes_are_found_by_the_client(
    own: Lake, namespace: PenstockNamespace
) -> None:
    written(namespace, "items", ids=[10])
    namespace.create_table_tag(CreateTableTagRequest(id=ITEMS, tag="first", version=1))
    namespace.create_table_branch(CreateTableBranchRequest(id=ITEMS, name="trial", from_version=1))
    own.finish_background()
    assert ids_at(namespace, "items", version="first") == list(range(10))
    branch = opened(namespace, "items").checkout_version(("trial", None))
    branch.insert(rows([20]))
    assert ids_of(opened(namespace, "items").checkout_version(("trial", None))) == [*range(10), 20]
    tags = namespace.list_table_tags(ListTableTagsRequest(id=ITEMS)).tags
    assert {name: one.version for name, one in tags.items()} == {"first": 1}


def test_the_name_of_a_branch_that_is_gone_is_taken_while_its_versions_are_there(
    lake: Lake, own: Lake, namespace: PenstockNamespace
) -> None:
    opened(namespace, "items").create_branch("trial")
    opened(namespace, "items").checkout_version(("trial", None)).insert(rows([10]))
    before = lake.lance(lake.resolve())
    own.finish_background()
    namespace.delete_table_branch({"id": ITEMS, "name": "trial"})
    with pytest.raises(InvalidTableStateError, match="had a branch 'trial' before"):
        namespace.create_table_branch({"id": ITEMS, "name": "trial"})
    with pytest.raises(OSError, match="has no branch 'trial'"):
        opened(namespace, "items").create_branch("trial")
    assert namespace.list_table_branches({"id": ITEMS}).branches == {}
    assert ids_of(opened(before, "items").checkout_version(("trial", None))) == list(range(11))
    opened(namespace, "items").create_branch("again")
    opened(namespace, "items").checkout_version(("again", None)).insert(rows([20]))
    written(namespace, "items", ids=[11])
    assert ids_of(opened(namespace, "items").checkout_version(("again", None))) == [*range(10), 20]
    own.do(PromoteLance(key=Key("items")))
    own.finish_background()  # nothing stands against the promotion of what is left


def test_a_reader_is_told_the_lakes_version_where_another_is_in_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        namespace = lake.lance()
        folder = Path(written(namespace, "items", ids=[0], mode="create").uri)
        lake.finish_background()
        fragments = lance.fragment.write_fragments(rows([1]), str(folder), mode="append")
        manifest = _appended(folder, fragments)
        foreign = folder / make_manifest_path("", "", 2)
        foreign.write_bytes(b"somebody else's")
        path = folder / f"{make_manifest_path('', '', 2)}-ours"
        path.write_bytes(manifest)
        request = {"id": ITEMS, "version": 2, "manifest_path": str(path).lstrip("/")}
        namespace.create_table_version({**request, "manifest_size": len(manifest)})
        told = namespace.describe_table_version({"id": ITEMS, "version": 2}).version
        assert told.manifest_path.endswith(".manifest")
        assert Path("/", told.manifest_path).read_bytes() == manifest
        assert ids_at(namespace, "items") == [0, 1]
        with pytest.raises(ForeignCommit):
            lake.finish_background()
        assert foreign.read_bytes() == b"somebody else's"
        assert "writes to the table directly" in caplog.text


def _appended(folder: Path, fragments: Any) -> bytes:
    """The manifest of a version that Lance makes of fragments, in a copy of the table."""
    copy = folder.with_name(f"{folder.name}-copy")
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.manifest-*"))
    lance.LanceDataset.commit(str(copy), lance.LanceOperation.Append(fragments), read_version=1)
    return (copy / make_manifest_path("", "", 2)).read_bytes()


def test_a_version_that_belongs_to_no_chain_can_be_read_and_is_not_told(
    namespace: PenstockNamespace,
) -> None:
    base = opened(namespace, "items")
    fragments = lance.fragment.write_fragments(rows([10]), base, mode="append")
    apart = lance.LanceDataset.commit(
        base,
        lance.LanceOperation.Append(fragments),
        read_version=1,
        detached=True,
        namespace_client=namespace,
        table_id=ITEMS,
        namespace_client_managed_versioning=True,
    )
    assert ids_of(apart) == list(range(11))
    assert ids_at(namespace, "items") == list(range(10))
    told = namespace.list_table_versions(ListTableVersionsRequest(id=ITEMS)).versions
    assert [one.version for one in told] == [1]


def test_lances_own_cleanup_leaves_what_is_newest(namespace: PenstockNamespace) -> None:
    written(namespace, "items", ids=range(5), mode="overwrite")
    opened(namespace, "items").cleanup_old_versions(
        older_than=timedelta(0), error_if_tagged_old_versions=False
    )
    assert ids_at(namespace, "items") == list(range(5))
    written(namespace, "items", ids=[5])
    assert ids_at(namespace, "items") == list(range(6))


def test_versions_of_a_private_table_are_told_by_the_lake_only(lake: Lake) -> None:
    from lance_namespace import DeclareTableRequest

    namespace = lake.lance()
    request = DeclareTableRequest(id=["secret"], properties={"penstock.private": "true"})
    location = namespace.declare_table(request).location
    written(namespace, "secret", ids=[1])
    written(namespace, "secret", ids=[2])
    assert ids_at(namespace, "secret") == [1, 2]
    assert location is not None
    assert list(Path(location, "_versions").glob("*.manifest")) == []


def test_a_table_object_gives_rows_and_takes_them(lake: Lake, namespace: PenstockNamespace) -> None:
    items = lake.table("items")
    items.append(rows([10]), message="ten", idempotency_key="once")
    done = items.append(rows([10]), message="ten", idempotency_key="once")
    assert (done.commit.message, done.tables[0].version, done.tables[0].repeated) == ("ten", 2, True)
    assert items.to_arrow(columns=["id"], where="id > 8")["id"].to_pylist() == [9, 10]
    assert items.overwrite(rows([1])).tables[0].version == 3
    assert ids_of(items.to_lance()) == [1]
    assert ids_of(items.to_lance(version=1)) == list(range(10))
    assert ids_of(lake.at("main~1").table("items").to_lance()) == list(range(11))


def test_a_namespace_is_made_by_its_class_and_an_address(tmp_path: Path) -> None:
    import lance_namespace

    where = str(tmp_path / "lake")
    with penstock.open(where) as lake:
        written(lake.lance(), "items", ids=[1], mode="create")
    made: Any = lance_namespace.connect(
        "penstock.formats.lance.lake.namespace.PenstockNamespace", {"lake": where, "ref": "main"}
    )
    try:
        assert ids_at(made, "items") == [1]
        assert made.describe_table(DescribeTableRequest(id=ITEMS)).managed_versioning is True
    finally:
        made.lake.close()
