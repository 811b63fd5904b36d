"""Nothing is written to a log that does not name the table, whatever the lake remembers of it."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest
from deltalake import DeltaTable

from penstock.errors import LocationRefused
from penstock.formats.delta.errors import ForeignCommit, InvalidLog
from penstock.formats.delta.publishing import publisher
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import (
    NEW,
    create,
    create_branch,
    data_file,
    foreign_append,
    foreign_ids,
    foreign_version,
    log_bytes,
    opened,
)

T, U = Key("t"), Key("u")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def root(store: MemoryStore, tmp_path: Path) -> Path:
    """A table at a named place, of whose versions 0 to 2 the lake has forgotten the first, as published."""
    root = tmp_path / "here"
    with opened(store) as lake:
        lake.owner.create_table("main", T, NEW, location=str(root))
        for number in (1, 2):
            lake.append("t", data_file(root, number))
        assert lake.owner.publish_table("main", T) == 2
        assert lake.line("t").published == 0
    return root


def drop(store: MemoryStore) -> None:
    with opened(store) as lake:
        lake.kernel.commit("main", [Delete(T)])


def test_the_place_of_a_dropped_table_gets_no_successor_and_nothing_is_written_there(
    store: MemoryStore, root: Path
) -> None:
    drop(store)
    rmtree(root)
    with opened(store) as lake, pytest.raises(LocationRefused, match="was the location of another table"):
        lake.owner.create_table("main", U, NEW, location=str(root))
    with opened(store) as lake:
        assert lake.owner.catch_up() == 0
    assert not root.exists()


def test_a_restart_writes_nothing_of_a_dropped_table_into_a_table_of_the_file_system(
    store: MemoryStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drop(store)
    rmtree(root)
    foreign_append(root, 9)
    with opened(store) as lake:
        assert lake.owner.catch_up() == 0
    assert (foreign_version(root), foreign_ids(root)) == (0, [9])
    assert not caplog.records, "who has given up a table wants nothing of it"


def test_a_dropped_table_whose_files_were_deleted_is_given_up_quietly(
    store: MemoryStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drop(store)
    rmtree(root)
    with opened(store) as lake:
        assert lake.owner.catch_up() == 0
    assert not root.exists()
    assert not caplog.records


def test_a_log_that_is_gone_is_an_alarm_and_is_not_begun_in_the_middle(
    store: MemoryStore, root: Path
) -> None:
    rmtree(root)
    with opened(store) as lake:
        with pytest.raises(InvalidLog, match="is gone"):
            lake.owner.publish_table("main", T)
        with pytest.raises(InvalidLog, match="is gone"):  # having looked once, it is not taken for known
            lake.owner.publish_table("main", T)
        (status,) = lake.owner.list_statuses()
        assert "is gone" in status.alarm
    assert not (root / "_delta_log").exists()


def test_a_log_that_another_replaced_is_an_alarm_and_is_not_written_to(
    store: MemoryStore, root: Path
) -> None:
    rmtree(root)
    foreign_append(root, 9)
    with opened(store) as lake:
        for _ in range(2):
            with pytest.raises(ForeignCommit, match="the log names no owner"):
                lake.owner.publish_table("main", T)
        (status,) = lake.owner.list_statuses()
        assert "the log names no owner" in status.alarm
    assert (foreign_version(root), foreign_ids(root)) == (0, [9])


def test_a_log_that_names_another_table_is_not_written_to(store: MemoryStore, root: Path) -> None:
    rmtree(root)
    with opened(MemoryStore(), "lake-2") as other:
        other.owner.create_table("main", U, NEW, location=str(root))
    with opened(store) as lake, pytest.raises(ForeignCommit, match=r"the log names table .* of lake lake-2"):
        lake.owner.publish_table("main", T)
    assert log_bytes(root, 1) is None


def test_a_log_that_was_deleted_under_a_running_lake_is_seen_at_the_next_look(
    store: MemoryStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store, publishes=False) as lake:
        lake.append("t", data_file(root, 3))
        assert lake.owner.publish_table("main", T) == 3
        lake.append("t", data_file(root, 4))
        rmtree(root / "_delta_log")
        monkeypatch.setattr(publisher, "SEEN_MAX_S", -1.0)
        for _ in range(2):
            with pytest.raises(InvalidLog, match="is gone"):
                lake.owner.publish_table("main", T)
    assert not (root / "_delta_log").exists()


def test_a_table_that_was_created_and_never_published_has_no_log_to_name_it(
    store: MemoryStore, tmp_path: Path
) -> None:
    with opened(store, publishes=False) as lake:
        root = create(lake, tmp_path)
        lake.append("t", data_file(root, 1))
    with opened(store) as lake:
        assert lake.owner.publish_table("main", T) == 1
    assert foreign_ids(root) == [1]


def test_a_table_goes_on_from_a_log_whose_last_known_version_was_cleaned_up(
    store: MemoryStore, root: Path
) -> None:
    with opened(store) as lake:
        assert lake.owner.publish_table("main", T) == 2
        lake.append("t", data_file(root, 3))
        assert lake.line("t").published == 2
    DeltaTable(str(root)).create_checkpoint()
    for version in range(3):
        (root / f"_delta_log/{version:020}.json").unlink()
    with opened(store) as lake:
        assert lake.owner.publish_table("main", T) == 3
    assert foreign_ids(root) == [1, 2, 3]


def test_the_files_of_a_branch_can_be_had_though_the_log_is_anothers(store: MemoryStore, root: Path) -> None:
    with opened(store, publishes=False) as lake:
        create_branch(lake.kernel, "dev")
        lake.append("t", data_file(root, 5), branch="dev")
    rmtree(root / "_delta_log")
    foreign_append(root, 9)
    with opened(store) as lake:
        line = lake.line("t", "dev")
        names = lake.publisher.provide_files(lake.content("t", "dev"), line.fork_version)
        assert list(names) == [line.latest]
        assert (root / names[line.latest]).exists()
    assert foreign_version(root) == 0


def test_catching_up_ends_before_the_next_table_once_it_is_not_wanted(
    store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(store, publishes=False) as lake:
        for number in range(4):
            create(lake, tmp_path, f"t{number}")
    asked: list[str] = []

    with opened(store) as lake:
        looked = lake.owner.handover.settle_handover

        def resolve(key: Key, *more: object) -> object:
            asked.append(str(key))
            return looked(key, *more)  # type: ignore[arg-type]

        lake.owner.handover.settle_handover = resolve  # type: ignore[method-assign, assignment]
        assert lake.owner.catch_up(lambda: len(asked) < 2) == 2
    assert len(asked) == 2
    assert not caplog.records
