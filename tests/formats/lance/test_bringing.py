"""What comes with a merge: files that stay readable, dates that count here, and a plain word if it cannot."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import lance_namespace as spec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lance_namespace_urllib3_client.models.version_range import VersionRange

from penstock import Lake
from penstock.errors import MergeConflict
from tests.formats.lance.tables import (
    content,
    delete,
    filtered,
    keys_of,
    keys_seen,
    manifest,
    newest,
    opened,
    rows,
    state,
    write,
)

lance = pytest.importorskip("lance")


def folder(lake: Lake, ref: str = "main") -> Path:
    return Path(content(lake, ref).location) / state(lake, ref).chain


def chance_in(file: Path) -> str:
    """What was drawn for a file's name: the last part of that of deletions, and the folder of an index."""
    return file.stem.rpartition("-")[2] if file.parent.name == "_deletions" else file.parent.name


def files(lake: Lake, *folders: str) -> list[Path]:
    return sorted(one for name in folders for one in (folder(lake) / name).rglob("*") if one.is_file())


def test_lances_clean_up_of_a_branch_leaves_what_another_one_reads(forked: Lake) -> None:
    write(forked, "dev", 10)
    delete(forked, "dev", 1)
    write(forked, "main", 20)
    forked.merge("dev", "main")
    opened(forked, "dev").optimize.compact_files()
    write(forked, "dev", 11)
    with pytest.raises(OSError, match="penstock-"):
        opened(forked, "dev").cleanup_old_versions(older_than=timedelta(0))
    opened(forked, "dev").cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
    assert keys_of(forked, "dev") == [2, 3, 4, 5, 10, 11]
    assert keys_seen(forked) == [2, 3, 4, 5, 10, 20]
    namespace = forked.lance("dev")
    assert namespace.list_table_tags(spec.ListTableTagsRequest(id=["items"])).tags == {}
    with pytest.raises(Exception, match="reserved for the lake"):
        namespace.create_table_tag(spec.CreateTableTagRequest(id=["items"], tag="penstock-1", version=1))


@pytest.mark.parametrize("is_graft", [False, True], ids=["index", "deletion"])
def test_a_dry_run_writes_nothing_and_copies_have_names_that_no_attempt_had(
    forked: Lake, *, is_graft: bool
) -> None:
    if is_graft:
        write(forked, "dev", 10, 11)
        delete(forked, "dev", 10)
        write(forked, "main", 20)
    else:
        opened(forked, "dev").create_scalar_index("k", "BTREE")
    before = files(forked, "_indices", "_deletions", "_staging")
    forked.merge("dev", "main", dry_run=True)
    assert files(forked, "_indices", "_deletions", "_staging") == before
    forked.merge("dev", "main")
    copied = {chance_in(one) for one in files(forked, "_indices", "_deletions")}
    theirs = {
        chance_in(one)
        for name in ("_indices", "_deletions")
        for one in folder(forked, "dev").rglob(f"{name}/**/*")
    }
    assert copied
    assert not copied & theirs
    if is_graft:
        assert keys_seen(forked) == [1, 2, 3, 4, 5, 11, 20]
    else:
        assert filtered(forked, "main", 4) == [4]


def test_an_index_that_has_come_is_not_copied_again(forked: Lake) -> None:
    opened(forked, "dev").create_scalar_index("k", "BTREE")
    forked.merge("dev", "main")
    before = files(forked, "_indices")
    write(forked, "dev", 10)
    forked.merge("dev", "main")
    assert files(forked, "_indices") == before
    assert filtered(forked, "main", 4, 10) == [4, 10]


def test_an_index_whose_files_are_gone_does_not_come(forked: Lake) -> None:
    opened(forked, "dev").create_scalar_index("k", "BTREE")
    shutil.rmtree(folder(forked, "dev") / "_indices")
    (told,) = forked.fsck().damages
    assert "drop the index there, and create it again" in told.what
    with pytest.raises(
        MergeConflict, match="index 'k_idx' on the other side whose files no longer exist; drop it"
    ):
        forked.merge("dev", "main")
    assert newest(forked)[0] == 2
    opened(forked, "dev").drop_index("k_idx")
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("side", ["main", "dev"])
def test_what_versions_did_that_were_deleted_is_not_taken_for_harmless(forked: Lake, side: str) -> None:
    other = "main" if side == "dev" else "dev"
    write(forked, side, 10, mode="overwrite")
    write(forked, side, 11)
    write(forked, other, 20)
    versions = [VersionRange(start_version=1, end_version=opened(forked, side).version)]
    forked.lance(side).batch_delete_table_versions(
        spec.BatchDeleteTableVersionsRequest(id=["items"], ranges=versions)
    )
    with pytest.raises(MergeConflict, match=r"an unknown operation .versions were deleted"):
        forked.merge("dev", "main")


def test_rows_that_come_as_one_version_were_made_in_it(lake: Lake) -> None:
    lance.write_dataset(
        rows(1, 2), namespace_client=lake.lance(), table_id=["items"], enable_stable_row_ids=True
    )
    lake.branch("dev").create()
    write(lake, "dev", 10)
    write(lake, "dev", 11)
    opened(lake, "dev").update({"v": "0.5"}, where="k = 1")
    lake.merge("dev", "main")
    assert dates(lake) == {1: (1, 2), 2: (1, 1), 10: (2, 2), 11: (2, 2)}
    write(lake, "dev", 12)
    opened(lake, "dev").update({"v": "0.5"}, where="k = 11")
    lake.merge("dev", "main")
    assert dates(lake) == {1: (1, 2), 2: (1, 1), 10: (2, 2), 11: (2, 3), 12: (3, 3)}
    write(lake, "main", 13)
    since = opened(lake).delta(compared_against=newest(lake)[0] - 1)
    assert since.get_inserted_rows().read_all()["k"].to_pylist() == [13]


def dates(lake: Lake) -> dict[int, tuple[int, int]]:
    """In which versions rows say that they were made and last changed."""
    names = ["k", "_row_created_at_version", "_row_last_updated_at_version"]
    found = opened(lake).to_table(columns=names).to_pydict()
    return {key: (made, changed) for key, made, changed in zip(*(found[name] for name in names), strict=True)}


def test_the_order_of_a_columns_metadata_makes_no_other_column_of_it(lake: Lake) -> None:
    """Lance writes it in another order each time."""
    said = {f"m{number}": str(number) for number in range(8)}
    schema = pa.schema([pa.field("k", pa.int64(), metadata=said), pa.field("v", pa.float64())])
    for ref, key, mode in (("main", 1, "create"), ("dev", 10, "append"), ("main", 20, "append")):
        if ref == "dev":
            lake.branch("dev").create()
        lance.write_dataset(
            rows(key).cast(schema), namespace_client=lake.lance(ref), table_id=["items"], mode=mode
        )
    one, other = manifest(lake), manifest(lake, "dev")
    assert one.schema == other.schema
    lake.merge("dev", "main")
    assert keys_seen(lake) == [1, 10, 20]


def test_conflicts_name_versions_and_a_way_out(forked: Lake) -> None:
    tx = forked.transaction(policy="snapshot")
    write(forked, tx.branch, 10)
    write(forked, "main", 20)
    with pytest.raises(MergeConflict, match=r"policy 'rebase' \(expected version 2, found version 3\)"):
        tx.land()


def test_another_table_of_the_same_name_comes_when_this_one_did_not_change(forked: Lake) -> None:
    replaced(forked, "dev")
    forked.merge("dev", "main")
    assert keys_seen(forked) == [9]


def test_another_table_of_the_same_name_comes_when_this_one_is_dropped(forked: Lake) -> None:
    replaced(forked, "dev")
    write(forked, "main", 20)
    for how in ("normal", "force"):
        with pytest.raises(MergeConflict, match="drop this one first, then merge"):
            forked.merge("dev", "main", default=how)
    forked.lance().drop_table(spec.DropTableRequest(id=["items"]))
    forked.merge("dev", "main")
    assert keys_seen(forked) == [9]


def replaced(lake: Lake, branch: str) -> None:
    """Let another table be in the place of one."""
    lake.lance(branch).drop_table(spec.DropTableRequest(id=["items"]))
    write(lake, branch, 9, mode="create")


PROGRAM = """
import sys, lance, penstock
from tests.formats.lance.tables import rows
lake = penstock.open(sys.argv[1])
for number in range(6):
    lance.write_dataset(rows(number), namespace_client=lake.lance(), table_id=["items"],
                        mode="append" if number else "create")
with lake.transaction() as tx:
    lance.write_dataset(rows(9), namespace_client=tx.lance, table_id=["items"], mode="append")
"""


def test_a_program_that_does_not_close_its_lake_ends_without_a_trace(tmp_path: Path) -> None:
    run = [sys.executable, "-c", PROGRAM, str(tmp_path / "lake")]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
