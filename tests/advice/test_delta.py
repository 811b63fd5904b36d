"""What messages about Delta tables advise is done, and no row is lost that was acknowledged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock
from penstock import Lake
from penstock.errors import InvalidRequest, ManagedElsewhere, MergeConflict, PenstockError, Unavailable
from penstock.formats.delta.errors import InvalidTable
from tests.advice.rows import numbers, numbers_in, rows
from tests.formats.delta.rows import inline_vector, vector_data
from tests.formats.delta.sides import KEY, create

LOG = "_delta_log"


@pytest.fixture
def place(lake: Lake) -> Path:
    """Where a table is that has the row 1, published, and the row 2."""
    table = lake.create_table("a.t", data=rows(1))
    lake.finish_background()
    table.append(rows(2))
    lake.finish_background()
    return Path(table.location)


def published(place: Path) -> list[int]:
    return numbers_in(DeltaTable(str(place)).to_pyarrow_table())


# -- files of the log that are gone, or others -------------------------------------------------------------


def lose_all(log: Path, away: Path) -> Callable[[], object]:
    shutil.move(log, away)
    return lambda: shutil.move(away, log)


def replace_all(log: Path, away: Path) -> Callable[[], object]:
    shutil.move(log, away)
    write_deltalake(str(log.parent), rows(9))

    def bring_back() -> None:
        shutil.rmtree(log)
        shutil.move(away, log)

    return bring_back


@pytest.mark.parametrize("lose", [lose_all, replace_all])
def test_what_was_taken_from_a_log_is_brought_back_and_all_is_published(
    place: Path, tmp_path: Path, lose: Callable[[Path, Path], Callable[[], object]]
) -> None:
    bring_back = lose(place / LOG, tmp_path / "away")
    with penstock.open(tmp_path / "lake") as lake:  # in another process, which has not seen the log
        had = is_kept_after(lake, 3, r"Restore (it|the log) ")
        bring_back()
        if not had:
            lake.table("a.t").append(rows(3))
        lake.table("a.t").backfill_to_version()
        assert numbers(lake) == published(place) == [1, 2, 3]


def is_kept_after(lake: Lake, number: int, advice: str) -> bool:
    """Append a row and publish it, which is refused: whether it was acknowledged."""
    before = lake.resolve("main")
    with pytest.raises(PenstockError, match=advice):  # noqa: PT012
        lake.table("a.t").append(rows(number))
        lake.table("a.t").backfill_to_version()
    return lake.resolve("main") != before


def test_a_commit_that_is_missing_in_a_log_is_brought_back(place: Path, tmp_path: Path) -> None:
    commit = place / LOG / f"{0:020}.json"
    shutil.move(commit, tmp_path)
    with penstock.open(tmp_path / "lake") as lake:
        with pytest.raises(PenstockError, match=r"has a gap.*\n.*restore it from a backup"):
            lake.delta.read(str(place)).to_arrow()
        shutil.move(tmp_path / commit.name, commit)
        assert numbers_in(lake.delta.read(str(place)).to_arrow()) == numbers(lake) == [1, 2]


def test_a_table_that_was_deleted_on_purpose_is_dropped(place: Path, tmp_path: Path) -> None:
    shutil.rmtree(place / LOG)
    with penstock.open(tmp_path / "lake") as lake:
        is_kept_after(lake, 3, "deleted on purpose, drop it from the lake")
        before = lake.resolve("main")
        lake.branch().drop("a.t")
    with penstock.open(tmp_path / "lake") as lake:
        lake.finish_background()
        assert not (place / LOG).exists(), "nothing is written there any more"
        assert not lake.table("a.t").exists
        assert lake.at(before).table("a.t").exists


def test_a_damaged_checkpoint_is_renamed_and_all_rows_are_read(
    lake: Lake, place: Path, tmp_path: Path
) -> None:
    lake.delta.checkpoint("a.t")
    (checkpoint,) = place.glob(f"{LOG}/*.checkpoint*.parquet")
    checkpoint.write_bytes(b"PAR1")
    with penstock.open(tmp_path / "lake") as anew:
        with pytest.raises(PenstockError, match=r"Rename it, as in '….damaged'"):
            anew.delta.read(str(place)).to_arrow()
        checkpoint.rename(checkpoint.with_name(f"{checkpoint.name}.damaged"))
        assert numbers_in(anew.delta.read(str(place)).to_arrow()) == numbers(anew) == [1, 2]
        anew.table("a.t").append(rows(3))
        anew.delta.checkpoint("a.t")
    assert published(place) == [1, 2, 3]


# -- whose a table is --------------------------------------------------------------------------------------


def test_a_table_that_was_dropped_is_had_back_whole_by_a_revert(
    lake: Lake, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.formats.delta.publishing.publisher.publish_versions", unpublished)
    lake.table("a.t").append(rows(3))
    lake.branch().drop("a.t")
    assert published(place) == [1, 2]
    with pytest.raises(InvalidRequest, match="Revert the commit that dropped it") as refused:
        lake.delta.adopt(str(place), "a.t")
    assert "It recovers only the versions that were published" in str(refused.value)
    lake.revert("main")
    monkeypatch.undo()
    lake.table("a.t").backfill_to_version()
    assert numbers(lake) == published(place) == [1, 2, 3]


def unpublished(*_: object) -> int:
    raise Unavailable("the log cannot be written just now")


def test_a_table_goes_from_one_lake_to_another_with_all_rows(lake: Lake, place: Path, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "other", create=True) as other:
        other.add_root(str(place.parent))
        with pytest.raises(ManagedElsewhere, match="Release it there first: penstock delta release"):
            other.delta.adopt(str(place), "b.t")
        lake.table("a.t").append(rows(3))
        lake.delta.release("a.t")
        with pytest.raises(PenstockError, match="there is a Delta table already; adopt it"):
            other.create_table("b.t", schema=rows(0).schema, location=str(place))
        other.delta.adopt(str(place), "b.t")
        other.table("b.t").append(rows(4))
        other.table("b.t").backfill_to_version()
        assert numbers(other, "b.t") == published(place) == [1, 2, 3, 4]


def test_the_rows_of_an_invalid_table_are_copied(lake: Lake, tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    lake.create_table("a.first", data=rows(1))
    lake.add_root(str(tmp_path))
    write_deltalake(str(place), rows(1, 2))
    first = [json.loads(line) for line in (place / LOG / f"{0:020}.json").read_text().splitlines()]
    (told,) = [line for line in first if "metaData" in line]
    told["metaData"]["configuration"]["delta.managedCommitOwnerName"] = "penstock"
    (place / LOG / f"{1:020}.json").write_text(json.dumps(told))
    with pytest.raises(InvalidTable, match=r"Copy its rows into a table of the lake \(lake.delta.read\)"):
        lake.delta.adopt(str(place), "a.theirs")
    lake.create_table("a.copied", data=lake.delta.read(str(place)).to_arrow())
    assert numbers(lake, "a.copied") == published(place) == [1, 2]


# -- branches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adopted", [False, True])
def test_a_branch_from_before_a_table_was_handed_back_brings_its_rows_by_hand(
    lake: Lake, place: Path, adopted: bool
) -> None:
    lake.branch("dev").create()
    lake.table("a.t", "dev").append(rows(3))
    lake.delta.release("a.t")
    if adopted:
        lake.delta.adopt(str(place), "a.t")
    advised = (
        "write the changes of the other side there again" if adopted else "append the rows that the other"
    )
    with pytest.raises(MergeConflict, match=advised):
        lake.merge("dev", keys={} if adopted else {"a.t": "force"})
    lake.merge("dev", keys={"a.t": "drop"})
    if not adopted:
        lake.delta.adopt(str(place), "a.t")
    missing = [one for one in numbers(lake, ref="dev") if one not in numbers(lake)]
    lake.branch("again").create()
    lake.table("a.t", "again").append(rows(*missing))
    lake.merge("again")
    lake.table("a.t").backfill_to_version()
    assert numbers(lake) == published(place) == [1, 2, 3]


def test_a_default_branch_that_cannot_be_moved_gets_the_rows_by_a_merge(lake: Lake, place: Path) -> None:
    lake.branch("dev").create()
    lake.table("a.t", "dev").append(rows(3))
    lake.table("a.t").append(rows(4))
    with pytest.raises(PenstockError, match="merge"):
        lake.branch().assign("dev")
    lake.merge("dev")
    lake.table("a.t").backfill_to_version()
    assert numbers(lake) == published(place) == [1, 2, 3, 4]


def test_a_file_gets_another_deletion_vector_in_one_commit(lake: Lake) -> None:
    main = create(lake, properties={"delta.enableDeletionVectors": "true"})
    main.mask(1)
    (add,) = [one for one in main.now().files() if one.deletion_vector is not None]
    masked = msgspec.structs.replace(add, deletion_vector=inline_vector(vector_data([0, 1]), 2))
    with pytest.raises(PenstockError, match="remove that in the same commit"):
        lake.table(KEY).commit(main.table.version + 1, [masked])
    main.mask(2)
    assert main.ids() == [3, 4, 5, 6]
