"""An erase that has ended is answered again as it was, for as long as nothing is deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import OutcomeUnknown
from penstock.lake.backup import backup_lake, forget_backups, registered_backups
from penstock.lake.lake import Lake
from tests.calls.gateway import Gateway, lost
from tests.erase.tables import MARKER, alone, people, where_is
from tests.erase.test_erase_delta import delete_by_vector, without_marker
from tests.remote.serving import serving


def delta(lake: Lake) -> None:
    without_marker(lake.create_table("t", data=people()))


def vectors(lake: Lake) -> None:
    table = lake.create_table("t", data=people(), properties={"delta.enableDeletionVectors": "true"})
    delete_by_vector(table, "file")


def of_lance(lake: Lake) -> None:
    lance.write_dataset(people(), namespace_client=lake.lance(), table_id=["t"], mode="create")
    lance.dataset(namespace_client=lake.lance(), table_id=["t"]).delete("id = 2")


def of_files(lake: Lake) -> None:
    lake.table("t").files.put("kept", b"kept", message="load")
    lake.table("t").files.put("gone", MARKER.encode(), message="load")
    lake.table("t").files.delete("gone", message="forget")


def delete_again(lake: Lake, kind: str) -> None:
    """Let the marker come and go once more."""
    if kind == "files":
        of_files(lake)
    elif kind == "lance":
        added = pa.table({"id": [9], "name": [MARKER]})
        lance.write_dataset(added, namespace_client=lake.lance(), table_id=["t"], mode="append")
        lance.dataset(namespace_client=lake.lance(), table_id=["t"]).delete("id = 9")
    else:
        lake.table("t").append(pa.table({"id": [9], "name": [MARKER]}))
        without_marker(lake.table("t"))


MAKE: dict[str, Callable[[Lake], None]] = {
    "delta": delta,
    "vectors": vectors,
    "lance": of_lance,
    "files": of_files,
}


@pytest.mark.parametrize("kind", MAKE)
def test_a_repeated_erase_gives_the_same_answer_until_something_is_deleted(
    lake: Lake, path: Path, tmp_path: Path, kind: str
) -> None:
    MAKE[kind](lake)
    lake.finish_background()
    lake.close()
    with alone(path) as other:
        first = other.erase("t")
        assert (first.finished, first.data_files > 0) == (True, True)
        head = other.branch().head
        assert other.erase("t") == first
    backup_lake(path, tmp_path / "backup")  # which has nothing of what was erased
    with alone(path) as other:
        other.branch("later").create()
        assert other.erase("t") == first
        assert other.branch().head == head, "nothing was committed"
        other.branch("later").delete()
    (known,) = registered_backups(path)
    forget_backups(path, known.id)
    with penstock.open(path) as other:
        delete_again(other, kind)
        other.finish_background()
    assert where_is(path)
    with alone(path) as other:
        second = other.erase("t")
        assert second.finished
        assert second.first_version > first.first_version
        assert where_is(path) == []


def test_the_numbers_of_an_erase_are_those_of_all_its_runs(lake: Lake, path: Path) -> None:
    delta(lake)
    lake.finish_background()
    waiting = lake.erase("t")
    assert (waiting.finished, waiting.data_files, waiting.log_files > 0) == (False, 0, True)
    lake.close()
    with alone(path) as other:
        ended = other.erase("t")
        assert (ended.finished, ended.data_files) == (True, 1)
        assert ended.log_files >= waiting.log_files
        assert other.erase("t") == ended


def test_rows_that_are_deleted_while_an_erase_begins_are_taken_by_the_next(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector that comes between the rewriting of files and the first version is in that version."""
    from penstock.formats.delta.lake.erase import DeltaErasure

    table = lake.create_table("t", data=people(), properties={"delta.enableDeletionVectors": "true"})
    rewrite = DeltaErasure.rewrite_files

    def racing(erasure: DeltaErasure) -> int:
        found = rewrite(erasure)
        if table.get_commits().latest_version == 0:
            delete_by_vector(table, "inline")
        return found

    monkeypatch.setattr(DeltaErasure, "rewrite_files", racing)
    with alone(path) as other:
        assert other.erase("t").finished
        assert where_is(path), "it was deleted too late for this one"
        assert other.erase("t").finished
        assert where_is(path) == []


def test_an_answer_that_is_lost_on_the_way_is_given_again(lake: Lake, path: Path) -> None:
    delta(lake)
    lake.finish_background()
    lake.close()
    with (
        alone(path) as other,
        serving(other.catalogue) as server,
        Gateway(server.port) as gateway,
        penstock.open(f"http://127.0.0.1:{gateway.port}") as far,
    ):
        with (
            gateway.spoiling("POST", "/api/penstock/v1/erase", lost),
            pytest.raises(OutcomeUnknown, match="repeating it is safe"),
        ):
            far.erase("t")
        assert where_is(path) == [], "it was done"
        answered = far.erase("t")
        assert (answered.finished, answered.data_files) == (True, 1), "what the first one removed"
        assert far.erase("t") == answered
