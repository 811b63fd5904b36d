"""Tables come into a lake from the file system, whatever is interrupted, whoever races."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, Event

import pytest
from deltalake import DeltaTable as ForeignTable
from deltalake.exceptions import DeltaError

from penstock.errors import (
    CommitConflict,
    InvalidRequest,
    ManagedElsewhere,
    OutcomeUnknown,
    TableConflict,
    TableNotFound,
    UnsupportedFeature,
)
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase
from penstock.formats.delta.branch_log.ownership import find_owner
from penstock.formats.delta.ownership.handover import Handover
from penstock.formats.delta.ownership.tables import TableRequest
from penstock.formats.delta.protocol.actions import write_commit
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.maintenance import make_checkpoint
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.operations import Delete, Put
from penstock.storage.places import Place
from penstock.stores.memory import MemoryStore
from penstock.stores.sqlite import SqliteStore
from tests.formats.delta.lakes import (
    DeltaLake,
    Died,
    data_file,
    doing_before_the_put,
    dying,
    foreign_append,
    foreign_ids,
    foreign_version,
    log_bytes,
    opened,
    published_snapshot,
)
from tests.formats.delta.logs import metadata, protocol

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


def test_r26_an_adopted_table_is_the_lakes_from_the_version_after_its_last(
    lake: DeltaLake, root: Path
) -> None:
    made = lake.owner.adopt_table(str(root))
    assert (made.key, made.version, made.location) == (ORDERS, 2, str(root))
    assert lake.line("orders").phase is OwnershipPhase.OWNED
    snapshot = published_snapshot(lake, root)
    owner = find_owner(snapshot.protocol, snapshot.metadata)
    assert owner is not None
    assert (owner.lake, owner.table, snapshot.version) == ("lake-1", made.id, 2)
    assert lake.append("orders", data_file(root, 4)).version == 3
    lake.catch_up()
    assert foreign_ids(root) == [1, 2, 3, 4]


def test_r40_a_writer_that_knows_no_owner_reads_a_managed_table_and_cannot_write_it(
    lake: DeltaLake, root: Path
) -> None:
    lake.owner.adopt_table(str(root))
    assert foreign_ids(root) == [1, 2, 3]
    with pytest.raises((DeltaError, OSError), match=r"managedCommits|[Uu]nsupported"):
        foreign_append(root, 4)
    assert foreign_version(root) == 2


def test_r30_a_writer_of_the_file_system_that_was_under_way_meets_the_conversion(
    lake: DeltaLake, root: Path
) -> None:
    under_way = ForeignTable(str(root))
    assert under_way.version() == 1
    lake.owner.adopt_table(str(root))
    ours = log_bytes(root, 2)
    with pytest.raises(Exception, match=r"managedCommits|[Uu]nsupported|[Cc]onflict|protocol|changed"):
        under_way.delete("id = 1")
    assert log_bytes(root, 2) == ours
    assert log_bytes(root, 3) is None


def test_adopting_a_table_again_under_its_key_changes_nothing(lake: DeltaLake, root: Path) -> None:
    first = lake.owner.adopt_table(str(root))
    head = lake.tables.find_head()
    again = lake.owner.adopt_table(str(root))
    assert (again.id, again.key) == (first.id, first.key)
    assert lake.tables.find_head() == head
    with pytest.raises(InvalidRequest, match="already in the lake, as 'orders'"):
        lake.owner.adopt_table(str(root), Key("others"))
    assert not lake.has("others")


def test_an_adoption_that_is_repeated_under_its_key_is_answered_as_before(
    lake: DeltaLake, root: Path
) -> None:
    asked = TableRequest(key="adopt-orders", digest=lambda: b"adopt orders")
    first = lake.owner.adopt_table(str(root), request=asked)
    lake.append("orders", data_file(root, 4))
    assert lake.owner.adopt_table(str(root), request=asked) == first
    renamed = Put(Key("renamed"), lake.content("orders"))
    lake.kernel.commit("main", [Delete(ORDERS), renamed])
    assert lake.owner.adopt_table(str(root), request=asked) == first
    lake.owner.release_table(Key("renamed"))
    assert lake.owner.adopt_table(str(root), request=asked) == first
    assert not lake.has("orders")


def test_an_adoption_that_came_to_nothing_says_so_again_when_it_is_repeated(
    store: MemoryStore, root: Path
) -> None:
    asked = TableRequest(key="adopt-orders", digest=lambda: b"adopt orders")
    with opened(store, handover=doing_before_the_put(lambda: foreign_append(root, 4))) as lake:
        for _ in range(2):
            with pytest.raises(TableConflict):
                lake.owner.adopt_table(str(root), request=asked)
    for path in [one for one in root.rglob("*") if one.is_file()]:
        path.unlink()
    with opened(store) as lake, pytest.raises(TableConflict):
        lake.owner.adopt_table(str(root), request=asked)
    assert log_bytes(root, 2) is None


def test_r29_a_conversion_is_not_repeated_over_the_commit_of_somebody_else(
    store: MemoryStore, root: Path
) -> None:
    with opened(store, handover=doing_before_the_put(lambda: foreign_append(root, 4))) as lake:
        with pytest.raises(TableConflict, match="has a version 2 that is not this lake's"):
            lake.owner.adopt_table(str(root))
        assert not lake.has("orders")
    assert foreign_ids(root) == [1, 2, 3, 4]
    foreign_append(root, 5)


def test_r27_a_lake_that_lost_forgets_its_promise_and_may_promise_again_at_a_higher_version(
    store: MemoryStore, root: Path
) -> None:
    with opened(store, handover=doing_before_the_put(lambda: foreign_append(root, 4))) as lake:
        with pytest.raises(TableConflict):
            lake.owner.adopt_table(str(root))
        lake.use(Handover)
        assert lake.owner.adopt_table(str(root)).version == 3
        lake.append("orders", data_file(root, 5))
        lake.catch_up()
        # What was promised as version 2 is not what version 2 became.
        snapshot = lake.commits.read_snapshot(lake.content("orders"), lake.tables.read_object)
        assert len(list(snapshot.read_files())) == 4
    assert foreign_ids(root) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("step", "before"),
    [
        ("_finish_handover", True),
        ("_put_conversion", True),
        ("_put_conversion", False),
        ("_commit_settled", True),
        ("_commit_settled", False),
    ],
)
def test_r28_whoever_opens_the_lake_after_a_crash_finishes_the_adoption(
    tmp_path: Path, root: Path, step: str, before: bool
) -> None:
    url = str(tmp_path / "lake.db")
    with opened(SqliteStore(url), handover=dying(step, before=before)) as lake, pytest.raises(Died):
        lake.owner.adopt_table(str(root))
    with opened(SqliteStore(url)) as lake:
        lake.owner.catch_up()
        assert lake.line("orders").phase is OwnershipPhase.OWNED
        assert lake.append("orders", data_file(root, 4)).version == 3
        lake.catch_up()
    assert foreign_ids(root) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("step", "before"), [("_put_conversion", True), ("_put_conversion", False), ("_commit_settled", True)]
)
def test_r28_the_next_version_is_taken_though_nobody_noted_that_the_conversion_is_there(
    store: MemoryStore, root: Path, step: str, before: bool
) -> None:
    with opened(store, handover=dying(step, before=before)) as lake, pytest.raises(Died):
        lake.owner.adopt_table(str(root))
    with opened(store) as lake:
        assert lake.append("orders", data_file(root, 4)).version == 3
        lake.catch_up()
    assert foreign_ids(root) == [1, 2, 3, 4]


def test_a_promise_that_was_interrupted_is_forgotten_if_the_file_system_was_faster(
    store: MemoryStore, root: Path
) -> None:
    with opened(store, handover=dying("_put_conversion", before=True)) as lake, pytest.raises(Died):
        lake.owner.adopt_table(str(root))
    foreign_append(root, 4)
    with opened(store) as lake:
        assert lake.line("orders").phase is OwnershipPhase.ADOPTING
        lake.owner.catch_up()
        assert not lake.has("orders")
        with pytest.raises(CommitConflict):
            lake.append("orders")
    assert foreign_ids(root) == [1, 2, 3, 4]


def test_a_promise_is_not_put_into_a_hole_that_a_clean_up_left_in_the_log(
    store: MemoryStore, root: Path
) -> None:
    with opened(store, handover=dying("_put_conversion", before=True)) as lake, pytest.raises(Died):
        lake.owner.adopt_table(str(root))
    foreign_append(root, 4)
    foreign_append(root, 5)
    ForeignTable(str(root)).create_checkpoint()
    for version in range(3):
        (root / str(CommitName(version))).unlink()
    with opened(store) as lake:
        lake.owner.catch_up()
        assert not lake.has("orders")
    assert log_bytes(root, 2) is None
    assert foreign_ids(root) == [1, 2, 3, 4, 5]


def test_adopting_again_after_a_crash_finishes_the_first_adoption(store: MemoryStore, root: Path) -> None:
    with opened(store, handover=dying("_put_conversion", before=True)) as lake:
        with pytest.raises(Died):
            lake.owner.adopt_table(str(root))
        promised = lake.content("orders").id
    with opened(store) as lake:
        made = lake.owner.adopt_table(str(root))
        assert (made.id, made.version) == (promised, 2)
        assert lake.line("orders").phase is OwnershipPhase.OWNED


def test_a_conversion_that_is_too_large_for_the_kernel_is_put_whole(lake: DeltaLake, tmp_path: Path) -> None:
    root = tmp_path / "wide"
    path = root / str(CommitName(0))
    path.parent.mkdir(parents=True)
    path.write_bytes(write_commit((protocol(), metadata(my_notes="x" * 300_000))))
    assert lake.owner.adopt_table(str(root)).version == 1
    found = log_bytes(root, 1)
    assert found is not None
    assert found.count(b"\n") == 3
    assert len(found) > 300_000
    lake.owner.release_table(Key("wide"))
    assert published_snapshot(lake, root).version == 2


def test_no_acknowledged_row_is_lost_while_a_busy_table_is_adopted(lake: DeltaLake, root: Path) -> None:
    acknowledged: list[int] = []
    is_busy = Event()

    def write() -> None:
        for number in range(100, 400):
            try:
                foreign_append(root, number)
            except (DeltaError, OSError):
                return  # it met the conversion
            acknowledged.append(number)
            is_busy.set()

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(write)
        assert is_busy.wait(20)
        while not lake.has("orders"):
            with suppress(TableConflict):
                lake.owner.adopt_table(str(root))
        running.result(60)
    version = lake.line("orders").latest
    lake.append("orders", data_file(root, 4))
    lake.catch_up()
    assert foreign_ids(root) == [1, 2, 3, 4, *acknowledged]
    assert len(acknowledged) < 300
    assert [log_bytes(root, one) is not None for one in range(version + 3)] == [
        *[True] * (version + 2),
        False,
    ]


class _Unsure(Handover):
    """Storage that does the write, or does not, and never answers."""

    does = True

    def _put_conversion(self, place: Place, name: str, data: bytes) -> bool:
        if self.does:
            super()._put_conversion(place, name, data)
        raise OutcomeUnknown("no answer")


class _NeverSure(_Unsure):
    does = False


def test_r6_the_file_is_the_success_whatever_became_of_the_answer(store: MemoryStore, root: Path) -> None:
    with opened(store, handover=_Unsure) as lake:
        lake.owner.adopt_table(str(root))
        assert lake.line("orders").phase is OwnershipPhase.OWNED


def test_an_adoption_whose_outcome_is_not_known_says_so_and_is_finished_by_the_next(
    store: MemoryStore, root: Path
) -> None:
    with opened(store, handover=_NeverSure) as lake, pytest.raises(OutcomeUnknown, match="is not known yet"):
        lake.owner.adopt_table(str(root))
    with opened(store) as lake:
        lake.owner.catch_up()
        assert lake.line("orders").phase is OwnershipPhase.OWNED


def test_two_lakes_that_adopt_one_table_at_once_have_one_winner(root: Path) -> None:
    both_promised = Barrier(2, timeout=20)
    handover = doing_before_the_put(both_promised.wait)
    stores = {"lake-1": MemoryStore(), "lake-2": MemoryStore()}

    def adopt(lake_id: str) -> bool:
        with opened(stores[lake_id], lake_id, handover=handover) as lake:
            try:
                lake.owner.adopt_table(str(root))
            except TableConflict:
                assert not lake.has("orders")
                return False
            return lake.line("orders").phase is OwnershipPhase.OWNED

    with ThreadPoolExecutor(2) as threads:
        won = dict(zip(stores, threads.map(adopt, stores), strict=True))
    assert sorted(won.values()) == [False, True]
    (winner,) = [name for name, is_winner in won.items() if is_winner]
    with opened(stores[winner], winner) as lake:
        snapshot = published_snapshot(lake, root)
        owner = find_owner(snapshot.protocol, snapshot.metadata)
        assert owner is not None
        assert (owner.lake, snapshot.version) == (winner, 2)


def test_of_many_who_adopt_one_table_under_their_own_keys_one_wins(store: MemoryStore, root: Path) -> None:
    count = 6
    together = Barrier(count, timeout=20)

    def adopt(number: int) -> bool:
        with opened(store) as lake:
            together.wait()
            try:
                lake.owner.adopt_table(str(root), Key(f"orders_{number}"))
            except (CommitConflict, InvalidRequest):  # a promise is in the way, or the table is the lake's
                return False
            return True

    with ThreadPoolExecutor(count) as threads:
        won = list(threads.map(adopt, range(count)))
    assert won.count(True) == 1
    with opened(store) as lake:
        assert [str(key) for key, _ in lake.tables.list_tables(lake.tables.find_head())] == [
            f"orders_{won.index(True)}"
        ]


def test_many_who_resolve_one_promise_at_once_agree(store: MemoryStore, root: Path) -> None:
    with opened(store, handover=dying("_put_conversion", before=True)) as lake, pytest.raises(Died):
        lake.owner.adopt_table(str(root))
    count = 4
    together = Barrier(count, timeout=20)

    def resolve(_: int) -> OwnershipPhase:
        with opened(store) as lake:
            content = lake.content("orders")
            together.wait()
            found = lake.owner.settle_handover(ORDERS, content)
            assert found is not None
            return lake.line("orders").phase

    with ThreadPoolExecutor(count) as threads:
        assert set(threads.map(resolve, range(count))) == {OwnershipPhase.OWNED}


def test_a_stale_view_of_a_promise_takes_nothing_back(lake: DeltaLake, root: Path) -> None:
    lake.owner.adopt_table(str(root))
    seen = lake.tables.find_head()
    stale: list[DeltaTable] = []
    for one, _ in lake.kernel.walk_commits(seen):
        content = lake.tables.find_content(one, ORDERS)
        if isinstance(content, DeltaTable):
            stale.append(content)
    lake.append("orders", data_file(root, 4))
    lake.catch_up()
    (root / str(CommitName(2))).unlink()  # as after a clean-up
    for content in stale:
        assert lake.owner.settle_handover(ORDERS, content) is not None
    assert lake.line("orders").phase is OwnershipPhase.OWNED
    assert log_bytes(root, 2) is None


def test_a_stale_view_of_a_promise_does_not_end_a_release(store: MemoryStore, root: Path) -> None:
    with opened(store, handover=dying("_put_conversion", before=False)) as lake:
        with pytest.raises(Died):
            lake.owner.adopt_table(str(root))
        stale = lake.content("orders")
        lake.use(Handover)
        assert lake.owner.settle_handover(ORDERS, stale) is not None
    with opened(store, handover=dying("_publish_line", before=True), publishes=False) as lake:
        with pytest.raises(Died):
            lake.owner.release_table(ORDERS)
        (root / str(CommitName(2))).rename(root / "elsewhere")
        (root / str(CommitName(3))).write_bytes(b"")
        lake.use(Handover)
        lake.owner.settle_handover(ORDERS, stale)
        assert lake.line("orders").phase is OwnershipPhase.RELEASED


def test_a_promise_that_was_kept_counts_though_its_commit_was_cleaned_up(
    store: MemoryStore, root: Path
) -> None:
    with opened(store, handover=dying("_put_conversion", before=False)) as lake:
        with pytest.raises(Died):
            lake.owner.adopt_table(str(root))
        make_checkpoint(lake.places.open_place(str(root)), 2, 0)
        for version in range(3):
            (root / str(CommitName(version))).unlink()
        lake.use(Handover)
        assert lake.owner.settle_handover(ORDERS, lake.content("orders")) is not None
        assert lake.line("orders").phase is OwnershipPhase.OWNED


def test_a_promise_that_came_too_late_is_forgotten_though_the_winner_was_cleaned_up(
    store: MemoryStore, root: Path
) -> None:
    with opened(store, handover=dying("_put_conversion", before=True)) as lake:
        with pytest.raises(Died):
            lake.owner.adopt_table(str(root))
        foreign_append(root, 9)
        ForeignTable(str(root)).create_checkpoint()
        for version in range(3):
            (root / str(CommitName(version))).unlink()
        lake.use(Handover)
        assert lake.owner.settle_handover(ORDERS, lake.content("orders")) is None
        assert not lake.has("orders")
    assert log_bytes(root, 2) is None


def test_what_was_only_promised_is_no_version_yet(store: MemoryStore, root: Path) -> None:
    with opened(store, handover=dying("_put_conversion", before=True)) as lake:
        with pytest.raises(Died):
            lake.owner.adopt_table(str(root))
        got = lake.owner.list_commits(ORDERS, lake.content("orders"))
        assert (got.latest_version, got.published, got.commits) == (1, 1, ())


def test_r31_a_table_of_another_lake_is_refused_until_that_one_hands_it_back(
    lake: DeltaLake, root: Path
) -> None:
    with opened(MemoryStore(), "lake-2") as other:
        other.owner.adopt_table(str(root))
        with pytest.raises(ManagedElsewhere, match="belongs to lake lake-2"):
            lake.owner.adopt_table(str(root))
        assert not lake.has("orders")
        other.owner.release_table(ORDERS)
    assert lake.owner.adopt_table(str(root)).version == 4


def test_a_table_that_uses_what_cannot_be_written_is_refused_by_name(lake: DeltaLake, tmp_path: Path) -> None:
    root = tmp_path / "redirected"
    path = root / str(CommitName(0))
    path.parent.mkdir(parents=True)
    path.write_bytes(write_commit((protocol("redirectWriterOnly-preview"), metadata())))
    with pytest.raises(UnsupportedFeature, match="redirectWriterOnly-preview"):
        lake.owner.adopt_table(str(root))
    assert not lake.has("redirected")


def test_there_must_be_a_table_to_adopt(lake: DeltaLake, tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        lake.owner.adopt_table(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere" / "_delta_log").exists()


def test_storage_that_overwrites_needs_the_word_of_the_only_writer(lake: DeltaLake, root: Path) -> None:
    lake.places.open_place(str(root))._shared.keeps_conditions = False
    with pytest.raises(InvalidRequest, match="--sole-writer"):
        lake.owner.adopt_table(str(root))
    assert not lake.has("orders")
    assert lake.owner.adopt_table(str(root), sole_writer=True).version == 2


def test_a_copy_of_the_lake_leaves_promises_of_the_other_one_alone(store: MemoryStore, root: Path) -> None:
    with opened(store, handover=dying("_put_conversion", before=True)) as lake, pytest.raises(Died):
        lake.owner.adopt_table(str(root))
    with opened(store, "lake-2") as copy:
        assert copy.owner.catch_up() == 0
        copy.owner.settle_handover(ORDERS, copy.content("orders"))
        assert copy.line("orders").phase is OwnershipPhase.ADOPTING
    assert log_bytes(root, 2) is None
