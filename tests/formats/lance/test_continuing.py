"""A new version must go on from the lake's own one: what Lance itself does, does; what missed it does not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock import Lake
from penstock.formats.lance.continuity import find_gap
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.names import MANIFEST, VERSIONS
from penstock.formats.lance.protobuf import ProtobufMessage
from tests.formats.lance.tables import ITEMS, content, keys_of, keys_seen, opened, rows, write

lance = pytest.importorskip("lance")


def vectors(*keys: int) -> pa.Table:
    flat = pa.array([float(key) for key in keys for _ in range(4)], pa.float32())
    return rows(*keys).append_column("x", pa.FixedSizeListArray.from_arrays(flat, 4))


def manifests(table: Path) -> list[Manifest]:
    """Of all versions, oldest first."""
    names = sorted((table / VERSIONS).glob(f"*{MANIFEST}"), reverse=True)
    return [Manifest.decode(name.read_bytes()) for name in names]


def replaced(table: Any) -> None:
    """New values for a column, in a file of their own; then some on top of a fragment."""
    from lance import LanceOperation

    table.add_columns({"w": "k * 2"})
    new = lance.dataset(table.uri)
    fragment = new.get_fragments()[0]
    file = fragment.metadata.files[-1]
    data = Path(table.uri) / "data"
    (data / "again.lance").write_bytes((data / file.path).read_bytes())
    known = file.fields, file.column_indices, file.file_major_version, file.file_minor_version
    again = lance.fragment.DataFile("again.lance", *known)
    replacement = LanceOperation.DataReplacementGroup(fragment.fragment_id, again)
    overlay = LanceOperation.DataOverlayGroup(
        fragment.fragment_id, [LanceOperation.DataOverlayFile(file, range(4))]
    )
    for operation in (LanceOperation.DataReplacement([replacement]), LanceOperation.DataOverlay([overlay])):
        lance.LanceDataset.commit(table.uri, operation, read_version=lance.dataset(table.uri).version)


def merge_insert(table: Any) -> None:
    merge = table.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(vectors(2, 3, 70, 71))


def merge_some_columns(table: Any) -> None:
    table.merge_insert("k").when_matched_update_all().execute(rows(*range(12)))


def sideways(table: Any) -> None:
    """Writers that did not know of one another, which Lance puts on top of one another."""
    one, two, three = (lance.dataset(table.uri) for _ in range(3))
    one.delete("k = 1")
    two.delete("k = 2")
    three.update({"v": "0.5"}, where="k = 3")
    lance.write_dataset(vectors(80), table, mode="append")
    one.update_config({"a": "b"})
    two.create_scalar_index("v", "BTREE")
    one.delete("k = 7")


def compacted_later(table: Any) -> None:
    table.create_scalar_index("k", "BTREE")
    table.optimize.compact_files(defer_index_remap=True)
    table.optimize.optimize_indices()


def indexed(table: Any) -> None:
    table.create_scalar_index("k", "BTREE")
    table.create_index("x", "IVF_FLAT", num_partitions=1)
    lance.write_dataset(vectors(90, 91), table, mode="append")
    again = lance.dataset(table.uri)
    again.optimize.optimize_indices()
    again.create_scalar_index("k", "BITMAP", replace=True)
    again.optimize.compact_files()
    again.delete("k < 100")
    lance.write_dataset(vectors(92), again, mode="append")
    again.drop_index("k_idx")


def reshaped(table: Any) -> None:
    table.create_scalar_index("v", "BTREE")
    table.alter_columns({"path": "v", "name": "value"}, {"path": "k", "nullable": True})
    table.alter_columns({"path": "k", "data_type": pa.int32()})
    table.drop_columns(["value"])
    table.add_columns(pa.field("late", pa.string()))
    table.update_field_metadata({"k": {"a": "1", "b": "2", "c": "3"}})
    table.update_schema_metadata({"a": "1", "b": "2", "c": "3"})
    table.delete("k = 4")
    table.add_columns({"y": "k + 1"})
    table.drop_columns(["y"])


WORK: dict[str, Callable[[Any], Any]] = {
    "append": lambda table: lance.write_dataset(vectors(50, 51), table, mode="append"),
    "delete": lambda table: [table.delete(f"k = {key}") for key in (0, 1, 5)],
    "delete a fragment": lambda table: table.delete("k < 4"),
    "delete all": lambda table: table.delete("true"),
    "update": lambda table: table.update({"v": "7.5"}, where="k % 3 = 0"),
    "update all": lambda table: table.update({"v": "7.5"}),
    "merge insert": merge_insert,
    "merge columns": merge_some_columns,
    "add columns": lambda table: table.add_columns({"y": "k + 1"}),
    "columns": reshaped,
    "merge": lambda table: table.merge(rows(*range(6)).rename_columns(["k", "z"]), "k"),
    "compaction": lambda table: table.optimize.compact_files(),
    "compaction later": compacted_later,
    "indexes": indexed,
    "restore": lambda table: lance.dataset(table.uri, version=1).restore(),
    "overwrite": lambda table: lance.write_dataset(rows(1), table, mode="overwrite"),
    "config": lambda table: [table.update_config({"a": "b"}), table.delete_config_keys(["a"])],
    "metadata": lambda table: table.update_metadata({"a": "b"}),
    "replacement": replaced,
    "at once": sideways,
}


NOT_WITH_ROW_IDS = ("compaction later",)
"""What Lance itself refuses."""


@pytest.mark.parametrize(
    ("work", "has_row_ids"),
    [(work, kind) for work in WORK for kind in (False, True) if not kind or work not in NOT_WITH_ROW_IDS],
)
def test_whatever_lance_does_to_a_table_goes_on_from_it(
    tmp_path: Path, work: str, *, has_row_ids: bool
) -> None:
    """As it is, and as it reads when the lake has written the version before it."""
    table = tmp_path / "table"
    lance.write_dataset(
        vectors(*range(4)), str(table), enable_stable_row_ids=has_row_ids, max_rows_per_file=4
    )
    lance.write_dataset(vectors(*range(4, 12)), str(table), mode="append", max_rows_per_file=4)
    WORK[work](lance.dataset(str(table)))
    found = manifests(table)
    assert len(found) > 2
    assert [find_gap(before, after) for before, after in pairwise(found)] == [None] * (len(found) - 1)
    again = [_rewritten(one) for one in found]
    assert [find_gap(before, after) for before, after in zip(again, found[1:], strict=False)] == [None] * (
        len(found) - 1
    )


def _rewritten(manifest: Manifest) -> Manifest:
    """The same with fragments whose bytes are others."""
    fragments = [
        one.replace_field(4, *(field.value for field in one if field.number == 4)).replace_field(
            1, one.get_number(1) or 0
        )
        for one in manifest.fragments
    ]
    return manifest.replace_parts(
        fragments=[ProtobufMessage(sorted(one, key=lambda field: -field.number)) for one in fragments]
    )


@pytest.mark.parametrize("work", sorted(set(WORK) - {"restore", "overwrite", "delete all", "update all"}))
def test_what_missed_the_version_before_it_is_seen(tmp_path: Path, work: str) -> None:
    """The same work on a table that has something else under the same number. (What removes every fragment
    names them by their numbers only.)"""
    made = []
    for name, key in (("one", 60), ("other", 61)):
        table = tmp_path / name
        lance.write_dataset(vectors(*range(12)), str(table), max_rows_per_file=4)
        lance.write_dataset(vectors(key), str(table), mode="append")
        made.append(table)
    WORK[work](lance.dataset(str(made[1])))
    before, after = manifests(made[0])[1], manifests(made[1])[2]
    assert find_gap(before, after) is not None


# -- in a lake ---------------------------------------------------------------------------------------------


def test_a_statement_that_missed_what_its_transaction_wrote_is_refused(forked: Lake) -> None:
    """The branch has as many new versions as the transaction: the numbers fit, and the rows do not."""
    with forked.transaction(policy="rebase") as tx:
        early = opened(forked, tx.branch)
        write(forked, tx.branch, 10)
        write(forked, "main", 20)
        with pytest.raises(OSError, match=r"conflict|unknown"):
            early.delete("k = 1")
        with pytest.raises(OSError, match=r"conflict|unknown"):
            lance.write_dataset(rows(11), early, mode="append")
        assert keys_of(forked, tx.branch) == [1, 2, 3, 4, 5, 10]
        opened(forked, tx.branch).delete("k = 1")
        write(forked, tx.branch, 12)
    assert keys_of(forked) == [2, 3, 4, 5, 10, 12, 20]


@pytest.mark.parametrize("other", ["config", "index", "nothing"])
def test_a_deletion_that_a_transaction_made_stays_whatever_the_branch_did(forked: Lake, other: str) -> None:
    """What the branch did has no rows, so that only the number of the version that was read tells."""
    with forked.transaction(policy="rebase") as tx:
        early = opened(forked, tx.branch)
        opened(forked, tx.branch).delete("k = 1")
        if other == "config":
            opened(forked).update_config({"a": "b"})
        elif other == "index":
            opened(forked).create_scalar_index("k", "BTREE")
        else:
            opened(forked).delete("k = 99")
        with pytest.raises(OSError, match=r"conflict|unknown"):
            lance.write_dataset(rows(11), early, mode="append")
        assert keys_of(forked, tx.branch) == [2, 3, 4, 5]


def test_a_writer_that_went_on_from_a_strangers_version_is_refused(forked: Lake) -> None:
    write(forked, "dev", 10)
    early = opened(forked)
    lance.write_dataset(rows(66), content(forked).location, mode="append")  # past the lake
    forked.merge("dev", "main")
    with pytest.raises(OSError, match=r"conflict|unknown"):
        lance.write_dataset(rows(20), early, mode="append")
    assert keys_of(forked) == [1, 2, 3, 4, 5, 10]
    (damage,) = forked.fsck().damages
    assert "'items' is out of sync: versions 3 to 3 of the lake differ" in damage.what
    (done,) = forked.resync(ITEMS, leave_own=True).tables
    own = forked.at(done.commit).table(ITEMS).to_arrow()["k"].to_pylist()
    assert keys_of(forked) == [1, 2, 3, 4, 5, 66]
    write(forked, "main", *(one for one in own if one not in keys_of(forked)))
    assert keys_seen(forked) == keys_of(forked) == [1, 2, 3, 4, 5, 10, 66]
