"""Tables whose lake was lost are taken back from their published logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.errors import InvalidRequest, ManagedElsewhere, NotManaged, TableConflict
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase
from penstock.formats.delta.branch_log.intents import CommitIntent, make_change_operation
from penstock.formats.delta.branch_log.ownership import find_owner
from penstock.formats.delta.errors import ForeignCommit
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.ownership.handover import Handover
from penstock.formats.delta.protocol.actions import write_commit
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.storage.places import Place
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import (
    DeltaLake,
    data_file,
    foreign_append,
    foreign_ids,
    log_bytes,
    opened,
    staged_names,
)
from tests.formats.delta.logs import add

ORDERS = Key("orders")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "orders"
    foreign_append(root, 1, 2)
    return root


@pytest.fixture
def lost(root: Path) -> Iterator[DeltaLake]:
    """The lake that will be lost: it owns the table at version 2, published, and nothing more is."""
    with opened(MemoryStore(), "lost", publishes=False) as lake:
        lake.owner.adopt_table(str(root))
        lake.append("orders", data_file(root, 3))
        lake.owner.publish_table("main", ORDERS)
        yield lake


@pytest.fixture
def lake() -> Iterator[DeltaLake]:
    with opened(MemoryStore(), "new") as lake:
        yield lake


def stage(lake: DeltaLake, version: int, path: str) -> str:
    """Ratify a version whose file is staged, and not published."""
    intent = CommitIntent(actions=write_commit([add(path)]), uuid=uuid4(), version=version)
    (table,) = lake.owner.commit_versions("main", [make_change_operation("orders", intent)]).tables
    return table.name


def test_a_new_lake_takes_a_table_back_from_its_published_log(
    lost: DeltaLake, lake: DeltaLake, root: Path
) -> None:
    recovered = lake.owner.recover_table(str(root), lost="lost")
    assert (recovered.published, recovered.made.version, recovered.doubtful) == (2, 3, ())
    assert recovered.lost.lake == "lost"
    assert lake.line("orders").phase is OwnershipPhase.OWNED
    snapshot = load_snapshot(PlaceFiles(lake.places.open_place(str(root))))
    owner = find_owner(snapshot.protocol, snapshot.metadata)
    assert owner is not None
    assert (owner.lake, owner.table) == ("new", recovered.made.id)
    lake.append("orders", data_file(root, 4))
    lake.catch_up()
    assert foreign_ids(root) == [1, 2, 3, 4]
    assert lost.has("orders")


def test_versions_that_cannot_be_known_to_have_existed_are_named_one_by_one(
    lost: DeltaLake, lake: DeltaLake, root: Path
) -> None:
    third = stage(lost, 3, "a.parquet")
    fourth = stage(lost, 4, "b.parquet")
    loser = f"_delta_log/_commits/{4:020}.{uuid4()}.json"
    (root / loser).write_bytes(b"{}\n")
    recovered = lake.owner.recover_table(str(root), lost="lost")
    assert [(one.version, one.names) for one in recovered.doubtful] == [
        (3, (third,)),
        (4, tuple(sorted((fourth, loser)))),
    ]
    assert str(recovered.doubtful[0]) == (
        f"version 3 may have been {third}; it is not known whether that version existed"
    )
    assert str(recovered.doubtful[1]).startswith("version 4 may have been one of ")
    assert recovered.made.version == 3
    assert len(staged_names(root)) == 3


def test_staged_files_of_published_versions_are_no_doubt(
    lost: DeltaLake, lake: DeltaLake, root: Path
) -> None:
    stage(lost, 3, "a.parquet")
    lost.owner.publish_table("main", ORDERS)
    assert lake.owner.recover_table(str(root), lost="lost").doubtful == ()


def test_a_lake_that_was_not_lost_after_all_stops_at_the_version_that_is_not_its_own(
    lost: DeltaLake, lake: DeltaLake, root: Path
) -> None:
    lake.owner.recover_table(str(root), lost="lost")
    ours = log_bytes(root, 3)
    lost.append("orders", data_file(root, 4))
    with pytest.raises(ForeignCommit):
        lost.owner.publish_table("main", ORDERS)
    assert log_bytes(root, 3) == ours
    assert log_bytes(root, 4) is None


def test_the_lost_lake_must_be_named_unless_any_counts(lost: DeltaLake, lake: DeltaLake, root: Path) -> None:
    for said in ({}, {"lost": "lost", "any_lake": True}):
        with pytest.raises(
            InvalidRequest, match=r"belongs to lake lost .*: give the lake that was lost"
        ) as refused:
            lake.owner.recover_table(str(root), **said)  # type: ignore[arg-type]
        assert refused.value.details["lake"] == "lost"
        assert f"penstock delta recover {root} --lost lost" in refused.value.message
    with pytest.raises(ManagedElsewhere, match="which is not the lake that was lost"):
        lake.owner.recover_table(str(root), lost="another")
    assert not lake.has("orders")
    assert lost.has("orders")
    assert lake.owner.recover_table(str(root), any_lake=True).made.version == 3


def test_a_table_without_an_owner_is_adopted_and_not_recovered(lake: DeltaLake, root: Path) -> None:
    with pytest.raises(NotManaged, match="penstock delta adopt"):
        lake.owner.recover_table(str(root), any_lake=True)


def test_a_table_that_this_lake_has_is_not_lost(lost: DeltaLake, root: Path) -> None:
    with pytest.raises(InvalidRequest, match="this lake has it, as 'orders'"):
        lost.owner.recover_table(str(root), lost="lost")


def test_a_table_that_was_taken_back_is_not_taken_twice(lost: DeltaLake, lake: DeltaLake, root: Path) -> None:
    lake.owner.recover_table(str(root), lost="lost")
    with pytest.raises(InvalidRequest, match="this lake has it, as 'orders'"):
        lake.owner.recover_table(str(root), lost="lost")
    assert lost.line("orders").latest == 2
    assert lake.line("orders").latest == 3


def test_a_lake_takes_a_table_back_that_it_had_dropped(lost: DeltaLake, root: Path) -> None:
    lost.kernel.commit("main", [Delete(ORDERS)])
    with pytest.raises(InvalidRequest, match="was dropped from it"):
        lost.owner.adopt_table(str(root))
    assert lost.owner.recover_table(str(root), lost="lost").made.version == 3
    assert lost.line("orders").phase is OwnershipPhase.OWNED


def test_a_recovery_that_meets_a_last_sign_of_life_takes_nothing(lost: DeltaLake, root: Path) -> None:
    class Late(Handover):
        def _put_conversion(self, place: Place, name: str, data: bytes) -> bool:
            lost.append("orders", data_file(root, 4))
            lost.owner.publish_table("main", ORDERS)
            return super()._put_conversion(place, name, data)

    with opened(MemoryStore(), "new", handover=Late) as lake:
        with pytest.raises(TableConflict):
            lake.owner.recover_table(str(root), lost="lost")
        assert not lake.has("orders")
    assert foreign_ids(root) == [1, 2, 3, 4]
