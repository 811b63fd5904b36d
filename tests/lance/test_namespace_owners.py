"""A Lance table is one lake's: who else knows of it reads it, until that lake lets go of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import lance
import pytest
from lance_namespace import DeregisterTableRequest, RegisterTableRequest
from lance_namespace.errors import InvalidTableStateError, TableAlreadyExistsError

import penstock
from penstock.errors import ManagedElsewhere
from penstock.formats.lance.lake.folder_notes import DeregisteredNote, note_intended, read_deregistered_note
from penstock.formats.lance.names import OWNER
from penstock.lake.copy import copy_lake
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from tests.lance.tables import ids_at, rows, written

WAIT_S = 30


def files(folder: str) -> set[str]:
    return {str(one.relative_to(folder)) for one in Path(folder).rglob("*") if one.is_file()}


# -- a fork of a lake --------------------------------------------------------------------------------------


@pytest.fixture
def fork(tmp_path: Path) -> Iterator[tuple[Lake, str]]:
    """A fork of a lake with a table that main and a branch have changed, and the table's folder."""
    with penstock.open(tmp_path / "source") as source:
        folder = written(source.lance(), "items", ids=[0, 1], mode="create").uri
        source.branch("dev").create()
        written(source.lance("dev"), "items", ids=[2])
        written(source.lance(), "items", ids=[3])
    copy_lake(tmp_path / "source", tmp_path / "fork")
    with penstock.open(tmp_path / "fork") as lake:
        yield lake, folder


def test_a_fork_reads_tables_and_writes_nothing_to_their_folders(fork: tuple[Lake, str]) -> None:
    lake, folder = fork
    before = files(folder)
    assert (ids_at(lake.lance(), "items"), ids_at(lake.lance("main~1"), "items")) == ([0, 1, 3], [0, 1])
    with pytest.raises(ManagedElsewhere, match="is read-only here"):
        lake.merge("dev")
    with pytest.raises(ManagedElsewhere, match="is read-only here"):
        lake.revert("main")
    with pytest.raises(InvalidTableStateError, match="is read-only here"):
        lake.lance().create_table_branch({"id": ["items"], "name": "own"})
    assert files(folder) == before
    assert ids_at(lake.lance(), "items") == [0, 1, 3]


def test_a_fork_may_drop_what_it_does_not_own(fork: tuple[Lake, str]) -> None:
    lake, folder = fork
    before = files(folder)
    lake.branch("less").create()
    lake.branch("less").drop("items")
    lake.merge("less")
    assert (lake.tables(), files(folder)) == ([], before)


def test_a_fork_that_drops_a_table_leaves_what_its_owner_noted(fork: tuple[Lake, str]) -> None:
    lake, folder = fork
    note_intended(lake.places.open_place(folder))
    for branch in ("dev", "main"):
        lake.branch(branch).drop("items")
    assert read_deregistered_note(lake.places.open_place(folder)) is DeregisteredNote.INTENDED


# -- letting go --------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Register an existing table before any lake knows it."""
    found = str(tmp_path / "shared" / "items.lance")
    lance.write_dataset(rows([0]), found)
    return found


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[tuple[Lake, Lake]]:
    roots = [str(tmp_path / "shared")]
    with penstock.open(tmp_path / "one") as one, penstock.open(tmp_path / "two") as two:
        for lake in (one, two):
            lake.add_root(*roots)
        yield one, two


def register(lake: Lake, place: str, key: str = "items") -> None:
    lake.lance().register_table(RegisterTableRequest(id=[key], location=place))


def deregister(lake: Lake, ref: str | None = None) -> None:
    lake.lance(ref).deregister_table(DeregisterTableRequest(id=["items"]))


def test_a_table_that_one_lake_has_is_registered_by_no_other(lakes: tuple[Lake, Lake], place: str) -> None:
    one, two = lakes
    register(one, place)
    with pytest.raises(InvalidTableStateError, match="belongs to lake"):
        register(two, place)
    assert two.tables() == []


def test_a_table_that_is_deregistered_goes_to_whoever_registers_it_next(
    lakes: tuple[Lake, Lake], place: str
) -> None:
    one, two = lakes
    for number, lake in enumerate((one, two, two, one), start=1):
        register(lake, place)
        written(lake.lance(), "items", ids=[number])
        deregister(lake)
    assert [one.tables(), two.tables()] == [[], []]
    register(two, place)
    assert ids_at(two.lance(), "items") == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidTableStateError, match="belongs to lake"):
        register(one, place)


def test_a_table_that_another_branch_has_is_kept_until_that_one_has_deregistered_it_too(
    lakes: tuple[Lake, Lake], place: str
) -> None:
    one, two = lakes
    register(one, place)
    one.branch("dev").create()
    deregister(one)
    with pytest.raises(InvalidTableStateError):
        register(two, place)
    written(one.lance("dev"), "items", ids=[1])
    deregister(one, "dev")
    register(two, place)
    assert ids_at(two.lance(), "items") == [0]


def test_a_table_is_let_go_when_a_merge_or_a_transaction_brings_it(
    lakes: tuple[Lake, Lake], place: str
) -> None:
    one, two = lakes
    register(one, place)
    with one.transaction() as transaction:
        transaction.lance.deregister_table(DeregisterTableRequest(id=["items"]))
        with pytest.raises(InvalidTableStateError):
            register(two, place)
    register(two, place)
    two.branch("dev").create()
    deregister(two, "dev")
    two.merge("dev")
    register(one, place)


def test_a_branch_of_a_time_before_cannot_be_written_once_another_lake_has_the_table(
    lakes: tuple[Lake, Lake], place: str
) -> None:
    one, two = lakes
    register(one, place)
    before = one.resolve()
    deregister(one)
    register(two, place)
    one.branch("old").create(before)
    assert ids_at(one.lance(before), "items") == [0]
    with pytest.raises(InvalidTableStateError, match="belongs to lake"):
        one.lance("old").create_table_tag({"id": ["items"], "tag": "mine", "version": 1})
    written(two.lance(), "items", ids=[1])
    assert ids_at(two.lance(), "items") == [0, 1]


def test_who_dies_before_letting_go_leaves_the_table_to_the_lake_which_can_register_it_again(
    lakes: tuple[Lake, Lake], place: str
) -> None:
    one, two = lakes
    register(one, place)
    note = Path(place, OWNER)
    left = note.read_bytes()
    deregister(one)
    note.write_bytes(left)  # as it is if the process dies after the commit has landed
    with pytest.raises(InvalidTableStateError, match="register it there, and deregister it again"):
        register(two, place)
    register(one, place)
    written(one.lance(), "items", ids=[1])
    deregister(one)
    register(two, place)
    assert ids_at(two.lance(), "items") == [0, 1]


def test_a_deregistration_that_is_asked_again_lets_go(lakes: tuple[Lake, Lake], place: str) -> None:
    one, two = lakes
    register(one, place)
    left = Path(place, OWNER).read_bytes()
    request = DeregisterTableRequest(id=["items"], context={"idempotency_key": "once"})
    one.lance().deregister_table(request)
    Path(place, OWNER).write_bytes(left)
    one.lance().deregister_table(request)
    register(two, place)


def test_a_registration_that_is_repeated_after_the_table_was_let_go_does_not_take_it(
    lakes: tuple[Lake, Lake], place: str
) -> None:
    one, two = lakes
    request = RegisterTableRequest(id=["items"], location=place, context={"idempotency_key": "once"})
    one.lance().register_table(request)
    deregister(one)
    one.lance().register_table(request)
    assert one.tables() == []
    register(two, place)


def test_a_registration_that_is_refused_leaves_the_table_to_others(
    lakes: tuple[Lake, Lake], place: str
) -> None:
    one, two = lakes
    written(one.lance(), "items", ids=[7], mode="create")
    with pytest.raises(TableAlreadyExistsError):
        register(one, place)
    register(two, place)


def test_a_registration_that_is_refused_keeps_the_note_of_a_table_that_came_meanwhile(
    lakes: tuple[Lake, Lake], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = lakes
    original = one.kernel.commit

    def commit(*given: Any, **named: Any) -> Any:
        register(same, place)  # the place is checked and noted by now
        return original(*given, **named)

    with penstock.open(tmp_path / "one") as same:
        monkeypatch.setattr(one.kernel, "commit", commit)
        with pytest.raises(TableAlreadyExistsError):
            register(one, place)
    assert Path(place, OWNER).exists()
    with pytest.raises(InvalidTableStateError, match="belongs to lake"):
        register(two, place)


def test_a_table_is_noted_that_comes_right_after_another_registration_of_it_was_refused(
    lakes: tuple[Lake, Lake], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went by the note that the other one has put there, and takes away."""
    one, two = lakes
    written(one.lance(), "taken", ids=[7], mode="create")
    checked, refused = Event(), Event()
    with penstock.open(tmp_path / "one") as same, ThreadPoolExecutor(1) as threads:
        first, second = one.kernel.commit, same.kernel.commit

        def commit(*given: Any, **named: Any) -> Any:
            later.append(threads.submit(register, same, place))
            assert checked.wait(WAIT_S)
            return first(*given, **named)

        def commit_later(*given: Any, **named: Any) -> Any:
            checked.set()
            assert refused.wait(WAIT_S)
            return second(*given, **named)

        later = list[Future[None]]()
        monkeypatch.setattr(one.kernel, "commit", commit)
        monkeypatch.setattr(same.kernel, "commit", commit_later)
        with pytest.raises(TableAlreadyExistsError):
            register(one, place, "taken")
        assert not Path(place, OWNER).exists()
        refused.set()
        later[0].result()
    with pytest.raises(InvalidTableStateError, match="belongs to lake"):
        register(two, place)


def test_what_is_let_go_has_all_of_its_versions_where_everybody_looks(
    lakes: tuple[Lake, Lake], place: str
) -> None:
    one, _ = lakes
    register(one, place)
    for number in (1, 2):
        written(one.lance(), "items", ids=[number])
    deregister(one)
    assert isinstance(one.catalogue, Embedded)
    assert lance.dataset(place).version == 3
    assert not Path(place, OWNER).exists()
