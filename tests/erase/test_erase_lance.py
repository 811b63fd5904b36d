"""Deleted rows of a Lance table are gone from every byte once the table is erased; all else stays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lance.query import DocumentGranularity
from lance_namespace import TableVersionNotFoundError

import penstock
from penstock.errors import EraseRefused, HistoryExpired, MergeConflict, UnsupportedFeature
from penstock.formats.lance.lake.erase import LanceErasure
from penstock.lake.lake import Lake
from tests.erase.tables import ALONE, alone, where_is
from tests.sweep.tables import LateClock

MARKER = "zmarker4711"
"""One word, as an index of words has it."""
LEFT = [{"id": 1, "name": "ada"}, {"id": 3, "name": "zoe"}]


def rows(*more: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{"id": 1, "name": "ada"}, {"id": 2, "name": MARKER}, *LEFT[1:], *more])


def write(lake: Lake, table: pa.Table, ref: str = "main", mode: str = "append") -> Any:
    return lance.write_dataset(table, namespace_client=lake.lance(ref), table_id=["t"], mode=mode)


def opened(lake: Lake, ref: str = "main") -> Any:
    return lance.dataset(namespace_client=lake.lance(ref), table_id=["t"])


def rows_of(lake: Lake, ref: str = "main") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = opened(lake, ref).to_table(["id", "name"]).sort_by("id").to_pylist()
    return found


def location_of(lake: Lake) -> str:
    content = lake.table("t").content
    assert isinstance(content, penstock.LanceTable)
    return content.location


def make(lake: Lake) -> Any:
    """A table with a row to be deleted, and indexes of its column."""
    dataset = write(lake, rows(), mode="create")
    dataset.create_scalar_index("name", "BTREE", name="by_name")
    dataset.create_scalar_index("name", "INVERTED", name="words", stem=False, with_position=True)
    dataset.create_scalar_index("name", "NGRAM", name="parts")
    return dataset


def deleted(lake: Lake) -> None:
    make(lake).delete(f"name = '{MARKER}'")


def updated(lake: Lake) -> None:
    make(lake)
    dataset = opened(lake)
    dataset.update({"name": "'x'"}, where="id = 2")
    dataset.delete("id = 2")


def merged_in(lake: Lake) -> None:
    """The row comes from a branch, and is deleted on another one."""
    write(lake, rows().slice(0, 1), mode="create")
    lake.branch("one").create()
    write(lake, rows().slice(1), "one")
    lake.merge("one", "main")
    lake.branch("one").delete()
    opened(lake).create_scalar_index("name", "BTREE", name="by_name")
    lake.branch("two").create()
    opened(lake, "two").delete("id = 2")
    lake.merge("two", "main")
    lake.branch("two").delete()


def compacted(lake: Lake) -> None:
    make(lake)
    write(lake, pa.Table.from_pylist([{"id": 9, "name": MARKER}]))
    dataset = opened(lake)
    dataset.delete("id = 9 or id = 2")
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    dataset.optimize.optimize_indices()


def overwritten(lake: Lake) -> None:
    make(lake)
    lake.table("t").overwrite(pa.Table.from_pylist(LEFT))


def column_dropped(lake: Lake) -> None:
    dataset = write(lake, rows().append_column("other", [["a", MARKER, "b"]]), mode="create")
    dataset.delete("id = 2")
    opened(lake).optimize.compact_files(materialize_deletions_threshold=0.0)
    write(lake, pa.Table.from_pylist([{"id": 4, "name": "x", "other": MARKER}]))
    opened(lake).drop_columns(["other"])
    opened(lake).delete("id = 4")


def stable_ids(lake: Lake) -> None:
    dataset = lance.write_dataset(
        rows(),
        namespace_client=lake.lance(),
        table_id=["t"],
        mode="create",
        enable_stable_row_ids=True,
    )
    dataset.create_scalar_index("name", "BTREE")
    dataset.delete("id = 2")


def replaced(lake: Lake) -> None:
    """The value is written over in its column, and the row stays."""
    make(lake)
    new = pa.Table.from_pylist([{"id": 1, "name": "ada"}])
    opened(lake).merge_insert("id").when_matched_update_all().when_not_matched_by_source_delete().execute(new)
    write(lake, pa.Table.from_pylist(LEFT[1:]))


KINDS: dict[str, Callable[[Lake], None]] = {
    "deleted": deleted,
    "updated": updated,
    "merged from a branch": merged_in,
    "compacted": compacted,
    "overwritten": overwritten,
    "a column dropped": column_dropped,
    "stable row ids": stable_ids,
    "merge insert": replaced,
}


@pytest.fixture(params=[*KINDS.values()], ids=[*KINDS])
def made(request: pytest.FixtureRequest, lake: Lake) -> Lake:
    """A lake with a table whose last change was the deletion of a row; it is in use by nobody."""
    request.param(lake)
    lake.finish_background()
    lake.close()
    return lake


def test_the_value_is_in_no_byte_of_lake_and_warehouse_and_all_other_rows_are(made: Lake, path: Path) -> None:
    assert where_is(path, MARKER), "it is there before"
    with alone(path) as lake:
        names = sorted(one.name for one in opened(lake).describe_indices())
        erased = lake.erase("t")
        assert (erased.finished, erased.until, erased.left) == (True, None, ())
        assert where_is(path, MARKER) == []
        assert rows_of(lake) == LEFT
        assert lake.fsck().damages == ()
        location = location_of(lake)
        theirs = lance.dataset(location)
        assert theirs.to_table(["id", "name"]).sort_by("id").to_pylist() == LEFT
        assert sorted(one.name for one in theirs.describe_indices()) == names
        assert theirs.to_table(filter="name = 'zoe'").num_rows == 1
        assert [one["version"] for one in theirs.versions()] == [erased.first_version]
    assert where_is(path, MARKER) == [], "closing has brought nothing back"


@pytest.mark.verify
def test_the_table_goes_on_and_is_erased_again(made: Lake, path: Path) -> None:
    with alone(path) as lake:
        lake.erase("t")
    with penstock.open(path) as lake:
        write(lake, pa.Table.from_pylist([{"id": 4, "name": MARKER}]))
        assert where_is(path, MARKER)
        dataset = opened(lake)
        dataset.delete("id = 4")
        dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
        dataset.optimize.optimize_indices()
    with alone(path) as lake:
        assert lake.erase("t").finished
        assert where_is(path, MARKER) == []
        assert rows_of(lake) == LEFT
        assert lake.fsck().damages == ()


# -- what is behind the horizon ----------------------------------------------------------------------------


@pytest.fixture
def erased(lake: Lake, path: Path) -> dict[str, str]:
    """Commits of a lake from before an erase of ``t``: the first with the row, the last before it went."""
    write(lake, rows(), mode="create")
    first = lake.branch().head
    write(lake, pa.Table.from_pylist([{"id": 9, "name": "joe"}]))
    appended = lake.branch().head
    opened(lake).delete("id = 2")
    lake.close()
    with alone(path) as found:
        assert found.erase("t").finished
    return {"first": first, "appended": appended}


def test_time_travel_behind_the_horizon_says_when_and_by_whom(path: Path, erased: dict[str, str]) -> None:
    with penstock.open(path) as lake:
        for read in (
            lake.at(erased["first"]).table("t").to_arrow,
            lake.at(erased["appended"]).table("t").to_arrow,
            partial(lake.table("t").to_lance, version=1),
        ):
            with pytest.raises(HistoryExpired, match=r"before \d{4}-.* erased by privacy"):
                read()


@pytest.mark.parametrize(
    "how", ["revert", "transplant", "restore", "restore a version", "merge a new branch"]
)
def test_nothing_from_behind_the_horizon_is_brought_back(
    path: Path, erased: dict[str, str], how: str
) -> None:
    with penstock.open(path) as lake:

        def merge() -> None:
            lake.branch("old").create(at=erased["first"])
            write(lake, pa.Table.from_pylist([{"id": 5, "name": "x"}]), "old")
            lake.merge("old", "main")

        ways: dict[str, Callable[[], object]] = {
            "revert": lambda: lake.revert(erased["appended"], "main"),
            "transplant": lambda: lake.transplant([erased["appended"]], "main"),
            "restore": lambda: lake.restore("t", to=erased["first"]),
            "restore a version": lambda: lake.restore("t", version=1),
            "merge a new branch": merge,
        }
        expected = (MergeConflict, HistoryExpired, TableVersionNotFoundError)
        with pytest.raises(expected, match="erased"):
            ways[how]()
        assert 2 not in opened(lake).to_table()["id"].to_pylist()
        assert lake.fsck().damages == ()


# -- who holds rows ----------------------------------------------------------------------------------------


def test_it_is_refused_while_references_transactions_and_lances_own_names_hold_rows(lake: Lake) -> None:
    dataset = write(lake, rows(), mode="create")
    lake.tag("v1").create()
    lake.branch("own").create()
    write(lake, pa.Table.from_pylist([{"id": 7, "name": "own"}]), "own")
    namespace = lake.lance()
    namespace.create_table_tag({"id": ["t"], "tag": "old", "version": 1})
    namespace.create_table_branch({"id": ["t"], "name": "side"})
    dataset.delete("id = 2")
    transaction = lake.transaction("main")
    transaction.__enter__()
    before = lake.branch().head
    with pytest.raises(EraseRefused) as refused:
        lake.erase("t")
    for name in (
        "tag 'v1'",
        "branch 'own'",
        f"transaction {transaction.id}",
        "Lance's own tag 'old'",
        "Lance's own branch 'side'",
    ):
        assert name in refused.value.message
    assert lake.branch().head == before, "nothing was changed"
    with pytest.raises(EraseRefused) as still:
        lake.erase("t", all_references=True)
    assert "'v1'" not in still.value.message
    assert "'old'" not in still.value.message
    assert "'own'" in still.value.message, "changes of its own are not thrown away"
    assert len(lake.erase("t", dry_run=True).left) == 5


def test_following_the_advice_of_a_refusal_lets_the_erase_go_on(lake: Lake, path: Path) -> None:
    dataset = write(lake, rows(), mode="create")
    lake.tag("v1").create()
    lake.branch("dev").create()
    lake.branch("own").create()
    write(lake, pa.Table.from_pylist([{"id": 7, "name": "own"}]), "own")
    namespace = lake.lance()
    namespace.create_table_tag({"id": ["t"], "tag": "old", "version": 1})
    namespace.create_table_branch({"id": ["t"], "name": "side"})
    dataset.delete("id = 2")
    lake.merge("own", "main")
    lake.branch("own").delete()
    namespace.delete_table_branch({"id": ["t"], "name": "side"})
    lake.finish_background()
    lake.close()
    with alone(path) as lake:
        assert lake.erase("t", all_references=True).finished
        assert where_is(path, MARKER) == []
        assert lake.lance().list_table_tags({"id": ["t"]}).tags == {}
        lake.finish_background()
        assert {*lance.dataset(location_of(lake)).tags.list()} == set()
        for name in ("v1", "dev"):
            with pytest.raises(HistoryExpired):
                lake.at(name).table("t").to_arrow()
        lake.rebase("dev")
        assert rows_of(lake, "dev") == rows_of(lake) == [*LEFT, {"id": 7, "name": "own"}]
        assert lake.fsck().damages == ()


def test_a_clone_that_has_files_of_the_table_holds_rows_until_it_is_written_anew(
    lake: Lake, path: Path, tmp_path: Path
) -> None:
    dataset = write(lake, rows(), mode="create")
    lake.finish_background()
    location = location_of(lake)
    lance.dataset(location).shallow_clone(str(tmp_path / "lake" / "warehouse" / "clone"), 1)
    lake.lance().register_table({"id": ["copy"], "location": str(tmp_path / "lake" / "warehouse" / "clone")})
    dataset.delete("id = 2")
    with pytest.raises(EraseRefused, match="the clone 'copy'"):
        lake.erase("t")
    with pytest.raises(EraseRefused, match="which this one is a clone of"):
        lake.erase("copy")
    lake.table("copy").overwrite(pa.Table.from_pylist(LEFT))
    lake.close()
    with alone(path) as lake:
        assert lake.erase("copy", all_references=True).finished
        assert lake.erase("t").finished
        assert where_is(path, MARKER) == []
        assert rows_of(lake) == lake.table("copy").to_arrow().to_pylist() == LEFT


def test_it_is_refused_while_it_cannot_be_read_whether_a_table_is_a_clone_of_this_one(
    lake: Lake, tmp_path: Path
) -> None:
    dataset = write(lake, rows(), mode="create")
    lake.finish_background()
    clone = tmp_path / "lake" / "warehouse" / "clone"
    lance.dataset(location_of(lake)).shallow_clone(str(clone), 1)
    lake.lance().register_table({"id": ["copy"], "location": str(clone)})
    dataset.delete("id = 2")
    lake.finish_background()
    (manifest,) = (clone / "_versions").glob("*.manifest")
    away = manifest.rename(tmp_path / "away")
    manifest.write_bytes(b"not a manifest")
    with pytest.raises(EraseRefused, match="'copy'"):
        lake.erase("t")
    lake.lance().drop_table({"id": ["t"]})
    with pytest.raises(EraseRefused, match="'copy'"):
        lake.erase("t", dropped=True)
    away.replace(manifest)
    assert lake.table("copy").to_arrow().num_rows == len(rows())


# -- grace, crashes and others who write -------------------------------------------------------------------


def test_it_waits_for_the_grace_period_and_ends_after_it(tmp_path: Path) -> None:
    clock, path = LateClock(), tmp_path / "lake"
    with penstock.open(path, create=True, clock=clock) as lake:
        deleted(lake)
        lake.finish_background()
        waiting = lake.erase("t")
        assert not waiting.finished
        assert waiting.until is not None
        assert where_is(path, MARKER)
        clock.days = 3
        assert not lake.erase("t").finished
        write(lake, pa.Table.from_pylist([{"id": 4, "name": "new"}]))
        clock.days = 8.1
        done = lake.erase("t")
        assert done.first_version == waiting.first_version
        assert done.finished
        assert where_is(path, MARKER) == []
        assert rows_of(lake) == [*LEFT, {"id": 4, "name": "new"}]
        assert lake.fsck().damages == ()


def test_a_restore_by_lance_itself_of_an_erased_version_is_refused(lake: Lake, path: Path) -> None:
    write(lake, rows(), mode="create").delete("id = 2")
    old = lance.dataset(namespace_client=lake.lance(), table_id=["t"], version=1)
    assert not lake.erase("t").finished, "its files are there for a week"
    before = lake.branch().head
    with pytest.raises(OSError, match="was erased"):
        old.restore()  # type: ignore[no-untyped-call]
    assert lake.branch().head == before
    assert rows_of(lake) == LEFT


@pytest.mark.parametrize("when", ["rewrite_files", "commit_first_version", "cut_history"])
def test_an_index_that_was_made_of_an_earlier_version_does_not_come_back(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Lance itself lets it land: a deletion does not keep an index from being added."""
    write(lake, pa.Table.from_pylist(LEFT), mode="create")
    write(lake, rows().slice(1, 1))
    early = opened(lake)
    opened(lake).delete("id = 2")  # all rows of its fragment: none is rewritten
    real = getattr(LanceErasure, when)
    raced: list[str] = []

    def racing(*given: Any, **named: Any) -> Any:
        done = real(*given, **named) if when == "rewrite_files" else None
        if not raced:
            raced.append("")
            try:
                early.create_scalar_index("name", "BTREE", name="late")
            except Exception as problem:
                raced.append(str(problem))
        return done if when == "rewrite_files" else real(*given, **named)

    with penstock.open(path, settings=ALONE) as other:
        monkeypatch.setattr(LanceErasure, when, racing)
        other.erase("t")
    assert raced
    with alone(path) as last:
        assert last.erase("t").finished
        assert where_is(path, MARKER) == []
        assert rows_of(last) == LEFT
        assert (when == "cut_history") == (len(raced) == 2), "after the first version it is refused"
        assert last.fsck().damages == ()


def test_writers_go_on_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends land before every step, and none of them is lost."""
    deleted(lake)
    number = iter(range(100, 200))
    for name in ("rewrite_files", "_commit_first", "cut_history", "sweep_unneeded_files"):
        real, done = getattr(LanceErasure, name), list[int]()

        def appending(*given: Any, real: Any = real, done: list[int] = done, **named: Any) -> Any:
            if done:
                return real(*given, **named)
            done.append(1)
            write(lake, pa.Table.from_pylist([{"id": next(number), "name": "new"}]))
            return real(*given, **named)

        monkeypatch.setattr(LanceErasure, name, appending)
    lake.erase("t")
    found = {row["id"] for row in rows_of(lake)}
    assert {1, 3, 100, 101, 102, 103} <= found
    assert 2 not in found
    assert lake.fsck().damages == ()
    assert all(one.problem == "" for one in lake.sweep_tables(dry_run=True))


# -- other tables ------------------------------------------------------------------------------------------


def test_vectors_and_their_index_go_too(lake: Lake, path: Path) -> None:
    gone = [1234.5678, *([0.25] * 7)]
    values = [[float(row * 37 % 101 + at) for at in range(8)] for row in range(300)] + [gone]
    vectors = pa.array(values, pa.list_(pa.float32(), 8))
    dataset = write(lake, pa.table({"id": range(301), "v": vectors}), mode="create")
    dataset.create_index("v", "IVF_FLAT", num_partitions=2, metric="l2", name="near")
    dataset.delete("id = 300")
    lake.close()
    marker = pa.array([1234.5678], pa.float32()).buffers()[1].to_pybytes()

    def holding() -> list[Path]:
        return [one for one in path.rglob("*") if one.is_file() and marker in one.read_bytes()]

    assert len(holding()) > 1
    with alone(path) as lake:
        assert lake.erase("t").finished
        assert holding() == []
        (index,) = opened(lake).describe_indices()
        assert (index.name, index.index_type, index.details["metric_type"]) == ("near", "IVF_FLAT", "L2")


def test_an_index_that_cannot_be_made_anew_is_dropped_first_and_created_again(lake: Lake, path: Path) -> None:
    texts = pa.table({"id": [1, 2], "name": [["ada"], [MARKER]]})
    dataset = write(lake, texts, mode="create")
    options: Any = {"document_granularity": DocumentGranularity.LIST_ELEMENT}
    dataset.create_scalar_index("name", "INVERTED", name="words", **options)
    dataset.delete("id = 2")
    before = lake.branch().head
    with pytest.raises(UnsupportedFeature, match="Drop it, erase the table, and create the index again then"):
        lake.erase("t")
    assert lake.branch().head == before, "nothing was changed"
    opened(lake).drop_index("words")
    lake.close()
    with alone(path) as lake:
        assert lake.erase("t").finished
        opened(lake).create_scalar_index("name", "INVERTED", name="words", **options)
        assert where_is(path, MARKER) == []


def test_a_table_in_the_oldest_file_format_is_written_to_a_new_one(lake: Lake) -> None:
    lance.write_dataset(
        rows(), namespace_client=lake.lance(), table_id=["t"], mode="create", data_storage_version="legacy"
    ).delete("id = 2")
    with pytest.raises(UnsupportedFeature, match="write its rows to a new table, and drop this one"):
        lake.erase("t")
    lance.write_dataset(lake.table("t").to_arrow(), namespace_client=lake.lance(), table_id=["new"])
    lake.branch().drop("t")
    assert lake.table("new").to_arrow().to_pylist() == LEFT


def test_a_private_table_is_erased(lake: Lake, path: Path) -> None:
    lake.lance().declare_table({"id": ["t"], "properties": {"penstock.private": "true"}})
    write(lake, rows(), mode="overwrite")
    lake.table("t").overwrite(pa.Table.from_pylist(LEFT))
    lake.close()
    with alone(path) as lake:
        assert lake.erase("t").finished
        assert where_is(path, MARKER) == []
        assert rows_of(lake) == LEFT


def test_a_registered_table_is_erased(lake: Lake, path: Path) -> None:
    """Versions from before the lake knew the table go as well, of which it otherwise removes none."""
    place = path / "warehouse" / "mine.lance"
    lance.write_dataset(rows(), place)
    lance.dataset(place).delete("id = 2")
    lake.lance().register_table({"id": ["t"], "location": str(place)})
    lake.close()
    with alone(path) as lake:
        assert lake.erase("t").finished
        assert where_is(path, MARKER) == []
        assert lance.dataset(place).to_table().to_pylist() == LEFT


def test_files_that_nobody_knows_and_that_may_have_rows_are_told(lake: Lake, path: Path) -> None:
    write(lake, rows(), mode="create").delete("id = 2")
    lake.finish_background()
    place = Path(location_of(lake))
    (place / "mine.parquet").write_text("rows")
    (place / "notes.txt").write_text("not rows")
    lake.close()
    with alone(path) as lake:
        erased = lake.erase("t")
        assert not erased.finished
        (told,) = erased.left
        assert "mine.parquet" in told
        assert "notes.txt" not in told


def test_lancedb_reads_the_newest_version_afterwards(lake: Lake, path: Path) -> None:
    lancedb = pytest.importorskip("lancedb")
    deleted(lake)
    lake.close()
    with alone(path) as lake:
        assert lake.erase("t").finished
        place = Path(location_of(lake))
    link = path.parent / "db"
    link.mkdir()
    (link / "t.lance").symlink_to(place, target_is_directory=True)
    table = lancedb.connect(link).open_table("t")
    assert table.to_arrow().sort_by("id").to_pylist() == LEFT
    assert table.search("zoe", query_type="fts").to_list()[0]["id"] == 3
