"""What is relied on in Lance, held against Lance itself: a version of it that differs is seen here first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import (
    DescribeTableResponse,
    DescribeTableVersionResponse,
    LanceNamespace,
    ListTableVersionsResponse,
    TableVersion,
)

from penstock.formats.lance.manifests import FileBase, Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.names import make_manifest_path
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.formats.lance.relocation import (
    BASE_OF_FILE,
    BASE_OF_INDEX,
    DELETION_FILE,
    FILES,
    FRAGMENT_ID,
    make_index_id,
    move_to_folder,
)
from tests.formats.lance.tables import rows

lance = pytest.importorskip("lance")
TRANSACTION_SECTION = 23


def stored(folder: Path, version: int) -> Path:
    return folder / make_manifest_path("", "", version)


def read(folder: Path, version: int) -> Manifest:
    return Manifest.decode(stored(folder, version).read_bytes())


def latest(folder: Path) -> int:
    found: int = lance.dataset(str(folder)).version
    return found


def put(folder: Path, manifest: Manifest) -> None:
    stored(folder, manifest.version).parent.mkdir(parents=True, exist_ok=True)
    stored(folder, manifest.version).write_bytes(manifest.encode())


def keys(folder: Path) -> list[int]:
    found: list[int] = lance.dataset(str(folder)).to_table()["k"].to_pylist()
    return sorted(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "items.lance"


@pytest.fixture
def table(folder: Path) -> Any:
    """A table of two fragments, of which the first has lost a row."""
    lance.write_dataset(rows(1, 2, 3), str(folder))
    table = lance.write_dataset(rows(4, 5), str(folder), mode="append")
    table.delete("k = 2")
    return lance.dataset(str(folder))


DONE: dict[str, Callable[[Any], object]] = {
    "append": lambda table: lance.write_dataset(rows(9), table, mode="append"),
    "overwrite": lambda table: lance.write_dataset(rows(9), table, mode="overwrite"),
    "delete": lambda table: table.delete("k = 1"),
    "update": lambda table: table.update({"v": "0.0"}, where="k = 1"),
    "create index": lambda table: table.create_scalar_index("k", "BTREE"),
    "merge": lambda table: table.add_columns({"w": "k"}),
    "project": lambda table: table.drop_columns(["v"]),
    "update config": lambda table: table.update_config({"a": "b"}),
    "rewrite": lambda table: table.optimize.compact_files(),
}


@pytest.mark.parametrize("operation", DONE)
def test_a_manifest_says_what_was_done(table: Any, folder: Path, operation: str) -> None:
    DONE[operation](table)
    found = read(folder, lance.dataset(str(folder)).version)
    assert found.operation is ManifestOperation(operation)
    assert found.body.get_number(TRANSACTION_SECTION) is not None


def test_an_upsert_is_told_as_an_update(table: Any, folder: Path) -> None:
    table.merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(rows(1, 9))
    assert read(folder, latest(folder)).operation is ManifestOperation.UPDATE


def test_a_manifest_that_passes_through_is_the_same_to_lance(table: Any, folder: Path) -> None:
    table.create_scalar_index("k", "BTREE")
    version = latest(folder)
    before = read(folder, version)
    put(folder, Manifest.decode(before.encode()))
    assert read(folder, version) == before
    found = lance.dataset(str(folder))
    assert (found.version, keys(folder)) == (version, [1, 3, 4, 5])
    assert found.to_table(filter="k = 4").num_rows == 1
    assert "k_idx" in str(found.describe_indices())


def test_a_version_that_is_rehomed_is_read_written_and_indexed_at_the_other_folder(
    table: Any, folder: Path, tmp_path: Path
) -> None:
    table.create_scalar_index("k", "BTREE")
    version = latest(folder)
    other = tmp_path / "other"
    said = make_transaction(
        ManifestOperation.CLONE, version, "", ProtobufMessage.from_fields((1, 1), (3, version)), {}
    )
    moved = move_to_folder(read(folder, version), str(folder), str(other))
    put(other, moved.make_version(version, None, said, 1))
    assert keys(other) == [1, 3, 4, 5]
    assert lance.dataset(str(other)).to_table(filter="k = 4").num_rows == 1
    lance.write_dataset(rows(6), str(other), mode="append")
    lance.dataset(str(other)).delete("k = 1")
    assert keys(other) == [3, 4, 5, 6]
    assert keys(folder) == [1, 3, 4, 5]
    back = move_to_folder(read(other, version + 2), str(other), str(folder))
    assert [one.path for one in back.bases] == [str(other)]
    put(folder, back.make_version(version + 1, None, said, 1))
    assert keys(folder) == [3, 4, 5, 6]


def test_a_clone_of_lances_own_is_laid_out_as_ours(table: Any, folder: Path, tmp_path: Path) -> None:
    table.shallow_clone(str(tmp_path / "clone"), table.version)
    theirs, ours = read(tmp_path / "clone", table.version), read(folder, table.version)
    ours = move_to_folder(ours, str(folder), str(tmp_path / "clone"))
    assert theirs.bases == ours.bases == (FileBase(0, str(folder)),)
    assert theirs.fragments == ours.fragments
    assert theirs.operation is ManifestOperation.CLONE


def test_files_that_a_fragment_names_say_at_which_base_they_are(
    table: Any, folder: Path, tmp_path: Path
) -> None:
    table.create_scalar_index("k", "BTREE")
    moved = move_to_folder(read(folder, latest(folder)), str(folder), str(tmp_path))
    first = moved.fragments[0]
    named = [*first.get_values(FILES), *first.get_values(DELETION_FILE)]
    assert [ProtobufMessage.decode(one).get_number(BASE_OF_FILE) for one in named] == [0, 0]
    assert [one.get_number(BASE_OF_INDEX) for one in moved.indexes] == [0]


def test_a_file_of_deleted_rows_is_named_by_the_number_of_its_fragment(table: Any, folder: Path) -> None:
    (fragment,) = (one for one in read(folder, table.version).fragments if one.get_values(DELETION_FILE))
    deletion = fragment.get_message(DELETION_FILE)
    assert deletion is not None
    number, version, chance = (
        fragment.get_number(FRAGMENT_ID) or 0,
        deletion.get_number(2),
        deletion.get_number(3),
    )
    assert (folder / "_deletions" / f"{number}-{version}-{chance}.arrow").exists()


def test_many_deleted_rows_are_listed_in_a_file_that_ends_otherwise(folder: Path) -> None:
    lance.write_dataset(rows(*range(20_000)), str(folder)).delete("k < 10000")
    deletion = read(folder, 2).fragments[0].get_message(DELETION_FILE)
    assert deletion is not None
    assert deletion.get_number(1) == 1
    (found,) = (folder / "_deletions").iterdir()
    assert found.suffix == ".bin"


def test_the_files_of_an_index_are_in_a_folder_that_its_number_names(table: Any, folder: Path) -> None:
    table.create_scalar_index("k", "BTREE")
    (index,) = read(folder, latest(folder)).indexes
    assert {one.name for one in (folder / "_indices").iterdir()} == {str(make_index_id(index))}


def test_compaction_renews_a_borrowed_index_and_says_the_wrong_place(
    table: Any, folder: Path, tmp_path: Path
) -> None:
    """When this fails, Lance was mended, and manifests need not be (``checking``)."""
    table.create_scalar_index("k", "BTREE")
    clone = tmp_path / "clone"
    table.shallow_clone(str(clone), latest(folder))
    lance.write_dataset(rows(6), str(clone), mode="append")
    lance.dataset(str(clone)).optimize.compact_files()
    (index,) = read(clone, lance.dataset(str(clone)).version).indexes
    assert index.get_number(BASE_OF_INDEX) == 0
    assert (clone / "_indices" / str(make_index_id(index))).is_dir()


def test_branches_and_tags_are_small_files_with_the_fields_that_are_read(table: Any, folder: Path) -> None:
    table.create_branch("feat/x", table.version)
    table.tags.create("v1", 1)
    branch = json.loads((folder / "_refs/branches/feat%2Fx.json").read_text())
    tag = json.loads((folder / "_refs/tags/v1.json").read_text())
    assert (branch["parentBranch"], branch["parentVersion"]) == (None, table.version)
    assert (tag["branch"], tag["version"]) == (None, 1)
    first = Manifest.decode((folder / make_manifest_path("", "feat/x", table.version)).read_bytes())
    assert (first.branch, first.version) == ("feat/x", table.version)


# -- the extension of a manifest's name --------------------------------------------------------------------


class Elsewhere(LanceNamespace):
    """A namespace that says that the newest version of a table is at some path."""

    def __init__(self, folder: Path, path: Path, version: int) -> None:
        self._folder, self._path, self._version = folder, path, version

    def namespace_id(self) -> str:
        return "elsewhere"

    def describe_table(self, request: Any) -> Any:
        return DescribeTableResponse(location=str(self._folder), managed_versioning=True)

    def list_table_versions(self, request: Any) -> Any:
        return ListTableVersionsResponse(versions=[self._found()])

    def describe_table_version(self, request: Any) -> Any:
        return DescribeTableVersionResponse(version=self._found())

    def _found(self) -> TableVersion:
        path, size = str(self._path).lstrip("/"), self._path.stat().st_size
        return TableVersion(version=self._version, manifest_path=path, manifest_size=size)


def test_a_manifest_is_read_wherever_it_is_if_its_name_ends_so(folder: Path) -> None:
    lance.write_dataset(rows(1), str(folder))
    lance.write_dataset(rows(2), str(folder), mode="append")
    staged = folder / "_staging" / "mine" / stored(folder, 2).name
    staged.parent.mkdir(parents=True)
    stored(folder, 2).rename(staged)
    found = lance.dataset(namespace_client=Elsewhere(folder, staged, 2), table_id=["items"])
    assert (found.version, sorted(found.to_table()["k"].to_pylist())) == (2, [1, 2])
    assert not stored(folder, 2).exists(), "reading it has put nothing where everybody looks"
    assert keys(folder) == [1]
