"""Files of a table, for programs: the same whether the lake is in this process or behind a server."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import penstock
from penstock.errors import (
    CommitConflict,
    Damaged,
    FileNotFound,
    IdempotencyKeyReused,
    InvalidName,
    InvalidRequest,
    KeyNotFound,
    NotManaged,
)
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake import pending_changes as files_pending_changes
from penstock.formats.files.lake.calls import CopiedFile, ListFiles, ListOfFiles, NewFile, WriteFiles
from penstock.lake.lake import Lake
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from tests.files.pool import stored

KEY = Key("raw", "events")


def paths(lake: Lake, prefix: str = "", ref: str | None = None) -> list[str]:
    return [one.path for one in lake.table(KEY, ref).files.list(prefix)]


# -- putting and reading -----------------------------------------------------------------------------------


def test_a_file_is_put_by_one_commit_that_makes_the_table_and_its_namespace(lake: Lake) -> None:
    files = lake.table(KEY).files
    written = files.put("day=1/a.csv", b"1,2", author="ann")
    assert written.commit is not None
    assert (written.commit.message, written.commit.authors) == (
        "put day=1/a.csv into raw.events",
        ("ann",),
    )
    assert written.commit.committer == "tester"
    assert (written.head, written.is_ignored) == (lake.branch().head, False)
    assert files.read("day=1/a.csv") == b"1,2"
    entry = files.stat("day=1/a.csv")
    assert (entry.size, entry.is_folder, Path(entry.address).read_bytes()) == (3, False, b"1,2")
    assert entry.address.endswith("/day=1/a.csv")
    assert entry.checksum == f"sha256:{_sha256(b'1,2')}"


@pytest.mark.parametrize(
    ("data", "stored_as"),
    [
        (b"", b""),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ("ü", b"\xc3\xbc"),
        (io.BytesIO(b"stream"), b"stream"),
    ],
    ids=["nothing", "bytearray", "memoryview", "text", "stream"],
)
def test_a_file_is_made_of_bytes_text_or_a_stream(own: Lake, data: Any, stored_as: bytes) -> None:
    files = own.table(KEY).files
    files.put("x", data)
    assert files.read("x") == stored_as


def test_a_large_local_file_is_put_piece_by_piece(
    own: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_pending_changes, "PIECE_BYTES", 1000)
    data = bytes(range(256)) * 20
    (tmp_path / "big").write_bytes(data)
    files = own.table(KEY).files
    files.put("big", tmp_path / "big")
    files.put("exactly", data[:2000])
    assert (files.read("big"), files.read("exactly")) == (data, data[:2000])
    assert files.stat("big").checksum == f"sha256:{_sha256(data)}"
    with files.open("big") as file:
        assert (file.read(3), file.seek(-4, io.SEEK_END), file.read(), file.read()) == (
            data[:3],
            len(data) - 4,
            data[-4:],
            b"",
        )
        assert file.seekable()
        with pytest.raises(ValueError, match="seek"):
            file.seek(-1)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_cannot_be_read_is_not_put(own: Lake, tmp_path: Path) -> None:
    files = own.table(KEY).files
    for data, why in (
        (tmp_path / "nothing", "No such file"),
        (tmp_path, "Is a directory"),
        (io.StringIO("text"), "open it with mode 'rb'"),
        (17, "cannot be written from int"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            files.put("x", data)  # type: ignore[arg-type]
    assert (stored(own), own.log()) == (set(), [])


def test_a_stream_that_breaks_off_leaves_nothing_behind(own: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= 2000:
                raise OSError(5, "Input/output error")
            return super().read(size)

    monkeypatch.setattr(files_pending_changes, "PIECE_BYTES", 1000)
    with pytest.raises(InvalidRequest, match="cannot be read: Input/output error"):
        own.table(KEY).files.put("x", Broken(bytes(5000)))
    assert (stored(own), own.log()) == (set(), [])


def test_parts_of_a_file_can_be_read(lake: Lake) -> None:
    files = lake.table(KEY).files
    files.put("x", b"0123456789")
    assert [files.read("x", 3, 4), files.read("x", 8), files.read("x", 8, 100), files.read("x", 20)] == [
        b"3456",
        b"89",
        b"89",
        b"",
    ]
    with pytest.raises(InvalidRequest, match="invalid range"):
        files.read("x", -1)


def test_a_file_that_storage_lost_is_told_as_damage(own: Lake) -> None:
    files = own.table(KEY).files
    files.put("x", b"0123456789")
    Path(files.stat("x").address).unlink()
    with pytest.raises(Damaged, match="is missing in storage, or was changed there"):
        files.read("x")
    with files.open("x") as file, pytest.raises(Damaged):
        file.read()


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", ".", "../a", "a/../b", "a\nb", "a" * 1025, "\ud800"]
)
def test_bad_paths_are_refused_before_anything_is_written(lake: Lake, path: str) -> None:
    with pytest.raises(InvalidRequest):
        lake.table(KEY).files.put(path, b"1")
    assert lake.log() == []


def test_paths_that_storage_cannot_have_get_another_name_there(lake: Lake) -> None:
    files = lake.table(KEY).files
    odd = {"a": b"1", "a/b": b"2", "x" * 250: b"3", "/".join(["y" * 99] * 10): b"4", ".locks/x": b"5"}
    files.write({**odd, "ü/%20 #?": b"6"})
    assert {path: files.read(path) for path in odd} == odd
    assert files.read("ü/%20 #?") == b"6"
    assert files.stat("a/b").address.endswith("/a/b")
    assert not files.stat("a").address.endswith("/a")


# -- listing -----------------------------------------------------------------------------------------------


def fill(lake: Lake, *names: str) -> None:
    """Entries without bytes: lists do not look at them."""
    folder = _folder(lake)
    new = tuple(NewFile(path=name, size=1) for name in names)
    lake.do(WriteFiles(key=KEY, folder=folder, added=new))


def _folder(lake: Lake) -> str:
    return make_folder_name(lake.id, uuid4(), now_us())


TREE = ["a", "a!", "a/1", "a/2/x", "a/\U0010ffff\U0010ffff", "a0", "b/c/d", "é/x", "\uffff/x", "\U0001f600"]


def test_files_are_listed_in_the_order_of_their_bytes(lake: Lake) -> None:
    fill(lake, *reversed(TREE))
    files = lake.table(KEY).files
    assert paths(lake) == sorted(TREE, key=str.encode) == [one.path for one in files.walk()]
    assert paths(lake, "a/") == ["a/1", "a/2/x", "a/\U0010ffff\U0010ffff"]
    assert [one.path for one in files.list(limit=2)] == ["a", "a!"]
    assert files.list(limit=0) == files.list("none") == []
    assert files.urls("b") == files.urls("b/") == [files.stat("b/c/d").address]
    with pytest.raises(InvalidRequest, match="limit must be 0 or greater"):
        files.list(limit=-1)


def test_a_folder_is_listed_without_what_is_in_its_folders(lake: Lake) -> None:
    fill(lake, *TREE)
    files = lake.table(KEY).files
    top = [one.path for one in files.folder()]
    assert top == ["a", "a!", "a/", "a0", "b/", "é/", "\uffff/", "\U0001f600"]
    assert [one.is_folder for one in files.folder()] == [name.endswith("/") for name in top]
    assert [one.path for one in files.folder("a/")] == ["a/1", "a/2/", "a/\U0010ffff\U0010ffff"]
    assert [one.path for one in files.folder("b")] == ["b/c/"]
    assert files.folder("b/c/d/") == []


@pytest.mark.parametrize("folders", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("prefix", ["", "a", "a/", "b/c"])
def test_pages_of_a_list_are_its_parts(own: Lake, folders: bool, size: int, prefix: str) -> None:
    fill(own, *TREE)
    call = ListFiles(key=KEY, folders=folders, prefix=prefix, limit=None)
    whole, seen, after = own.do(call), list[Any](), ""
    for _ in range(len(whole) + 2):
        page = own.do(ListFiles(key=KEY, folders=folders, prefix=prefix, limit=size, after=after))
        if not page:
            break
        assert len(page) <= size
        seen += page
        after = page[-1].path
    assert tuple(seen) == whole


def test_a_long_list_is_of_one_commit(far: Lake, own: Lake) -> None:
    fill(far, *(f"{number:04}" for number in range(2500)))
    walked = far.table(KEY).files.walk()
    first = next(walked)
    own.table(KEY).files.write(replace=[""])
    assert len([first, *walked]) == 2500
    assert far.table(KEY).files.list() == []


def test_totals_and_the_table_as_a_whole_are_told(lake: Lake) -> None:
    files = lake.table(KEY).files
    files.write({"a/x": b"12", "a/y": b"345", "b": b"6"})
    assert (files.total().files, files.total().size, files.total("a/").size) == (3, 6, 5)
    about = files.about()
    assert (about.key, about.files, about.size, about.layout.format) == (KEY, 3, 6, "")
    assert (files.exists("b"), files.exists("a")) == (True, False)


def test_what_is_not_there_is_told_by_its_kind(lake: Lake) -> None:
    lake.branch().put("ice", IcebergTable(metadata_location=f"{lake.warehouse}/1.json"))
    lake.table(KEY).files.put("x", b"1")
    files = lake.table(KEY).files
    for do, kind, why in (
        (lambda: files.stat("y"), FileNotFound, "'raw.events' has no file at 'y'"),
        (lambda: files.read("y"), FileNotFound, "no file at 'y'"),
        (lambda: files.open("y"), FileNotFound, "no file at 'y'"),
        (lambda: files.delete("x", "y"), FileNotFound, "no file at 'y'"),
        (lambda: files.copy("y", "z"), FileNotFound, "no file at 'y'"),
        (lambda: files.move("y", "z"), FileNotFound, "no file at 'y'"),
        (lake.table("raw.x").files.list, KeyNotFound, "no 'raw.x' at 'main'"),
        (lambda: lake.table("raw.x").files.delete("a"), KeyNotFound, "no 'raw.x' at 'main'"),
        (lake.table("ice").files.about, NotManaged, "is an Iceberg table"),
        (lambda: lake.table("ice").files.put("x", b""), CommitConflict, "is not a table of files"),
    ):
        with pytest.raises(kind, match=why):
            do()
    assert paths(lake) == ["x"]


# -- changing ----------------------------------------------------------------------------------------------


def test_many_changes_are_one_commit(lake: Lake) -> None:
    files = lake.table(KEY).files
    files.write({"old/a": b"1", "old/b": b"2", "gone": b"3", "kept": b"4"})
    before = len(lake.log())
    files.write(
        {"old/c": b"5", "new": b"6"},
        remove=["gone"],
        replace=["old/"],
        copy=[CopiedFile(path="copy", source="old/a")],
    )
    assert paths(lake) == ["copy", "kept", "new", "old/c"]
    assert (files.read("copy"), len(lake.log())) == (b"1", before + 1)
    assert lake.show().message == ("put 2 files, copy 1 file, delete 1 file, replace old/ in raw.events")


def test_a_refused_change_changes_nothing_and_leaves_no_bytes(own: Lake, far: Lake) -> None:
    for lake in (own, far):
        files = lake.table(KEY).files
        files.put("x", b"1")
        known = stored(own)
        for do in (
            lambda files=files: files.write({"x": b"2", "y": b"3"}, absent=["x"]),
            lambda files=files: files.put("x", b"2", if_absent=True),
            lambda files=files: files.write({"y": b"3"}, remove=["nothing"]),
        ):
            with pytest.raises(CommitConflict):
                do()  # type: ignore[no-untyped-call]
        assert (stored(own), paths(lake)) == (known, ["x"])


def test_a_conflict_names_the_paths(lake: Lake) -> None:
    files = lake.table(KEY).files
    files.write({"x": b"1", "y": b"2"})
    with pytest.raises(CommitConflict, match="at 'x'") as caught:
        files.write({"x": b"2", "y": b"3"}, absent=["x", "y"])
    assert sorted(one.path for one in caught.value.conflicts) == ["x", "y"]


def test_a_file_is_replaced_only_if_it_is_the_one_that_was_read(lake: Lake) -> None:
    files = lake.table(KEY).files
    files.put("x", b"1")
    seen = files.stat("x")
    files.put("x", b"2", if_match=seen)
    with pytest.raises(CommitConflict, match="was changed by another writer since at 'x'"):
        files.put("x", b"3", if_match=seen)
    with pytest.raises(InvalidRequest, match="exclude each other"):
        files.put("x", b"3", if_match=seen, if_absent=True)
    with pytest.raises(InvalidRequest, match="not of 'y'"):
        files.put("y", b"3", if_match=seen)
    assert files.read("x") == b"2"


def test_files_and_folders_are_removed(lake: Lake) -> None:
    files = lake.table(KEY).files
    files.write({"a/1": b"", "a/2": b"", "ab": b"", "b": b"", "c": b""})
    files.delete("b", "c")
    files.delete_folder("a")
    assert paths(lake) == ["ab"]
    assert files.delete_folder("a").is_ignored
    for nothing in ("", "/"):
        with pytest.raises(InvalidRequest, match="no folder is given"):
            files.delete_folder(nothing)
    with pytest.raises(InvalidRequest, match="nothing to change"):
        files.write()
    files.write(replace=[""])
    assert (paths(lake), lake.table(KEY).exists) == ([], True)


def test_copies_and_moves_take_no_bytes(own: Lake, far: Lake) -> None:
    own.table(KEY).files.put("x", b"one")
    own.branch("dev").create()
    own.table(KEY, "dev").files.put("x", b"of dev")
    known = stored(own)
    for lake in (own, far):
        files = lake.table(KEY).files
        files.copy("x", "y")
        files.copy("x", "z", at="dev")
        files.move("y", "moved/y")
        lake.table("raw.other").files.copy("x", "x", key="raw.events", at="main")
        assert [files.read(path) for path in ("x", "z", "moved/y")] == [b"one", b"of dev", b"one"]
        assert lake.table("raw.other").files.read("x") == b"one"
        assert (stored(own), files.stat("moved/y").address) == (known, files.stat("x").address)
        assert paths(lake) == ["moved/y", "x", "z"]


def test_only_branches_take_changes(lake: Lake) -> None:
    lake.table(KEY).files.put("x", b"1")
    lake.tag("v1").create()
    commit = lake.branch().head
    for table, kind, why in (
        (lake.table(KEY, "v1"), InvalidRequest, "'v1' is a tag"),
        (lake.table(KEY, commit), InvalidRequest, "cannot be changed"),
        (lake.at("v1").table(KEY), InvalidRequest, "cannot be changed"),
        (lake.table(KEY, "main~1"), InvalidName, "main~1"),
    ):
        with pytest.raises(kind, match=why):
            table.files.put("x", b"2")
    assert lake.branch().head == commit
    assert lake.table(KEY, "v1").files.read("x") == lake.table(KEY, commit).files.read("x") == b"1"


def test_a_commit_has_the_same_bytes_for_ever(lake: Lake) -> None:
    files = lake.table(KEY).files
    files.write({"a": b"1", "b": b"2"})
    then = lake.at()
    opened = then.table(KEY).files.open("a")
    files.write({"a": b"other"}, remove=["b"])
    files.write({"c": b"3"}, replace=[""])
    old = then.table(KEY).files
    assert ([one.path for one in old.walk()], old.read("b"), opened.read()) == (["a", "b"], b"2", b"1")
    assert paths(lake) == ["c"]


def test_branches_have_their_own_files(lake: Lake) -> None:
    lake.table(KEY).files.put("x", b"1")
    lake.branch("dev").create()
    lake.table(KEY, "dev").files.put("y", b"2")
    assert (paths(lake), paths(lake, ref="dev")) == (["x"], ["x", "y"])
    lake.merge("dev")
    assert paths(lake) == ["x", "y"]


# -- repeated requests -------------------------------------------------------------------------------------


REPEATED: dict[str, Callable[[Lake], Any]] = {
    "put": lambda lake: lake.table(KEY).files.put("new", b"1", idempotency_key="k"),
    "put if absent": lambda lake: lake.table(KEY).files.put("new", b"1", if_absent=True, idempotency_key="k"),
    "delete": lambda lake: lake.table(KEY).files.delete("x", idempotency_key="k"),
    "delete a folder": lambda lake: lake.table(KEY).files.delete_folder("a", idempotency_key="k"),
    "copy": lambda lake: lake.table(KEY).files.copy("x", "new", idempotency_key="k"),
    "move": lambda lake: lake.table(KEY).files.move("x", "new", idempotency_key="k"),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_repeated_request_is_done_once(lake: Lake, name: str) -> None:
    lake.table(KEY).files.write({"x": b"1", "a/y": b"2"})
    first = REPEATED[name](lake)
    log = lake.log()
    lake.table(KEY).files.put("more", b"")
    assert REPEATED[name](lake).commit == first.commit
    assert len(lake.log()) == len(log) + 1


def test_other_bytes_under_the_same_key_are_another_request(lake: Lake) -> None:
    lake.table(KEY).files.put("x", b"1", idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused):
        lake.table(KEY).files.put("x", b"2", idempotency_key="k")
    assert lake.table(KEY).files.read("x") == b"1"


def test_more_files_than_fit_into_a_request_are_named_by_a_file(
    lake: Lake, own: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_pending_changes, "SENT_MAX", 3)
    many = {f"part-{number}": str(number).encode() for number in range(12)}
    files = lake.table(KEY).files
    files.write(many)
    assert {one.path: files.read(one.path) for one in files.walk()} == many
    known = stored(own)
    with pytest.raises(CommitConflict):
        files.write(many, absent=["part-0"])
    assert stored(own) == known


# -- what a writer may say ---------------------------------------------------------------------------------


BAD: dict[str, Callable[[Lake], WriteFiles]] = {
    "no folder": lambda _: WriteFiles(key=KEY, put=(NewFile(path="x", size=1),)),
    "another lake's folder": lambda _: WriteFiles(
        key=KEY, folder=f"20261115-{'0' * 12}/{'0' * 32}/", put=(NewFile(path="x", size=1),)
    ),
    "a folder elsewhere": lambda _: WriteFiles(key=KEY, folder="../../", put=(NewFile(path="x", size=1),)),
    "a name elsewhere": lambda lake: WriteFiles(
        key=KEY, folder=_folder(lake), put=(NewFile(path="x", name="../y", size=1),)
    ),
    "twice": lambda lake: WriteFiles(
        key=KEY, folder=_folder(lake), put=(NewFile(path="x", size=1), NewFile(path="x", size=2))
    ),
    "copied twice": lambda _: WriteFiles(
        key=KEY, copied=(CopiedFile(path="z", source="x"), CopiedFile(path="z", source="x"))
    ),
    "less than nothing": lambda lake: WriteFiles(
        key=KEY, folder=_folder(lake), put=(NewFile(path="x", size=-1),)
    ),
    "a time out of the world": lambda lake: WriteFiles(
        key=KEY, folder=_folder(lake), put=(NewFile(path="x", size=1, modified_us=2**62),)
    ),
    "no such list": lambda lake: WriteFiles(key=KEY, folder=_folder(lake), added=_list("nothing")),
    "a list elsewhere": lambda lake: WriteFiles(key=KEY, folder=_folder(lake), added=_list("../x")),
    "expected elsewhere": lambda _: WriteFiles(key=KEY, removed=("x",), expected={"x": "/etc/passwd"}),
    "a folder without a slash": lambda _: WriteFiles(key=KEY, replaced=("a",)),
}


def _list(name: str) -> Any:
    return ListOfFiles(name=name, size=10, sha256=bytes(32))


@pytest.mark.parametrize("name", BAD)
def test_what_no_writer_would_send_is_refused(lake: Lake, name: str) -> None:
    lake.table(KEY).files.put("x", b"1")
    head = lake.branch().head
    with pytest.raises(InvalidRequest):
        lake.do(BAD[name](lake))
    assert lake.branch().head == head


def test_a_lake_without_a_place_for_files_says_so() -> None:
    with penstock.open("memory:") as lake:
        with pytest.raises(InvalidRequest, match="no warehouse"):
            lake.table("a").files.put("x", b"")
        with pytest.raises(InvalidRequest, match="no warehouse"):
            lake.do(WriteFiles(key=Key("a")))
        assert lake.log() == []
