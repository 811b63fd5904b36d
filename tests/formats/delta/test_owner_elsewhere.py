"""Tables that a lake has dropped, and tables of another lake that it has a copy of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from penstock.errors import ManagedElsewhere, Unavailable
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import (
    DeltaLake,
    create,
    create_branch,
    data_file,
    foreign_ids,
    log_bytes,
    opened,
)
from tests.formats.delta.ratified import WAIT_S

T = Key("t")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


# --- tables that were dropped ---


@pytest.fixture
def dropped(store: MemoryStore, tmp_path: Path) -> Path:
    """A table that was dropped when only two of its four versions were published."""
    with opened(store, publishes=False) as lake:
        root = create(lake, tmp_path)
        for number in range(3):
            lake.append("t", data_file(root, number))
        lake.owner.publish_table("main", T, 1)
        lake.kernel.commit("main", [Delete(T)])
    return root


def test_what_was_ratified_is_published_though_its_table_was_dropped(
    store: MemoryStore, dropped: Path
) -> None:
    with opened(store) as lake:
        assert lake.owner.catch_up() == 1
        identity = next(content.id for _, content in lake.tables.list_dropped_tables(lake.tables.find_head()))
        assert identity is not None
        assert lake.publisher.wait_for_version(identity, 3, WAIT_S)
        assert lake.owner.catch_up() == 0, "there is nothing left"
        assert lake.owner.list_statuses() == ()
    assert foreign_ids(dropped) == [0, 1, 2]


def test_the_files_of_a_dropped_table_that_are_gone_do_not_come_back(
    store: MemoryStore, dropped: Path
) -> None:
    rmtree(dropped)
    with opened(store) as lake:
        assert lake.owner.catch_up() == 0
    assert not dropped.exists()


def test_a_dropped_table_that_was_taken_by_another_lake_is_left_alone(
    store: MemoryStore, dropped: Path
) -> None:
    with opened(MemoryStore(), "lake-2") as other:
        other.owner.recover_table(str(dropped), T, any_lake=True)
    theirs = log_bytes(dropped, 2)
    with opened(store) as lake:
        assert lake.owner.catch_up() == 0
        assert lake.publisher.list_unpublished() == ()
    assert (log_bytes(dropped, 2), log_bytes(dropped, 3)) == (theirs, None)


def test_a_table_that_was_handed_back_is_not_published_again(store: MemoryStore, tmp_path: Path) -> None:
    with opened(store, publishes=False) as lake:
        root = create(lake, tmp_path)
        lake.append("t", data_file(root, 1))
        lake.owner.release_table(T)
        (root / str(CommitName(2))).unlink()
        assert lake.owner.catch_up() == 0
    assert log_bytes(root, 2) is None


# --- tables of another lake ---


@pytest.fixture
def copied(store: MemoryStore, tmp_path: Path) -> Iterator[tuple[DeltaLake, Path]]:
    """A copy of a lake, with an id of its own, and where its only table is; one version is published."""
    with opened(store, publishes=False) as lake:
        root = create(lake, tmp_path)
        lake.append("t")
        lake.owner.publish_table("main", T, 0)
        create_branch(lake.kernel, "dev")
        lake.append("t", branch="dev")
    with opened(store, "a-copy") as copy:
        yield copy, root


def test_k12_a_copy_of_a_lake_publishes_nothing(copied: tuple[DeltaLake, Path]) -> None:
    copy, root = copied
    content = copy.content("t")
    assert content.id is not None
    copy.publisher.table_committed(T, content, is_default=True)
    copy.publisher.table_committed(T, copy.content("t", "dev"), is_default=False)
    assert copy.owner.catch_up() == 0
    assert copy.publisher.list_unpublished() == ()
    assert not copy.publisher.wait_for_version(content.id, 1, 0.0)
    with pytest.raises(ManagedElsewhere, match=r"belongs to lake lake-1 at https://lake\.example"):
        copy.owner.publish_table("main", T)
    assert log_bytes(root, 1) is None
    assert not any(one.is_file() for one in (root / "_penstock").rglob("*"))


@pytest.mark.parametrize("lake_id", ["lake-1", "a-copy"])
def test_k12_a_table_whose_owner_cannot_be_read_now_is_published_later_if_it_is_the_lakes(
    copied: tuple[DeltaLake, Path], store: MemoryStore, lake_id: str
) -> None:
    _, root = copied
    with opened(store, lake_id) as lake:
        content, away = lake.content("t"), [True]

        def read(one: ObjectId) -> bytes:
            if away[0]:
                raise Unavailable("the store is away")
            return lake.tables.read_object(one)

        assert content.id is not None
        publisher = Publisher(lake.places, read, background=False)
        publisher.publish_for(lake.identity)
        publisher.table_committed(T, content, is_default=True)
        assert not publisher.wait_for_version(content.id, 1, 0.0)
        away[0] = False
        is_published = publisher.wait_for_version(content.id, 1, 0.0)
    assert is_published == (lake_id == "lake-1")
    assert (log_bytes(root, 1) is not None) == is_published
    assert publisher.list_unpublished() == ()


def test_k12_who_would_change_a_log_can_ask_whose_it_is(
    copied: tuple[DeltaLake, Path], store: MemoryStore
) -> None:
    copy, _ = copied
    content = copy.content("t")
    with pytest.raises(ManagedElsewhere, match="is read-only here"):
        copy.publisher.check_owned(content)
    with pytest.raises(ManagedElsewhere):
        copy.publisher.inspect_log(content)
    (status,) = copy.owner.list_statuses()
    assert (status.owner, status.alarm, status.oldest_s) == ("lake-1", "", None)
    with opened(store) as lake:
        lake.publisher.check_owned(content)
        assert lake.publisher.inspect_log(content) == 0


def test_k12_a_copy_of_a_lake_reads_what_is_not_published(copied: tuple[DeltaLake, Path]) -> None:
    copy, root = copied
    (only,) = copy.owner.list_commits(T, copy.content("t"), 1).commits
    assert (root / only.name).stat().st_size == only.size
