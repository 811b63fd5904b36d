"""What messages about Lance tables advise is done, and no row is lost that was acknowledged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    RegisterTableRequest,
)

from penstock import IcebergTable, Key, Lake
from penstock.errors import ForeignCommit, MergeConflict, Unavailable
from penstock.formats.lance.chains import ManifestChains
from penstock.formats.lance.lake.calls import (
    CommitLance,
    DropLanceBranch,
    DropLanceTag,
    PromoteLance,
    PutLanceBranch,
    PutLanceTag,
)
from tests.formats.lance.tables import content, delete, keys_of, keys_seen, opened, rows, versions, write

ITEMS = Key("items")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def forked(lake: Lake) -> Lake:
    """A lake with a table of the rows 1 to 5, and a branch."""
    write(lake, "main", 1, 2, 3, mode="create")
    write(lake, "main", 4, 5)
    lake.branch("dev").create()
    return lake


def do(lake: Lake, branch: str, *operations: Any) -> None:
    lake.do(CommitLance(branch=branch, operations=operations))


def on_branch(lake: Lake, ref: str, branch: str) -> list[int]:
    """The rows of one of Lance's own branches."""
    return sorted(opened(lake, ref).checkout_version((branch, None)).to_table()["k"].to_pylist())


# -- merges ------------------------------------------------------------------------------------------------


def test_a_branch_of_lances_own_is_made_again_before_it_is_deleted(forked: Lake) -> None:
    write(forked, "dev", 10)
    do(forked, "dev", PutLanceBranch(key=ITEMS, branch="exp"))
    opened(forked, "dev").checkout_version(("exp", None)).insert(rows(11))
    with pytest.raises(MergeConflict, match="create the branch here, repeat its changes") as refused:
        forked.merge("dev", "main")
    assert "only then delete it there, which deletes its versions" in str(refused.value)
    kept = forked.resolve("dev")
    do(forked, "main", PutLanceBranch(key=ITEMS, branch="exp"))
    opened(forked).checkout_version(("exp", None)).insert(rows(10, 11))
    assert on_branch(forked, "main", "exp") == on_branch(forked, "dev", "exp") == [1, 2, 3, 4, 5, 10, 11]
    do(forked, "dev", DropLanceBranch(key=ITEMS, branch="exp"))
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10]
    assert on_branch(forked, "main", "exp") == [1, 2, 3, 4, 5, 10, 11]
    assert on_branch(forked, kept, "exp") == [1, 2, 3, 4, 5, 10, 11], "as it was, in the history"


def test_a_tag_that_is_deleted_takes_no_row_along(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "dev", 11)
    do(forked, "dev", PutLanceTag(key=ITEMS, tag_name="half", version=3))
    with pytest.raises(MergeConflict, match="delete the tag there, or move it to the newest version"):
        forked.merge("dev", "main")
    do(forked, "dev", DropLanceTag(key=ITEMS, tag_name="half"))
    forked.merge("dev", "main")
    assert keys_seen(forked) == keys_of(forked, "dev") == [1, 2, 3, 4, 5, 10, 11]
    assert versions(forked, "dev").list_tags() == {}


@pytest.mark.parametrize("way", ["do again", "other way"])
def test_both_sides_are_had_as_a_merge_advises(forked: Lake, way: str) -> None:
    if way == "other way":
        opened(forked, "dev").add_columns({"w": "k * 2"})
        write(forked, "main", 20)
        advised = "merge the other way first, and then this way"
    else:
        write(forked, "dev", 10, mode="overwrite")
        write(forked, "main", 20, mode="overwrite")
        advised = "or repeat the source's changes on the target"
    with pytest.raises(MergeConflict, match=advised):
        forked.merge("dev")
    if way == "other way":
        forked.merge("main", "dev")
        forked.merge("dev")
        assert keys_seen(forked) == [1, 2, 3, 4, 5, 20]
    else:
        write(forked, "main", *keys_of(forked, "dev"))
        assert keys_seen(forked) == [10, 20]


def test_a_table_that_made_way_for_another_comes_back_by_a_revert(forked: Lake) -> None:
    forked.lance("dev").drop_table(DropTableRequest(id=["items"]))
    write(forked, "dev", 9, mode="create")
    write(forked, "main", 20)
    with pytest.raises(MergeConflict, match="To take the other one, drop this one first, then merge"):
        forked.merge("dev")
    before = forked.resolve("main")
    forked.lance().drop_table(DropTableRequest(id=["items"]))
    forked.merge("dev")
    assert keys_seen(forked) == [9]
    assert keys_of(forked, before) == [1, 2, 3, 4, 5, 20]
    forked.branch("back").create(at=before)
    assert keys_of(forked, "back") == [1, 2, 3, 4, 5, 20]


def test_what_was_undone_as_advised_comes_back_by_undoing_that(forked: Lake) -> None:
    write(forked, "main", 6)
    delete(forked, "main", 1)
    sixth = forked.resolve("main~1")
    opened(forked).update({"v": "0.5"}, where="k = 6")
    with pytest.raises(MergeConflict, match="revert that commit, and then this one"):
        forked.revert(sixth)
    forked.revert("main")
    forked.revert(sixth)
    assert keys_seen(forked) == [2, 3, 4, 5]
    forked.revert("main")
    forked.revert("main~2")
    assert keys_seen(forked) == [2, 3, 4, 5, 6]
    assert opened(forked).to_table(filter="k = 6")["v"].to_pylist() == [0.5]


def test_a_first_version_is_undone_by_dropping_the_table(lake: Lake) -> None:
    lake.lance().declare_table(DeclareTableRequest(id=["items"]))
    write(lake, "main", 1)
    with pytest.raises(MergeConflict, match=r"first version cannot be undone.*drop the table instead"):
        lake.revert("main")
    lake.lance().drop_table(DropTableRequest(id=["items"]))
    assert not lake.table("items").exists
    lake.revert("main")
    assert keys_of(lake) == [1]


def test_an_index_that_is_in_the_way_is_dropped_and_made_again(forked: Lake) -> None:
    write(forked, "dev", 10)
    opened(forked, "dev").create_scalar_index("k", "BTREE")
    for folder in Path(content(forked).location).rglob("_indices"):
        shutil.rmtree(folder)
    with pytest.raises(MergeConflict, match="drop it there, and merge again"):
        forked.merge("dev")
    opened(forked, "dev").drop_index("k_idx")
    forked.merge("dev")
    opened(forked).create_scalar_index("k", "BTREE")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10]
    assert opened(forked).to_table(filter="k = 10")["k"].to_pylist() == [10]


# -- files -------------------------------------------------------------------------------------------------


def test_a_manifest_that_the_lake_does_not_know_is_taken_over_without_losing_rows(
    forked: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked.finish_background()
    location = content(forked).location
    with monkeypatch.context() as held:  # so that the manifest is not where Lance looks, yet
        held.setattr(ManifestChains, "put_manifest", unpromoted)
        write(forked, "main", 20)
        lance.write_dataset(rows(8), location, mode="append")  # past the lake
    with pytest.raises(ForeignCommit, match="penstock resync"):
        forked.do(PromoteLance(key=ITEMS))
    (done,) = forked.resync(ITEMS, leave_own=True).tables
    own = forked.at(done.commit).table(ITEMS).to_arrow()["k"].to_pylist()
    write(forked, "main", *(one for one in own if one not in keys_of(forked)))
    forked.finish_background()
    assert keys_seen(forked) == keys_of(forked) == [1, 2, 3, 4, 5, 8, 20]


def unpromoted(*_: object) -> bool:
    raise Unavailable("the folder cannot be written just now")


def test_a_file_that_is_brought_back_makes_its_version_readable(forked: Lake, tmp_path: Path) -> None:
    place = Path(content(forked).location)
    files = sorted(place.glob("data/*.lance"), key=lambda one: one.stat().st_mtime_ns)
    shutil.move(files[0], tmp_path)
    (told, *_) = forked.fsck().damages
    assert f"Restore what is missing from a backup of {place}" in told.what
    assert "restore a version of it that can be read; if none can, drop the table there" in told.what
    shutil.move(tmp_path / files[0].name, files[0])
    assert forked.fsck().damages == ()
    assert keys_of(forked) == [1, 2, 3, 4, 5]


def test_a_version_that_can_be_read_is_restored_where_the_newest_has_lost_a_file(forked: Lake) -> None:
    write(forked, "main", 6)
    place = Path(content(forked).location)
    files = sorted(place.glob("data/*.lance"), key=lambda one: one.stat().st_mtime_ns)
    files[-1].unlink()
    (told,) = forked.fsck().damages
    assert "restore a version of it that can be read" in told.what
    opened(forked).checkout_version(2).restore()
    assert keys_of(forked) == [1, 2, 3, 4, 5]
    assert forked.fsck().damages == ()


def test_a_table_of_the_oldest_format_is_written_anew(lake: Lake, tmp_path: Path) -> None:
    old, new = (tmp_path / "lake" / "warehouse" / name for name in ("old", "new"))
    write(lake, "main", 0, mode="create", table="any")
    lance.write_dataset(rows(1, 2), str(old), data_storage_version="legacy")
    with pytest.raises(Exception, match="Rewrite the table with Lance, and register the new one"):
        lake.lance().register_table(RegisterTableRequest(id=["items"], location=str(old)))
    lance.write_dataset(lance.dataset(str(old)).to_table(), str(new), data_storage_version="stable")
    lake.lance().register_table(RegisterTableRequest(id=["items"], location=str(new)))
    write(lake, "main", 3)
    assert keys_seen(lake) == [1, 2, 3]
    assert lance.dataset(str(old)).count_rows() == 2


def test_a_declared_table_gets_its_first_rows(lake: Lake) -> None:
    lake.lance().declare_table(DeclareTableRequest(id=["items"]))
    write(lake, "main", 1, mode="overwrite")
    write(lake, "main", 2)
    assert keys_seen(lake) == [1, 2]


def test_a_namespace_is_emptied_and_a_revert_brings_all_back(lake: Lake) -> None:
    lake.lance().create_namespace(CreateNamespaceRequest(id=["a"]))
    write(lake, "main", 1, mode="create", table="a.items")
    lake.branch().put("a.pointer", IcebergTable(metadata_location="s3://lake/v1.json"))
    request = DropNamespaceRequest(id=["a"], behavior="Cascade")
    with pytest.raises(Exception, match="drop it first"):
        lake.lance().drop_namespace(request)
    lake.branch().drop("a.pointer")
    lake.lance().drop_namespace(request)
    assert not lake.table("a.items").exists
    lake.revert("main")
    assert keys_of(lake, "main", "a.items") == [1]
    lake.revert("main~2")
    assert lake.table("a.pointer").exists
