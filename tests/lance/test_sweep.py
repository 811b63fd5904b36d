"""The sweep of Lance tables: what nothing needs goes, and every version that anybody can read stays."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import lance_namespace as spec
import pytest
from lance.fragment import write_fragments
from lance_namespace_urllib3_client.models.version_range import VersionRange

import penstock
from penstock.errors import PenstockError
from penstock.formats.lance.lake import sweep
from penstock.formats.lance.lake.calls import GetLanceTable
from penstock.formats.lance.lake.retained_tables import RetainedTables
from penstock.kernel.settings import Settings
from penstock.lake.answers import SweptTable
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Delete, Put
from tests.lance.tables import ids_at, ids_of, opened, rows, written
from tests.sweep.tables import LateClock

OLD_DAYS = 8
PATIENT = Settings(promote_wait_s=60.0)
"""A commit is answered when its versions are promoted, so that no reader is sent to a file beside them."""


@pytest.fixture
def clock() -> LateClock:
    return LateClock()


@pytest.fixture
def lake(tmp_path: Path, clock: LateClock) -> Iterator[Lake]:
    with penstock.open(
        tmp_path / "lake", create=True, author="tester", clock=clock, settings=PATIENT
    ) as lake:
        yield lake


def place_of(lake: Lake, key: str, ref: str | None = None) -> Path:
    """Where a table is, once nothing is put there or removed any more for what was committed."""
    lake.finish_background()
    return Path(lake.do(GetLanceTable(key=Key.parse(key), at=ref)).location)


def files(place: Path, folder: str = "") -> set[str]:
    """The files of a table, without what Penstock and Lance note beside them."""
    found = {str(one.relative_to(place)) for one in place.rglob("*") if one.is_file()}
    noted = ("_penstock/.", "_penstock/owner.json", "_penstock/deregistered")
    return {
        one for one in found if one.startswith(folder) and not one.startswith(noted) and "hint" not in one
    }


def swept(lake: Lake, **how: Any) -> SweptTable:
    lake.finish_background()
    (one,) = lake.sweep_tables(remove_data=True, **how)
    assert one.problem == "", one.problem
    return one


def orphan(place: Path, *ids: int, days: float = 0.0) -> str:
    """A data file that a writer left; its name."""
    before = files(place, "data/")
    write_fragments(rows(ids or (99,)), str(place), mode="append")
    (name,) = files(place, "data/") - before
    written_s = (place / name).stat().st_mtime - days * 86_400
    os.utime(place / name, (written_s, written_s))
    return name


def expire(lake: Lake, clock: LateClock) -> None:
    """Let history be as short as it can be: what the references are at, and nothing else."""
    lake.keep_history(max_commits=1)
    clock.days += 100
    lake.sweep()


# -- one table ---------------------------------------------------------------------------------------------


def test_a_file_that_no_version_names_goes_when_it_is_old(lake: Lake, clock: LateClock) -> None:
    namespace = lake.lance()
    written(namespace, "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    kept = files(place)
    left = orphan(place)
    young = swept(lake)
    assert (young.waiting, young.data_files) == (1, 0)
    clock.days = OLD_DAYS
    assert swept(lake, dry_run=True).names == (left,)
    assert (place / left).exists()
    (counted,) = lake.sweep_tables()
    assert (counted.data_files, counted.data_removed) == (1, False)
    assert swept(lake).names == (left,)
    assert files(place) == kept
    assert ids_at(namespace, "a") == [1]


def test_all_that_versions_are_made_of_stays(lake: Lake, clock: LateClock) -> None:
    namespace = lake.lance()
    dataset = written(namespace, "a", ids=range(50), mode="create")
    dataset.delete("id < 5")
    dataset.create_scalar_index("id", "BTREE")
    written(namespace, "a", ids=[50])
    opened(namespace, "a").add_columns({"y": "id * 2"})
    opened(namespace, "a").optimize.compact_files()
    numbers = [one.version for one in namespace.list_versions(Key("a"), None)]
    before, kept = [ids_at(namespace, "a", version=one) for one in numbers], files(place_of(lake, "a"))
    clock.days = OLD_DAYS
    assert swept(lake).data_files == 0
    assert files(place_of(lake, "a")) == kept
    assert [ids_at(namespace, "a", version=one) for one in numbers] == before
    assert ids_of_filter(namespace) == [7]


def ids_of_filter(namespace: Any) -> list[int]:
    found: list[int] = opened(namespace, "a").to_table(filter="id = 7")["id"].to_pylist()
    return found


def test_deleted_versions_go_once_no_kept_commit_has_them(lake: Lake, clock: LateClock) -> None:
    namespace = lake.lance()
    written(namespace, "a", ids=[1], mode="create")
    written(namespace, "a", ids=[2], mode="overwrite")
    place = place_of(lake, "a")
    namespace.batch_delete_table_versions(
        spec.BatchDeleteTableVersionsRequest(id=["a"], ranges=[VersionRange(start_version=1, end_version=2)])
    )
    clock.days = OLD_DAYS
    assert swept(lake).data_files == 0  # an older commit has the version
    expire(lake, clock)
    assert swept(lake).data_files == 2
    assert len(files(place, "data/")) == len(files(place, "_versions/")) == 1
    assert ids_at(namespace, "a") == [2]


def test_a_manifest_that_never_became_a_version_goes(lake: Lake, clock: LateClock) -> None:
    namespace = lake.lance()
    written(namespace, "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    kept = files(place)
    shutil.copy(
        place / "_versions/18446744073709551614.manifest", place / "_versions/18446744073709551613.manifest-0"
    )
    (place / "_staging/dead").mkdir(parents=True)
    shutil.copy(place / "_versions/18446744073709551614.manifest", place / "_staging/dead/1.manifest")
    (place / "_transactions/9-0.txn").write_bytes(b"?")
    clock.days = OLD_DAYS
    done = swept(lake)
    assert (done.scratch_files, done.data_files) == (3, 0)
    assert files(place) == kept


def test_versions_that_somebody_put_there_without_the_lake_stay(lake: Lake, clock: LateClock) -> None:
    namespace = lake.lance()
    written(namespace, "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    lance.write_dataset(rows([2]), str(place), mode="append")
    clock.days = OLD_DAYS
    assert swept(lake).data_files == 0
    assert ids_of(lance.dataset(str(place))) == [1, 2]
    assert ids_at(namespace, "a") == [1]


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_versions_that_somebody_put_into_a_line_without_the_lake_stay(
    lake: Lake, clock: LateClock, ahead: int
) -> None:
    """Also where the default branch has versions of these numbers by now."""
    written(lake.lance(), "a", ids=[1], mode="create")
    lake.branch("dev").create()
    line = opened(lake.lance("dev"), "a").uri
    for number in range(ahead):
        written(lake.lance(), "a", ids=[10 + number])
    lance.write_dataset(rows([2]), line, mode="append")
    clock.days = OLD_DAYS
    assert swept(lake).data_files == 0
    assert ids_of(lance.dataset(line)) == [1, 2]
    assert ids_at(lake.lance("dev"), "a") == [1]


def test_branches_that_lance_made_without_the_lake_stay_until_lance_has_dropped_them(
    lake: Lake, clock: LateClock
) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    theirs = lance.dataset(str(place)).create_branch("theirs")
    lance.write_dataset(rows([2]), theirs.uri, mode="append")
    clock.days = OLD_DAYS
    assert swept(lake).data_files == 0
    assert ids_of(lance.dataset(theirs.uri)) == [1, 2]
    (place / "_refs/branches/theirs.json").unlink()
    gone = swept(lake)
    assert gone.data_files > 0
    assert not files(place, "tree/theirs/data/")
    assert ids_at(lake.lance(), "a") == [1]


def test_all_that_lance_lists_of_a_registered_table_stays(
    lake: Lake, clock: LateClock, tmp_path: Path
) -> None:
    place = tmp_path / "lake/warehouse/old/a.lance"
    for number in range(3):
        lance.write_dataset(rows([number]), str(place), mode="create" if not number else "overwrite")
    lake.import_lance(place.parent)
    namespace = lake.lance()
    written(namespace, "a", ids=[3])
    namespace.batch_delete_table_versions(
        spec.BatchDeleteTableVersionsRequest(id=["a"], ranges=[VersionRange(start_version=1, end_version=2)])
    )
    left = orphan(place)
    clock.days = OLD_DAYS
    expire(lake, clock)
    assert swept(lake).names == (left,)
    assert ids_of(lance.dataset(str(place), version=1)) == [0]
    assert ids_of(lance.dataset(str(place))) == [2, 3]


def test_versions_that_lance_cleaned_up_name_nothing(lake: Lake, clock: LateClock) -> None:
    namespace = lake.lance()
    written(namespace, "a", ids=[1], mode="create")
    written(namespace, "a", ids=[2], mode="overwrite")
    place = place_of(lake, "a")
    (place / "_versions/18446744073709551614.manifest").unlink()
    clock.days = OLD_DAYS
    done = swept(lake)
    assert (done.data_files, len(files(place, "data/"))) == (1, 1)
    assert ids_at(namespace, "a") == [2]


# -- what cannot be read -----------------------------------------------------------------------------------


def test_if_a_manifest_is_another_one_nothing_goes(lake: Lake, clock: LateClock) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    written(lake.lance(), "b", ids=[1], mode="create")
    place, sound = place_of(lake, "a"), place_of(lake, "b")
    left, other = orphan(place), orphan(sound)
    (place / "_versions/18446744073709551614.manifest").write_bytes(b"no manifest at all")
    clock.days = OLD_DAYS
    found = {str(one.key): one for one in lake.sweep_tables(remove_data=True)}
    assert "differs from the committed one" in found["a"].problem
    assert (place / left).exists()
    assert not (sound / other).exists()


def test_if_the_newest_version_is_gone_nothing_goes(lake: Lake, clock: LateClock) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    left = orphan(place)
    (place / "_versions/18446744073709551614.manifest").unlink()
    clock.days = OLD_DAYS
    (done,) = lake.sweep_tables(remove_data=True)
    assert "newest version" in done.problem
    assert (place / left).exists()


def test_if_a_version_that_others_put_there_cannot_be_read_nothing_goes(lake: Lake, clock: LateClock) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    left = orphan(place)
    (place / "_versions/18446744073709551613.manifest").write_bytes(b"no manifest at all")
    clock.days = OLD_DAYS
    (done,) = lake.sweep_tables(remove_data=True)
    assert done.problem.startswith("_versions/18446744073709551613.manifest of the Lance table 'a'")
    assert (place / left).exists()


def test_a_table_that_another_lake_owns_is_left_to_it(lake: Lake, clock: LateClock) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    left = orphan(place)
    note = place / "_penstock/owner.json"
    note.write_text(note.read_text().replace(lake.about.id, "another"))
    clock.days = OLD_DAYS
    (done,) = lake.sweep_tables(remove_data=True)
    assert "belongs to lake another" in done.problem
    assert (place / left).exists()


# -- branches, transactions, drops -------------------------------------------------------------------------


def test_the_line_of_a_branch_stays_while_anything_names_it(lake: Lake, clock: LateClock) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    lake.branch("dev").create()
    written(lake.lance("dev"), "a", ids=[2])
    written(lake.lance(), "a", ids=[3])
    lake.merge("dev", "main")
    clock.days = OLD_DAYS
    swept(lake)
    assert (ids_at(lake.lance(), "a"), ids_at(lake.lance("dev"), "a")) == ([1, 2, 3], [1, 2])
    lake.branch("dev").delete()
    clock.days = 200
    expire(lake, clock)
    swept(lake)
    assert ids_at(lake.lance(), "a") == [1, 2, 3]
    place = place_of(lake, "a")
    assert len(files(place, "_penstock/")) == 1, (
        "the data that main took over is all that is left of the line"
    )


def test_a_line_that_nobody_wrote_to_stays_while_its_branch_would_use_it(
    lake: Lake, clock: LateClock
) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    lake.branch("dev").create()
    assert ids_at(lake.lance("dev"), "a") == [1]
    place = place_of(lake, "a")
    assert files(place, "_penstock/")
    clock.days = OLD_DAYS
    swept(lake)
    assert files(place, "_penstock/")
    lake.branch("dev").delete()
    clock.days = 200
    swept(lake)
    assert not files(place, "_penstock/")


def test_what_an_open_transaction_wrote_stays_and_what_an_aborted_one_wrote_goes(
    lake: Lake, clock: LateClock
) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    kept = files(place)
    transaction = lake.transaction()
    written(transaction.lance, "a", ids=[2])
    for name in files(place) - kept:
        os.utime(place / name, (0, 0))  # as if the writer had taken for ever
    assert swept(lake).data_files == 0
    assert ids_at(transaction.lance, "a") == [1, 2]
    transaction.abort()
    clock.days = 30
    expire(lake, clock)
    swept(lake)
    assert files(place) == kept | {"_refs/tags/penstock-1.json"}  # it was pinned for the transaction


@pytest.mark.parametrize("held", [sweep.FILES_MAX, 2], ids=["held in memory", "listed again and again"])
def test_a_dropped_table_goes_as_a_whole_once_no_kept_commit_has_it(
    lake: Lake, clock: LateClock, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "FILES_MAX", held)
    namespace = lake.lance()
    for name in ("a", "b"):
        written(namespace, name, ids=[1], mode="create")
    dropped, other = place_of(lake, "a"), place_of(lake, "b")
    namespace.drop_table(spec.DropTableRequest(id=["a"]))
    clock.days = OLD_DAYS
    lake.sweep_tables(remove_data=True)
    kept = files(dropped)
    assert kept
    expire(lake, clock)
    young = dropped / "data/young.lance"
    young.touch()
    written_s = clock() / 1e6
    os.utime(young, (written_s, written_s))
    lake.sweep_tables(remove_data=True)
    assert files(dropped) == kept | {"data/young.lance"}
    young.unlink()
    lake.sweep_tables(remove_data=True)
    assert not dropped.exists() or not any(one.is_file() for one in dropped.rglob("*"))
    assert files(other)
    assert ids_at(namespace, "b") == [1]


def test_a_deregistered_table_stays_for_good(lake: Lake, clock: LateClock) -> None:
    namespace = lake.lance()
    for name in ("a", "b"):
        written(namespace, name, ids=[1], mode="create")
    place = place_of(lake, "a")
    namespace.deregister_table(spec.DeregisterTableRequest(id=["a"]))
    lake.finish_background()
    kept = files(place)
    clock.days = OLD_DAYS
    expire(lake, clock)
    lake.sweep_tables(remove_data=True)
    assert files(place) == kept
    assert ids_of(lance.dataset(str(place))) == [1]


def test_files_that_nothing_names_go_if_their_table_was_dropped_and_stay_if_it_was_deregistered(
    lake: Lake, clock: LateClock
) -> None:
    """While kept commits still have it."""
    namespace = lake.lance()
    for name in ("dropped", "deregistered"):
        written(namespace, name, ids=[1], mode="create")
    places = {name: place_of(lake, name) for name in ("dropped", "deregistered")}
    kept = lake.resolve("main")
    namespace.drop_table(spec.DropTableRequest(id=["dropped"]))
    namespace.deregister_table(spec.DeregisterTableRequest(id=["deregistered"]))
    lake.finish_background()
    left = {name: orphan(place) for name, place in places.items()}
    clock.days = OLD_DAYS
    lake.sweep_tables(remove_data=True)
    assert not (places["dropped"] / left["dropped"]).exists()
    assert (places["deregistered"] / left["deregistered"]).exists()
    assert [ids_at(lake.lance(kept), name) for name in places] == [[1], [1]]


def test_a_table_whose_transaction_never_landed_goes_as_a_whole(lake: Lake, clock: LateClock) -> None:
    written(lake.lance(), "b", ids=[1], mode="create")
    transaction = lake.transaction()
    written(transaction.lance, "a", ids=[1], mode="create")
    place = place_of(lake, "a", transaction.branch)
    transaction.abort()
    lake.sweep_tables(remove_data=True)
    assert files(place)
    clock.days = 30
    lake.sweep()
    lake.sweep_tables(remove_data=True)
    assert not place.exists() or not files(place)


def test_files_of_a_table_stay_that_a_clone_of_it_names(lake: Lake, clock: LateClock, tmp_path: Path) -> None:
    namespace = lake.lance()
    written(namespace, "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    clone = tmp_path / "lake/warehouse/clones/b.lance"
    lance.dataset(str(place)).shallow_clone(str(clone), 1)
    lake.import_lance(clone.parent)
    written(namespace, "a", ids=[2], mode="overwrite")
    namespace.drop_table(spec.DropTableRequest(id=["a"]))
    clock.days = OLD_DAYS
    expire(lake, clock)
    lake.sweep_tables(remove_data=True)
    assert ids_at(namespace, "b") == [1]
    assert len(files(place, "data/")) == 1


@pytest.mark.parametrize("is_dropped", [False, True])
def test_nothing_goes_from_a_folder_that_another_table_points_into(
    lake: Lake, clock: LateClock, is_dropped: bool
) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    lake.commit([Put(Key("b"), IcebergTable(metadata_location=f"{place}/data/b.json"))])
    left = orphan(place, days=OLD_DAYS)
    (place / "data/b.json").write_bytes(b"{}")
    if is_dropped:
        lake.lance().drop_table(spec.DropTableRequest(id=["a"]))
    before = files(place)
    expire(lake, clock)
    problems = [one.problem for one in lake.sweep_tables(remove_data=True)]
    assert files(place) == before
    assert all("is also the location of another table" in problem for problem in problems)
    assert len(problems) == (0 if is_dropped else 1)
    lake.commit([Delete(Key("b"))])
    expire(lake, clock)
    lake.sweep_tables(remove_data=True)
    assert left not in files(place)


@pytest.mark.parametrize("is_dropped", [False, True])
def test_files_stay_while_it_cannot_be_read_whether_a_clone_names_them(
    lake: Lake, clock: LateClock, tmp_path: Path, is_dropped: bool
) -> None:
    namespace = lake.lance()
    written(namespace, "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    clone = tmp_path / "lake/warehouse/clones/b.lance"
    lance.dataset(str(place)).shallow_clone(str(clone), 1)
    lake.import_lance(clone.parent)
    written(namespace, "a", ids=[2], mode="overwrite")
    if is_dropped:
        namespace.drop_table(spec.DropTableRequest(id=["a"]))
    lake.finish_background()
    clock.days = OLD_DAYS
    expire(lake, clock)
    (manifest,) = (clone / "_versions").glob("*.manifest")
    away = manifest.rename(tmp_path / "away")
    manifest.write_bytes(b"not a manifest")
    problems = {str(one.key): one.problem for one in lake.sweep_tables(remove_data=True)}
    assert "manifest" in problems.pop("b")
    assert all("may share files with the one at" in problem for problem in problems.values())
    assert problems
    away.replace(manifest)
    lake.sweep_tables(remove_data=True)
    assert ids_at(namespace, "b") == [1]


# -- while others go on ------------------------------------------------------------------------------------


@pytest.fixture
def stepping(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have something done right before the first look at what is named, the second one, and so on."""

    def stepping(*steps: Callable[[], object]) -> None:
        waiting = iter(steps)

        class Stepping(RetainedTables):
            def read_new_commits(self) -> None:
                next(waiting, lambda: None)()
                super().read_new_commits()

        monkeypatch.setattr(sweep, "RetainedTables", Stepping)

    return stepping


def commit_old(lake: Lake, ref: str | None, fragments: Any) -> None:
    """Commit fragments whose files were written longer ago than they may be."""
    dataset = opened(lake.lance(ref), "a")
    lance.LanceDataset.commit(
        dataset,
        lance.LanceOperation.Append(fragments),
        read_version=dataset.version,
        namespace_client=lake.lance(ref),
        table_id=["a"],
        namespace_client_managed_versioning=True,
    )


def old_fragments(place: Path, *ids: int) -> Any:
    before = files(place, "data/")
    found = write_fragments(rows(ids), str(place), mode="append")
    for name in files(place, "data/") - before:
        os.utime(place / name, (0, 0))
    return found


@pytest.mark.parametrize("number", [0, 1], ids=["before-the-listing", "before-the-removal"])
def test_an_old_file_that_is_committed_meanwhile_stays(
    lake: Lake, stepping: Callable[..., None], number: int
) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    late, left = old_fragments(place, 2), orphan(place, days=30)
    steps: list[Callable[[], object]] = [lambda: None, lambda: None]
    steps[number] = lambda: commit_old(lake, None, late)
    stepping(*steps)
    assert swept(lake).names == (left,)
    assert ids_at(lake.lance(), "a") == [1, 2]


def test_an_old_file_that_is_committed_meanwhile_without_the_lake_stays(
    lake: Lake, stepping: Callable[..., None]
) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    late, left = old_fragments(place, 2), orphan(place, days=30)
    append = lance.LanceOperation.Append(late)
    stepping(lambda: None, lambda: lance.LanceDataset.commit(str(place), append, read_version=1))
    assert swept(lake).names == (left,)
    assert ids_of(lance.dataset(str(place))) == [1, 2]


def test_an_old_file_that_a_transaction_takes_meanwhile_stays(
    lake: Lake, stepping: Callable[..., None]
) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    late = old_fragments(place, 2)
    orphan(place, days=30)
    transaction = lake.transaction()
    stepping(lambda: None, lambda: commit_old(lake, transaction.branch, late))
    assert swept(lake).data_files == 1
    transaction.land()
    assert ids_at(lake.lance(), "a") == [1, 2]


def test_a_branch_that_is_merged_and_deleted_meanwhile_loses_nothing(
    lake: Lake, stepping: Callable[..., None]
) -> None:
    written(lake.lance(), "a", ids=[1], mode="create")
    place = place_of(lake, "a")
    lake.branch("dev").create()
    written(lake.lance("dev"), "a", ids=[2])
    for name in files(place):
        os.utime(place / name, (0, 0))
    orphan(place, days=30)

    def step() -> None:
        lake.merge("dev", "main")
        lake.branch("dev").delete()

    stepping(lambda: None, step)
    assert swept(lake).data_files == 1
    assert ids_at(lake.lance(), "a") == [1, 2]


# -- whatever happens --------------------------------------------------------------------------------------

KEYS = ("a", "b")
STEPS = 20


class Story:
    """A lake to which random things happen. Every file looks older than the grace time at once."""

    def __init__(self, lake: Lake, drawn: random.Random) -> None:
        self.lake, self.drawn = lake, drawn
        self.number, self.removed = 0, 0
        self.left: set[Path] = set()

    def next(self) -> None:
        steps = {
            self.write: 10,
            self.delete_rows: 3,
            self.branch: 3,
            self.merge: 4,
            self.abandon: 4,
            self.transact: 4,
            self.drop: 1,
            self.delete_branch: 1,
            self.expire: 1,
            self.sweep: 4,
        }
        (step,) = self.drawn.choices([*steps], [*steps.values()])
        if step == self.sweep:
            step()
        else:
            with suppress(PenstockError, spec.LanceNamespaceError, OSError):
                step()

    def any_branch(self) -> str:
        return self.drawn.choice(self.lake.branches()).name

    def write(self, ref: str | None = None) -> None:
        self.number += 1
        ref, key = ref or self.any_branch(), self.drawn.choice(KEYS)
        is_there = self.lake.at(ref).get(key) is not None
        mode = self.drawn.choice(("append", "append", "overwrite")) if is_there else "create"
        written(self.lake.lance(ref), key, ids=[self.number], mode=mode)

    def delete_rows(self) -> None:
        opened(self.lake.lance(self.any_branch()), self.drawn.choice(KEYS)).delete(
            f"id % 3 = {self.number % 3}"
        )

    def branch(self) -> None:
        if len(self.lake.branches()) < 4:
            self.number += 1
            self.lake.branch(f"b{self.number}").create(at=self.any_branch())

    def merge(self) -> None:
        self.lake.merge(self.any_branch(), self.any_branch())

    def abandon(self) -> None:
        place = place_of(self.lake, self.drawn.choice(KEYS), self.any_branch())
        self.left.add(place / orphan(place))

    def transact(self) -> None:
        transaction = self.lake.transaction(self.any_branch())
        self.write(transaction.branch)
        if self.drawn.random() < 0.3:
            self.sweep()
        transaction.land() if self.drawn.random() < 0.7 else transaction.abort()

    def drop(self) -> None:
        self.lake.branch(self.any_branch()).commit([Delete(Key(self.drawn.choice(KEYS)))])

    def delete_branch(self) -> None:
        if (name := self.any_branch()) != "main":
            self.lake.branch(name).delete()

    def expire(self) -> None:
        self.lake.keep_history(max_commits=self.drawn.randint(1, 5))
        self.lake.sweep()

    def sweep(self) -> None:
        before = self.read()
        for one in self.lake.sweep_tables(remove_data=True):
            assert one.problem == "", one.problem
            self.removed += one.data_files
        assert self.read() == before
        assert not [one for one in self.left if one.exists()]
        self.left.clear()

    def named(self) -> set[str]:
        """The data files that Lance itself finds in the versions of the default branch."""
        return {
            Path(file.path).name
            for _, key, version in self.read()
            for fragment in opened(self.lake.lance(), key, version=version).get_fragments()
            for file in fragment.data_files()
        }

    def read(self) -> dict[tuple[str, str, int], list[int]]:
        """All that can be read, of every version that any branch has."""
        found = {}
        for branch in self.lake.branches():
            namespace = self.lake.lance(branch.name)
            for key in KEYS:
                if self.lake.at(branch.name).get(key) is None:
                    continue
                for one in namespace.list_versions(Key(key), None, limit=None):
                    at = branch.name, key, one.version
                    found[at] = ids_at(namespace, key, version=one.version)
        return found


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_all_that_branches_have_can_be_read_and_nothing_else_is_left(
    tmp_path: Path, clock: LateClock, seed: int
) -> None:
    clock.days = 1
    settings = Settings(data_grace_days=0.5, grace_s=0.0, nobody_writes=True)
    with penstock.open(
        tmp_path / "lake", create=True, author="tester", clock=clock, settings=settings
    ) as lake:
        story = Story(lake, random.Random(seed))
        for _ in range(STEPS):
            story.next()
        for branch in lake.branches():
            if branch.name != "main":
                branch.delete()
        lake.keep_history(max_commits=1)
        clock.days = 400
        lake.sweep()
        story.sweep()
        assert story.removed
        there = {one.name for one in (tmp_path / "lake/warehouse").rglob("data/*.lance")}
        assert there == story.named(), "nothing else is left"
        assert lake.fsck().damages == ()
