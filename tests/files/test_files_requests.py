"""What a writer asks of a table of files: known again when it is asked again, and refused when it is odd."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from penstock.errors import CommitConflict, IdempotencyKeyReused, InvalidRequest, KeyNotFound
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake import pending_changes as files_pending_changes
from penstock.formats.files.lake.calls import NewFile, WriteFiles
from penstock.formats.files.lake.pending_changes import write_file_list
from penstock.formats.files.lake.pool import find_pool
from penstock.lake.lake import Lake
from penstock.model.clock import now_us
from penstock.model.keys import Key

KEY = Key("raw", "events")


# -- more files than fit into a request --------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request takes no more than three."""
    monkeypatch.setattr(files_pending_changes, "SENT_MAX", 3)


@pytest.mark.usefixtures("few")
def test_many_files_that_are_written_again_under_a_key_are_written_once(lake: Lake) -> None:
    files, many = lake.table(KEY).files, {f"part-{number}": str(number) for number in range(12)}
    first = files.write(many, idempotency_key="k")
    assert files.write(many, idempotency_key="k").commit == first.commit
    with pytest.raises(IdempotencyKeyReused):
        files.write(many | {"part-7": "other"}, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused):
        files.write(many | {"more": "1"}, idempotency_key="k")
    assert (len(lake.log()), files.read("part-7")) == (1, b"7")


def listed(lake: Lake, *new: NewFile) -> WriteFiles:
    """A commit of files that are named by a list, as a writer sends it."""
    folder = make_folder_name(lake.id, uuid4(), now_us())
    place = lake.places.open_place(find_pool(lake.warehouse))
    return WriteFiles(key=KEY, folder=folder, added=write_file_list(place, folder, new), idempotency_key="k")


def test_a_list_that_names_other_files_than_it_says_is_refused(lake: Lake) -> None:
    one = NewFile(path="x", size=1, checksum=f"sha256:{'0' * 64}")
    true, other = listed(lake, one), listed(lake, msgspec.structs.replace(one, size=2))
    ours: Any = true.added
    theirs: Any = other.added
    false = msgspec.structs.replace(true, added=msgspec.structs.replace(ours, files=theirs.files))
    with pytest.raises(InvalidRequest, match="names other files"):
        lake.do(false)
    lake.do(true)
    assert [file.path for file in lake.table(KEY).files.list()] == ["x"]


def test_files_that_are_not_known_by_their_bytes_are_the_same_request_only_where_they_lie(own: Lake) -> None:
    call = listed(own, NewFile(path="x", size=1, checksum="etag:1"))
    first = own.do(call)
    assert own.do(call).commit == first.commit
    with pytest.raises(IdempotencyKeyReused):
        own.do(listed(own, NewFile(path="x", size=1, checksum="etag:1")))


# -- what is odd -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("day", ["99999999", "xxxxxxxx", "20260230", "2026 1 1"])
def test_a_folder_of_no_day_is_refused(lake: Lake, day: str) -> None:
    folder = f"{day}-{make_folder_name(lake.id, uuid4(), now_us())[9:]}"
    with pytest.raises(InvalidRequest, match="not a folder that this lake assigned"):
        lake.do(WriteFiles(key=KEY, folder=folder, put=(NewFile(path="x", size=1),)))


def test_a_list_of_files_has_a_name_that_a_file_can_have(lake: Lake) -> None:
    call = listed(lake, NewFile(path="x", size=1))
    told: Any = call.added
    for name in ("\0", "", "../x", "a//b"):
        with pytest.raises(InvalidRequest):
            lake.do(msgspec.structs.replace(call, added=msgspec.structs.replace(told, name=name)))
    assert lake.log() == []


@pytest.mark.parametrize("field", ["remove", "replace", "absent", "copy"])
def test_a_text_is_not_taken_for_a_list_of_paths(own: Lake, field: str) -> None:
    files = own.table(KEY).files
    files.write({"a": b"1", "b": b"2"})
    for text in ("", "ab"):
        with pytest.raises(InvalidRequest, match=f"{field} must be a list"):
            files.write({"c": b""}, **{field: text})  # type: ignore[arg-type]
    assert [one.path for one in files.list()] == ["a", "b"]


def test_what_makes_no_sense_is_told_in_its_own_words(lake: Lake) -> None:
    files = lake.table(KEY).files
    with pytest.raises(KeyNotFound, match=r"no 'raw\.events' at 'main'"):
        files.delete_folder("a")
    files.write({"a": b"1", "b": b"2"})
    with pytest.raises(InvalidRequest, match="moved to itself"):
        files.move("a", "a")
    with pytest.raises(InvalidRequest, match="not valid UTF-8"):
        files.put("c", "\ud800")
    with pytest.raises(CommitConflict, match="already has a file of that name"):
        files.put("a", b"2", if_absent=True)
    files.delete("a", "a")
    assert [one.path for one in files.list()] == ["b"]


def test_a_branch_may_have_a_name_as_long_as_the_id_of_a_commit(own: Lake) -> None:
    name = "b" * 63 + "z"
    own.branch(name).create()
    own.table(KEY, name).files.put("x", b"1")
    assert own.table(KEY, name).files.read("x") == b"1"


def test_a_table_of_files_that_is_read_by_rows_says_where_its_files_are(own: Lake) -> None:
    own.table(KEY).files.put("x", b"1")
    with pytest.raises(Exception, match=r"has files of a format.*\.files"):
        own.table(KEY).to_arrow()


# -- folders -----------------------------------------------------------------------------------------------


def test_a_folder_is_the_same_with_and_without_its_slash_and_no_other(lake: Lake, tmp_path: Path) -> None:
    files = lake.table(KEY).files
    files.write({"day=1/a": b"1", "day=10/b": b"22", "day=1": b"333"})
    for number, folder in enumerate(("day=1", "day=1/")):
        assert [one.path for one in files.list(folder)] == ["day=1/a"]
        assert [one.path for one in files.walk(folder)] == ["day=1/a"]
        assert [one.path for one in files.folder(folder)] == ["day=1/a"]
        assert files.total(folder).size == 1
        assert files.urls(folder) == [files.stat("day=1/a").address]
        assert files.export(tmp_path / str(number), folder).files == 1
    files.write({"day=1/c": b""}, replace=["day=1"])
    assert [one.path for one in files.list()] == ["day=1", "day=1/c", "day=10/b"]


def test_a_check_sees_folders_and_lost_bytes_as_everybody_does(own: Lake) -> None:
    seen: list[Any] = []

    def look(proposed: Any) -> None:
        files = proposed.files(KEY)
        seen.append([one.path for one in files.list("day=1")])
        assert files.list("day=1") == files.list("day=1/")
        Path(files.stat("day=1/a").address).unlink(missing_ok=True)
        with files.open("day=1/a") as file:
            try:
                file.read()
            except Exception as problem:
                seen.append((type(problem).__name__, str(problem)))

    own.add_check("look", look)
    own.table(KEY).files.write({"day=1/a": b"1", "day=10/b": b"2"})
    assert seen[0] == ["day=1/a"]
    assert (seen[1][0], "is missing in storage, or was changed there" in seen[1][1]) == ("Damaged", True)
