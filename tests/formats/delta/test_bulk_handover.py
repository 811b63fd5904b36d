"""Many tables come into a lake and go out of it by two commits, whatever is interrupted, whoever races."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

import penstock
from penstock.errors import InvalidRequest, LocationRefused, Unavailable
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase
from penstock.formats.delta.ownership.bulk_handover import HandoverOutcome, LocatedTable, TableHandover
from penstock.formats.delta.ownership.discovery import find_tables, name_table
from penstock.formats.delta.ownership.handover import Handover
from penstock.formats.delta.ownership.tables import TableRequest
from penstock.lake.lake import Lake
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.storage.places import Place
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import (
    DeltaLake,
    Died,
    foreign_append,
    foreign_ids,
    foreign_version,
    log_bytes,
    opened,
)
from tests.formats.delta.logs import Table, metadata, protocol

KEYS = ["a.first", "a.second", "b.c.third", "fourth"]
ASKED = TableRequest(CommitMeta(message="all of them"))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of four tables of the file system, and of what is none."""
    folder = tmp_path / "tables"
    for number, key in enumerate(KEYS):
        root = folder.joinpath(*key.split("."))
        root.parent.mkdir(parents=True, exist_ok=True)
        foreign_append(root, number)
    (folder / "_hidden").mkdir()
    foreign_append(folder / "_hidden" / "table", 99)
    (folder / "b" / "empty").mkdir()
    (folder / "notes.txt").write_text("none")
    return folder


def root_of(folder: Path, key: str) -> Path:
    return folder.joinpath(*key.split("."))


def located(lake: DeltaLake, folder: Path) -> list[LocatedTable]:
    found = find_tables(lake.places, str(folder))
    return [LocatedTable(location, name_table(location, str(folder))) for location in found]


def adopt(lake: DeltaLake, folder: Path, **how: Any) -> dict[str, TableHandover]:
    found = lake.owner.bulk_handover.adopt_tables(located(lake, folder), ASKED, **how)
    return {str(table.key): table for table in found}


def outcomes(found: dict[str, TableHandover]) -> dict[str, str]:
    return {key: str(table.outcome) for key, table in found.items()}


def messages(lake: DeltaLake) -> list[str]:
    """What the commits of the default branch say, oldest first."""
    found, commit = list[str](), lake.tables.find_head()
    while commit != NO_COMMIT:
        object_ = lake.kernel.history.read_commit(commit)
        found.append(object_.message)
        commit = object_.parent
    return found[::-1]


def files_below(folder: Path) -> set[tuple[str, int]]:
    return {(str(path), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


# -- in ----------------------------------------------------------------------------------------------------


def test_all_tables_below_a_folder_come_by_two_commits(store: MemoryStore, folder: Path) -> None:
    with opened(store) as lake:
        found = adopt(lake, folder)
        assert outcomes(found) == dict.fromkeys(KEYS, "adopted")
        assert {table.version for table in found.values()} == {1}
        assert messages(lake) == ["all of them", "4 tables are adopted"]
        for number, key in enumerate(KEYS):
            assert lake.line(key).phase is OwnershipPhase.OWNED
            assert lake.append(key).version == 2
            assert foreign_ids(root_of(folder, key)) == [number] or foreign_version(root_of(folder, key)) == 2


def test_the_same_again_changes_nothing(store: MemoryStore, folder: Path) -> None:
    with opened(store) as lake:
        adopt(lake, folder)
        before, head = files_below(folder), lake.tables.find_head()
        assert outcomes(adopt(lake, folder)) == dict.fromkeys(KEYS, "present")
        assert (files_below(folder), lake.tables.find_head()) == (before, head)
        foreign_append(folder / "new", 7)
        assert outcomes(adopt(lake, folder)) == {**dict.fromkeys(KEYS, "present"), "new": "adopted"}


def test_a_dry_run_tells_the_plan_and_writes_nothing(store: MemoryStore, folder: Path) -> None:
    with opened(store) as lake:
        head = lake.tables.find_head()
        Table(folder / "strange", lake.places).commit(0, protocol("geospatial"), metadata())
        before = files_below(folder)
        found = adopt(lake, folder, dry_run=True)
        assert outcomes(found) == {**dict.fromkeys(KEYS, "planned"), "strange": "refused"}
        assert found["strange"].features == ("geospatial",)
        assert "geospatial" in found["strange"].problem
        assert {found[key].version for key in KEYS} == {0}
        assert (files_below(folder), lake.tables.find_head()) == (before, head)


def test_what_cannot_be_adopted_does_not_stop_the_others(store: MemoryStore, folder: Path) -> None:
    with opened(store) as lake:
        (folder / "broken" / "_delta_log").mkdir(parents=True)
        (folder / "broken" / "_delta_log" / f"{0:020}.json").write_text("no json")
        deep = folder.joinpath(*"abcdefghijklmnopqrstuv")
        deep.mkdir(parents=True)
        foreign_append(deep, 1)
        tables = [
            LocatedTable(one, None, "too deep") if "/t/u/v" in one else LocatedTable(one, name)
            for one, name in (
                (one, name_or_none(one, folder)) for one in find_tables(lake.places, str(folder))
            )
        ]
        found = {table.location: table for table in lake.owner.bulk_handover.adopt_tables(tables, ASKED)}
        assert found[str(folder / "broken")].outcome is HandoverOutcome.REFUSED
        assert found[str(deep)].problem == "too deep"
        assert sum(one.outcome is HandoverOutcome.ADOPTED for one in found.values()) == len(KEYS)


def name_or_none(location: str, folder: Path) -> Key | None:
    try:
        return name_table(location, str(folder))
    except penstock.errors.InvalidKey:
        return None


def test_a_key_that_is_taken_stops_all_before_anything_is_written(store: MemoryStore, folder: Path) -> None:
    with opened(store) as lake:
        other = folder.parent / "other"
        foreign_append(other, 1)
        lake.owner.adopt_table(str(other), Key("a", "second"))
        above = folder.parent / "above"
        foreign_append(above, 1)
        lake.owner.adopt_table(str(above), Key("b"))
        before, head = files_below(folder), lake.tables.find_head()
        with pytest.raises(InvalidRequest, match="2 of 4 tables would get keys that are in use") as caught:
            adopt(lake, folder)
        assert caught.value.details["keys"] == ["a.second", "b.c.third"]
        assert "'b' is not a namespace" in caught.value.message
        assert (files_below(folder), lake.tables.find_head()) == (before, head)
        planned = adopt(lake, folder, dry_run=True)
        assert outcomes(planned)["a.second"] == outcomes(planned)["b.c.third"] == "collides"


def before_the_put_of(root: Path, action: Callable[[], object]) -> type[Handover]:
    """A handover in whose way something comes at one table, after the promise of all."""

    class Interrupted(Handover):
        def _put_conversion(self, place: Place, name: str, data: bytes) -> bool:
            if place.location == str(root):
                action()
            return super()._put_conversion(place, name, data)

    return Interrupted


def test_a_table_that_is_lost_to_another_writer_does_not_stop_the_others(
    store: MemoryStore, folder: Path
) -> None:
    root = root_of(folder, "a.second")
    handover = before_the_put_of(root, lambda: foreign_append(root, 50))
    with opened(store, handover=handover) as lake:
        found = adopt(lake, folder)
        assert outcomes(found) == {**dict.fromkeys(KEYS, "adopted"), "a.second": "lost"}
        assert "came first" in found["a.second"].problem
        assert not lake.has("a.second")
        assert messages(lake)[-1].startswith("3 tables are adopted; 1 tables are not adopted")
        assert foreign_ids(root) == [1, 50]
        lake.use(Handover)
        assert outcomes(adopt(lake, folder))["a.second"] == "adopted"


def test_storage_that_does_not_answer_leaves_a_table_for_the_next_run(
    store: MemoryStore, folder: Path
) -> None:
    def fail() -> None:
        raise Unavailable("storage is away", part="storage")

    with opened(store, handover=before_the_put_of(root_of(folder, "fourth"), fail)) as lake:
        found = adopt(lake, folder)
        assert outcomes(found) == {**dict.fromkeys(KEYS, "adopted"), "fourth": "unfinished"}
        again = adopt(lake, folder)
        assert (outcomes(again)["fourth"], again["fourth"].problem) == ("unfinished", "storage is away")
        lake.use(Handover)
        assert outcomes(adopt(lake, folder)) == dict.fromkeys(KEYS, "present")
        assert lake.line("fourth").phase is OwnershipPhase.OWNED


def dying_at(step: str, call: int, *, before: bool) -> type[Handover]:
    """A handover whose process dies at the n-th call of a step, and does nothing more."""
    calls, lock = itertools.count(1), threading.Lock()
    is_dead = threading.Event()

    class Dying(Handover):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if name != step:
                return found

            def die(*given: Any, **more: Any) -> Any:
                with lock:
                    if is_dead.is_set():
                        raise Died(step)
                    if next(calls) < call:
                        return found(*given, **more)
                    is_dead.set()
                    if not before:
                        found(*given, **more)
                    raise Died(step)

            return die

    return Dying


DEATHS = [
    *itertools.product(["open_place", "adopt_intent", "_put_conversion"], [1, 4], [True, False]),
    *itertools.product(["resolve_all"], [1, 2], [True, False]),
    *itertools.product(["_commit_settled"], [1], [True, False]),
]


@pytest.mark.parametrize(("step", "call", "before"), DEATHS)
def test_whoever_does_it_again_finishes_what_was_begun(
    store: MemoryStore, folder: Path, step: str, call: int, before: bool
) -> None:
    with opened(store, handover=dying_at(step, call, before=before)) as lake, pytest.raises(Died):
        adopt(lake, folder)
    with opened(store) as lake:
        found = adopt(lake, folder)
        assert set(outcomes(found).values()) <= {"adopted", "present"}
        for number, key in enumerate(KEYS):
            assert lake.line(key).phase is OwnershipPhase.OWNED
            assert foreign_version(root_of(folder, key)) == 1
            assert foreign_ids(root_of(folder, key)) == [number]
        assert len(messages(lake)) == 2


def test_others_who_meet_half_adopted_tables_do_not_get_in_the_way(store: MemoryStore, folder: Path) -> None:
    with opened(store) as other:
        overlaps = before_the_put_of(root_of(folder, "a.first"), other.owner.catch_up)
        with opened(store, handover=overlaps) as lake:
            assert outcomes(adopt(lake, folder)) == dict.fromkeys(KEYS, "adopted")
        assert all(other.line(key).phase is OwnershipPhase.OWNED for key in KEYS)


# -- out ---------------------------------------------------------------------------------------------------


def release(lake: DeltaLake, namespace: Key | None = None, **how: Any) -> dict[str, str]:
    found = lake.owner.bulk_handover.release_tables(namespace, ASKED, **how)
    return {str(table.key): str(table.outcome) for table in found}


def test_all_tables_go_back_by_two_commits(store: MemoryStore, folder: Path) -> None:
    with opened(store) as lake:
        adopt(lake, folder)
        assert release(lake, Key("a"), dry_run=True) == {"a.first": "planned", "a.second": "planned"}
        assert release(lake, Key("a")) == {"a.first": "released", "a.second": "released"}
        assert release(lake) == {"b.c.third": "released", "fourth": "released"}
        assert messages(lake)[2:] == [
            "all of them",
            "2 tables are released",
            "all of them",
            "2 tables are released",
        ]
        assert release(lake) == {}
        for key in KEYS:
            assert not lake.has(key)
            foreign_append(root_of(folder, key), 100)
            assert foreign_version(root_of(folder, key)) == 3


@pytest.mark.parametrize(
    ("step", "call", "before"),
    [
        *itertools.product(["release_intent", "_publish_line"], [1, 4], [True, False]),
        *itertools.product(["_commit_settled"], [1], [True, False]),
    ],
)
def test_whoever_releases_again_finishes_what_was_begun(
    store: MemoryStore, folder: Path, step: str, call: int, before: bool
) -> None:
    with opened(store) as lake:
        adopt(lake, folder)
    with opened(store, handover=dying_at(step, call, before=before)) as lake, pytest.raises(Died):
        release(lake)
    with opened(store) as lake:
        release(lake)
        assert not any(lake.has(key) for key in KEYS)
        assert len(messages(lake)) == 4
        for number, key in enumerate(KEYS):
            assert foreign_version(root_of(folder, key)) == 2
            assert foreign_ids(root_of(folder, key)) == [number]


def test_a_table_that_somebody_writes_to_is_released_with_what_they_wrote(
    store: MemoryStore, folder: Path
) -> None:
    with opened(store) as lake:
        adopt(lake, folder)
        once = iter([True])

        class Overtaken(Handover):
            def release_intent(self, line: Any) -> Any:
                found = super().release_intent(line)
                if next(once, False):
                    lake.append("fourth")
                return found

        lake.use(Overtaken)
        assert release(lake) == dict.fromkeys(KEYS, "released")
        assert foreign_version(root_of(folder, "fourth")) == 3
        assert foreign_version(root_of(folder, "a.first")) == 2


def test_a_table_whose_log_has_more_than_the_lake_knows_is_not_released(
    store: MemoryStore, folder: Path
) -> None:
    with opened(store) as lake:
        adopt(lake, folder)
    root = root_of(folder, "fourth")
    (root / "_delta_log" / f"{2:020}.json").write_bytes(log_bytes(root, 1) or b"")
    with opened(store) as lake:
        assert release(lake) == {**dict.fromkeys(KEYS, "released"), "fourth": "refused"}
        assert lake.has("fourth")


# -- for programs ------------------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path / "tables"))
        yield lake


def test_a_program_adopts_and_releases_all_and_hears_how_far_it_is(whole: Lake, folder: Path) -> None:
    said = list[str]()
    plan = whole.delta.adopt_all(folder, namespace="raw", dry_run=True)
    assert [str(table.key) for table in plan.tables] == [f"raw.{key}" for key in KEYS]
    done = whole.delta.adopt_all(
        folder, namespace="raw", message="take all", progress=lambda what, _: said.append(what)
    )
    assert {table.outcome for table in done.tables} == {"adopted"}
    assert {"looking through folders", "reading logs", "finishing tables"} <= set(said)
    assert [commit.message for commit in whole.log(limit=2)] == ["4 tables are adopted", "take all"]
    table = whole.table("raw.a.first")
    table.append(pa.table({"id": [5]}))
    back = whole.delta.release_all("raw")
    assert {one.outcome for one in back.tables} == {"released"}
    assert foreign_ids(root_of(folder, "a.first")) == [0, 5]


def test_a_folder_outside_of_the_roots_is_refused(whole: Lake, tmp_path: Path) -> None:
    with pytest.raises(LocationRefused, match="outside the lake's roots"):
        whole.delta.adopt_all(tmp_path)


def test_a_folder_that_is_a_table_is_called_by_its_last_part(whole: Lake, folder: Path) -> None:
    (table,) = whole.delta.adopt_all(folder / "fourth").tables
    assert (str(table.key), table.outcome) == ("fourth", "adopted")


def test_tables_of_other_branches_and_formats_keep_their_places(whole: Lake, tmp_path: Path) -> None:
    root = tmp_path / "tables" / "one"
    root.parent.mkdir()
    write_deltalake(root, pa.table({"id": [1]}))
    write_deltalake(root / "inner" / "table", pa.table({"id": [1]}))
    whole.delta.adopt(root, "one")
    found = whole.delta.adopt_all(tmp_path / "tables" / "one" / "inner")
    (table,) = found.tables
    assert (table.key, table.outcome) == (None, "refused")
    assert "is inside or above the folder of another table" in table.problem
