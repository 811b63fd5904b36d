"""Tables go back to the file system, whatever is interrupted, whoever races."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from penstock.errors import (
    CommitConflict,
    KeyNotFound,
)
from penstock.formats.delta.branch_log.ownership import find_owner
from penstock.formats.delta.ownership.handover import Handover
from penstock.formats.delta.ownership.tables import TableRequest
from penstock.formats.delta.protocol.names import CommitName
from penstock.model.keys import Key
from penstock.stores.memory import MemoryStore
from penstock.stores.sqlite import SqliteStore
from tests.formats.delta.lakes import (
    DeltaLake,
    Died,
    data_file,
    dying,
    foreign_append,
    foreign_ids,
    foreign_version,
    log_bytes,
    opened,
    published_snapshot,
)

ORDERS = Key("orders")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def lake(store: MemoryStore) -> Iterator[DeltaLake]:
    with opened(store) as lake:
        yield lake


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table of the file system, with two versions and three rows."""
    root = tmp_path / "orders"
    foreign_append(root, 1, 2)
    foreign_append(root, 3)
    return root


def test_r32_a_released_table_is_published_to_its_end_and_the_file_systems_again(
    store: MemoryStore, root: Path
) -> None:
    with opened(store, publishes=False) as lake:
        lake.owner.adopt_table(str(root))
        for number in (4, 5):
            lake.append("orders", data_file(root, number))
        assert foreign_version(root) == 2
        made = lake.owner.release_table(ORDERS)
        assert made.version == 5
        assert not lake.has("orders")
        snapshot = published_snapshot(lake, root)
        assert find_owner(snapshot.protocol, snapshot.metadata) is None
        with pytest.raises(CommitConflict):
            lake.append("orders")
    assert (foreign_version(root), foreign_ids(root)) == (5, [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("step", "before"),
    [
        ("_publish_line", True),
        ("_publish_line", False),
        ("_commit_settled", True),
        ("_commit_settled", False),
    ],
)
def test_r33_a_release_that_was_interrupted_is_finished_by_another_process(
    tmp_path: Path, root: Path, step: str, before: bool
) -> None:
    url = str(tmp_path / "lake.db")
    with opened(SqliteStore(url)) as lake:
        lake.owner.adopt_table(str(root))
        lake.append("orders", data_file(root, 4))
    with (
        opened(SqliteStore(url), handover=dying(step, before=before), publishes=False) as lake,
        pytest.raises(Died),
    ):
        lake.owner.release_table(ORDERS)
    with opened(SqliteStore(url)) as lake:
        lake.owner.catch_up()
        assert not lake.has("orders")
    assert (foreign_version(root), foreign_ids(root)) == (4, [1, 2, 3, 4])


def test_r33_whoever_wants_to_commit_to_a_half_released_table_finishes_the_release(
    store: MemoryStore, root: Path
) -> None:
    with opened(store) as lake:
        lake.owner.adopt_table(str(root))
    with (
        opened(store, handover=dying("_publish_line", before=True), publishes=False) as lake,
        pytest.raises(Died),
    ):
        lake.owner.release_table(ORDERS)
    with opened(store) as lake:
        with pytest.raises(CommitConflict):
            lake.append("orders")
        assert not lake.has("orders")
    assert foreign_version(root) == 3


def test_a_release_that_is_finished_late_does_not_touch_what_the_file_system_did_since(
    store: MemoryStore, root: Path
) -> None:
    with opened(store) as lake:
        lake.owner.adopt_table(str(root))
    with opened(store, handover=dying("_commit_settled", before=True)) as lake, pytest.raises(Died):
        lake.owner.release_table(ORDERS)
    for version in (4, 5):
        (root / str(CommitName(version))).write_bytes(b'{"commitInfo":{"inCommitTimestamp":9999999999999}}\n')
    for version in range(4):
        (root / str(CommitName(version))).unlink()
    with opened(store) as lake:
        lake.owner.catch_up()
        assert not lake.has("orders")
    assert [version for version in range(7) if log_bytes(root, version) is not None] == [4, 5]


def test_r32_after_a_release_no_version_is_ratified_however_many_race_it(
    store: MemoryStore, root: Path
) -> None:
    writers = 4
    begun, ratified = [Event() for _ in range(writers)], []

    def write(number: int) -> None:
        with opened(store) as lake:
            while True:
                try:
                    ratified.append(lake.append("orders").version)
                except (CommitConflict, KeyNotFound):
                    return
                begun[number].set()

    with opened(store) as lake:
        lake.owner.adopt_table(str(root))
        with ThreadPoolExecutor(writers) as threads:
            running = [threads.submit(write, number) for number in range(writers)]
            assert all(one.wait(20) for one in begun)
            made = lake.owner.release_table(ORDERS)
            for one in running:
                one.result(20)
        assert sorted(ratified) == list(range(3, made.version))
        assert not lake.has("orders")
    assert [log_bytes(root, version) is not None for version in range(made.version + 2)] == [
        *[True] * (made.version + 1),
        False,
    ]


def test_a_release_takes_a_version_into_account_that_lands_in_front_of_it(
    store: MemoryStore, root: Path
) -> None:
    class Overtaken(Handover):
        overtaken = 0

        def _now_ms(self) -> int:
            if self.overtaken < 3:  # between looking at the table and committing the release
                self.overtaken += 1
                writer.append("orders", data_file(root, 3 + self.overtaken))
            return super()._now_ms()

    with opened(store) as writer:
        writer.owner.adopt_table(str(root))
        with opened(store, handover=Overtaken) as lake:
            assert lake.owner.release_table(ORDERS).version == 6
    assert foreign_ids(root) == [1, 2, 3, 4, 5, 6]


def test_a_release_that_is_repeated_under_its_key_is_answered_as_before(lake: DeltaLake, root: Path) -> None:
    lake.owner.adopt_table(str(root))
    asked = TableRequest(key="release-orders", digest=lambda: b"release orders")
    first = lake.owner.release_table(ORDERS, request=asked)
    assert lake.owner.release_table(ORDERS, request=asked) == first
    with pytest.raises(KeyNotFound):
        lake.owner.release_table(ORDERS)


def test_a_table_goes_from_the_file_system_to_a_lake_and_back_and_to_another_lake(root: Path) -> None:
    for number, lake_id in enumerate(("lake-1", "lake-2", "lake-1")):
        with opened(MemoryStore(), lake_id) as lake:
            lake.owner.adopt_table(str(root))
            lake.append("orders", data_file(root, 10 + number))
            lake.owner.release_table(ORDERS)
    assert foreign_ids(root) == [1, 2, 3, 10, 11, 12]
