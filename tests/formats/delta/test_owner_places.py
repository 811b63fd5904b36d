"""Tables lie apart, at the turn of whoever comes; and a place is free again if nothing came of a promise."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from penstock.errors import CommitConflict, MergeConflict, TableConflict
from penstock.kernel.ledger import FOLDERS_MAX, list_folders_above
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import (
    NEW,
    DeltaLake,
    create,
    create_branch,
    data_file,
    doing_before_the_put,
    foreign_append,
    foreign_ids,
    log_bytes,
    opened,
)

A, B = Key("a"), Key("b")


@pytest.fixture
def lake() -> Iterator[DeltaLake]:
    with opened(MemoryStore()) as lake:
        yield lake


def create_at(lake: DeltaLake, key: Key, place: Path) -> None:
    lake.owner.create_table("main", key, NEW, location=str(place))


def drop(lake: DeltaLake, key: Key) -> None:
    lake.kernel.commit("main", [Delete(key)])


def revert(lake: DeltaLake, commit: ObjectId | None = None) -> None:
    """Undo a commit, the newest if none is named."""
    lake.kernel.revert(commit or lake.tables.find_head(), "main", CommitMeta())


@pytest.mark.parametrize("outer_first", [True, False])
def test_no_table_comes_to_lie_inside_another(lake: DeltaLake, tmp_path: Path, outer_first: bool) -> None:
    places = [tmp_path / "p", tmp_path / "p" / "x" / "y"]
    first, second = places if outer_first else places[::-1]
    create_at(lake, A, first)
    with pytest.raises(CommitConflict, match=r"inside the folder of another|another table is inside"):
        create_at(lake, B, second)
    assert not lake.has("b")
    assert log_bytes(second, 0) is None
    create_at(lake, B, tmp_path / "p-2")


def test_of_two_who_come_at_once_inside_and_outside_one_is_refused(lake: DeltaLake, tmp_path: Path) -> None:
    start = Barrier(2)

    def come(key: Key, place: Path) -> bool:
        start.wait()
        try:
            create_at(lake, key, place)
        except CommitConflict:
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        for number in range(10):
            outer = tmp_path / str(number)
            came = threads.map(come, (Key(f"a{number}"), Key(f"b{number}")), (outer, outer / "sub"))
            assert sorted(came) == [False, True]


def test_a_table_that_left_is_in_nobodys_way(lake: DeltaLake, tmp_path: Path) -> None:
    create_at(lake, A, tmp_path / "p" / "x")
    drop(lake, A)
    dropped = lake.tables.find_head()
    create_at(lake, B, tmp_path / "p")
    with pytest.raises(MergeConflict, match="inside the folder of another"):
        revert(lake, dropped)


def test_a_table_is_counted_once_however_it_comes_goes_and_moves(lake: DeltaLake, tmp_path: Path) -> None:
    root = create(lake, tmp_path)
    create_branch(lake.kernel, "dev")
    for _ in range(2):
        drop(lake, Key("t"))
        revert(lake)
    drop(lake, Key("t"))
    create(lake, tmp_path, "other", "dev")
    lake.kernel.merge(lake.tables.find_head("dev"), "main", CommitMeta())
    with pytest.raises(CommitConflict, match="another table is inside"):
        create_at(lake, A, tmp_path)
    drop(lake, Key("other"))
    assert root.parent == tmp_path
    create_at(lake, A, tmp_path)


def test_the_place_of_a_promise_that_came_to_nothing_is_as_before(lake: DeltaLake, tmp_path: Path) -> None:
    root = tmp_path / "a"
    create_at(lake, A, root)
    lake.append("a", data_file(root, 1))
    lake.owner.publish_table("main", A)
    drop(lake, A)
    dropped = lake.tables.find_head()
    lake.use(doing_before_the_put(lambda: (root / f"_delta_log/{2:020}.json").write_bytes(b"{}\n")))
    with pytest.raises(TableConflict):
        lake.owner.recover_table(str(root), B, lost="lake-1")
    (root / f"_delta_log/{2:020}.json").unlink()
    revert(lake, dropped)
    lake.append("a", data_file(root, 2))
    assert lake.owner.publish_table("main", A) == 2
    assert foreign_ids(root) == [1, 2]


def test_the_place_of_a_promise_that_was_kept_is_not_its_predecessors_again(
    lake: DeltaLake, tmp_path: Path
) -> None:
    root = tmp_path / "a"
    foreign_append(root, 1)
    lake.owner.adopt_table(str(root), A)
    drop(lake, A)
    dropped = lake.tables.find_head()
    lake.owner.recover_table(str(root), B, lost="lake-1")
    for _ in range(2):
        with pytest.raises(MergeConflict, match=r"belongs to another table now|is already"):
            revert(lake, dropped)
        drop(lake, B)
        revert(lake)
    drop(lake, B)
    with pytest.raises(MergeConflict, match="belongs to another table now"):
        revert(lake, dropped)


@pytest.mark.parametrize(
    ("location", "folders"),
    [
        ("/a/b/c", ("/a/b", "/a")),
        ("/a/b/", ("/a",)),
        ("/a", ()),
        ("s3://bucket/a/b", ("s3://bucket/a", "s3://bucket")),
        ("s3://bucket/a", ("s3://bucket",)),
        ("s3://bucket", ()),
    ],
)
def test_the_folders_above_a_location(location: str, folders: tuple[str, ...]) -> None:
    assert list_folders_above(location) == folders


def test_only_so_many_folders_above_a_location_are_looked_at() -> None:
    assert len(list_folders_above("/x" * 500)) == FOLDERS_MAX
