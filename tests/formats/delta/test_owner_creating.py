"""Tables are created: at places of their own, or where somebody else may be creating one, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from deltalake import DeltaTable as ForeignTable

from penstock.errors import (
    CommitConflict,
    InvalidRequest,
    LocationRefused,
    TableConflict,
)
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase
from penstock.formats.delta.branch_log.ownership import NewTable
from penstock.formats.delta.ownership.tables import TableRequest
from penstock.formats.delta.protocol.actions import write_commit
from penstock.formats.delta.protocol.names import CommitName
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import (
    NEW,
    DeltaLake,
    create,
    create_branch,
    foreign_append,
    foreign_ids,
    foreign_version,
    log_bytes,
    opened,
)
from tests.formats.delta.logs import SCHEMA, add, metadata, protocol

T = Key("t")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def lake(store: MemoryStore) -> Iterator[DeltaLake]:
    """A lake in which nothing is published unless somebody asks for it."""
    with opened(store, publishes=False) as lake:
        yield lake


def test_a_table_without_a_location_gets_one_that_nobody_else_knows(lake: DeltaLake, tmp_path: Path) -> None:
    first = lake.owner.create_table("main", Key("a"), NEW, warehouse=str(tmp_path))
    second = lake.owner.create_table("main", Key("b"), NEW, warehouse=str(tmp_path))
    assert first.location == f"{tmp_path}/{first.id}"
    assert first.location != second.location
    assert (first.version, lake.line("a").phase) == (0, OwnershipPhase.OWNED)
    assert lake.owner.publish_table("main", Key("a")) == 0
    assert foreign_version(Path(first.location)) == 0


def test_a_table_can_be_created_on_a_branch_where_nobody_else_sees_it(
    lake: DeltaLake, tmp_path: Path
) -> None:
    create_branch(lake.kernel, "dev")
    root = create(lake, tmp_path, branch="dev")
    lake.append("t", branch="dev")
    assert lake.line("t", "dev").latest == 1
    assert not lake.has("t")
    assert lake.owner.publish_table("dev", T) == -1
    assert log_bytes(root, 0) is None


def test_a_key_that_is_taken_is_not_created_over(lake: DeltaLake, tmp_path: Path) -> None:
    create(lake, tmp_path)
    with pytest.raises(CommitConflict, match="'t' exists already"):
        create(lake, tmp_path)


def test_creating_is_answered_as_before_when_it_is_repeated_under_its_key(
    lake: DeltaLake, tmp_path: Path
) -> None:
    asked = TableRequest(key="create-t", digest=lambda: b"create t")
    first = lake.owner.create_table("main", T, NEW, warehouse=str(tmp_path), request=asked)
    assert lake.owner.create_table("main", T, NEW, warehouse=str(tmp_path), request=asked) == first


def test_a_lake_without_a_warehouse_asks_for_a_location(lake: DeltaLake) -> None:
    with pytest.raises(InvalidRequest, match="no warehouse"):
        lake.owner.create_table("main", T, NEW)


def test_a_location_can_be_named_on_the_default_branch_only(lake: DeltaLake, tmp_path: Path) -> None:
    create_branch(lake.kernel, "dev")
    with pytest.raises(InvalidRequest, match="a location can be given only on"):
        lake.owner.create_table("dev", T, NEW, location=str(tmp_path / "t"))


def test_r24_a_table_is_not_created_where_one_is(lake: DeltaLake, tmp_path: Path) -> None:
    foreign_append(tmp_path / "t", 1)
    with pytest.raises(TableConflict, match="adopt it"):
        lake.owner.create_table("main", T, NEW, location=str(tmp_path / "t"))
    assert not lake.has("t")
    assert foreign_ids(tmp_path / "t") == [1]


def test_r24_a_table_of_the_lake_is_not_created_again_where_it_is(lake: DeltaLake, tmp_path: Path) -> None:
    where = str(tmp_path / "t")
    lake.owner.create_table("main", T, NEW, location=where)
    with pytest.raises(TableConflict, match="'t' of this lake is already there"):
        lake.owner.create_table("main", T, NEW, location=where)
    with pytest.raises(InvalidRequest, match="already in the lake, as 't'"):
        lake.owner.create_table("main", Key("u"), NEW, location=where)
    assert not lake.has("u")


def test_no_table_is_created_where_another_one_was(store: MemoryStore, tmp_path: Path) -> None:
    """Also where its files are gone: commits that have it would read those of the new one."""
    root = tmp_path / "t"
    with opened(store) as lake:
        lake.owner.create_table("main", T, NEW, location=str(root))
        lake.append("t", add("old.parquet"))
        lake.owner.publish_table("main", T)
        lake.kernel.commit("main", [Delete(T)])
        for path in [one for one in root.rglob("*") if one.is_file()]:
            path.unlink()
        with pytest.raises(LocationRefused, match="was the location of another table"):
            lake.owner.create_table("main", T, NEW, location=str(root))
        assert not lake.has("t")


def test_r24_of_many_who_create_at_one_place_exactly_one_wins_and_the_others_forget(tmp_path: Path) -> None:
    lakes = {f"lake-{number}": MemoryStore() for number in range(4)}
    root, together = tmp_path / "t", Barrier(len(lakes) + 1, timeout=20)

    def create_here(lake_id: str) -> str | None:
        with opened(lakes[lake_id], lake_id) as lake:
            together.wait()
            try:
                lake.owner.create_table("main", T, NEW, location=str(root))
            except TableConflict:
                assert not lake.has("t")
                return None
            assert lake.line("t").phase is OwnershipPhase.OWNED
            return lake_id

    def create_in_the_file_system() -> str | None:
        # As the protocol asks of a writer. (deltalake, if it loses this race, commits over it as version 1.)
        written, log = tmp_path / "written", root / "_delta_log"
        written.write_bytes(write_commit((protocol(), metadata())))
        log.mkdir(parents=True)
        together.wait()
        try:
            os.link(written, root / str(CommitName(0)))
        except FileExistsError:
            return None
        return "file system"

    with ThreadPoolExecutor(len(lakes) + 1) as threads:
        running = [threads.submit(create_here, one) for one in lakes]
        running.append(threads.submit(create_in_the_file_system))
        winners = [one.result(30) for one in running if one.result(30) is not None]
    assert len(winners) == 1
    found = log_bytes(root, 0)
    assert found is not None
    assert ("managedCommits" in found.decode()) == (winners[0] != "file system")
    assert str(winners[0]) in found.decode() or winners[0] == "file system"


def test_creating_at_a_place_that_storage_may_overwrite_needs_the_word_of_the_only_writer(
    lake: DeltaLake, tmp_path: Path
) -> None:
    where = str(tmp_path / "t")
    lake.places.open_place(where)._shared.keeps_conditions = False
    with pytest.raises(InvalidRequest, match="--sole-writer"):
        lake.owner.create_table("main", T, NEW, location=where)
    assert lake.owner.create_table("main", T, NEW, location=where, sole_writer=True).version == 0


def test_locations_are_checked_before_anything_is_done(store: MemoryStore, tmp_path: Path) -> None:
    def refuse(location: str) -> str:
        raise InvalidRequest(f"not {location}")

    with opened(store) as lake:
        lake.owner._check_location = refuse
        for ask in (
            lambda: lake.owner.create_table("main", T, NEW, location=str(tmp_path / "t")),
            lambda: lake.owner.adopt_table(str(tmp_path / "t")),
            lambda: lake.owner.recover_table(str(tmp_path / "t"), any_lake=True),
        ):
            with pytest.raises(InvalidRequest, match="not /"):
                ask()
    assert not (tmp_path / "t").exists()


def test_a_partitioned_table_is_created_as_it_was_asked_for(lake: DeltaLake, tmp_path: Path) -> None:
    schema = SCHEMA.replace("]}", ',{"name":"day","type":"string","nullable":true,"metadata":{}}]}')
    new = NewTable(schema_string=schema, partition_columns=("day",), properties={"delta.appendOnly": "true"})
    made = lake.owner.create_table("main", T, new, warehouse=str(tmp_path))
    lake.owner.publish_table("main", T)
    found = ForeignTable(made.location)
    assert found.metadata().partition_columns == ["day"]
    assert found.metadata().configuration["delta.appendOnly"] == "true"
