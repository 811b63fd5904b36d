"""What nobody loses without a word: written files, folders that are moved, the view of one commit."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.formats.files.lake.file_system import FilesSystem
from penstock.lake.lake import Lake
from penstock.server.access import TokenGate
from penstock.server.native import NATIVE
from tests.files.pool import stored
from tests.server.running import local


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True) as found:
        yield found


@pytest.fixture
def fs(lake: Lake) -> FilesSystem:
    lake.table("t").files.write({"g/a": b"a", "g/h/b": b"b", "note": b"n"})
    return lake.files_system()


# -- one commit --------------------------------------------------------------------------------------------


def test_a_pinned_file_system_is_of_the_same_commit_in_another_process(lake: Lake, fs: FilesSystem) -> None:
    lake.branch("dev").create()
    lake.table("t", "dev").files.put("note", b"of dev")
    url, _ = fsspec.url_to_fs("penstock://t", lake=lake)
    pinned = lake.files_system(pinned=True)
    assert pinned.cat_file("t@dev/note") == b"of dev"
    sent = [pickle.dumps(one) for one in (url, pinned, fs)]
    for branch in ("main", "dev"):
        lake.table("t", branch).files.write({"note": b"new"}, replace=[""])
    by_url, again, unpinned = map(pickle.loads, sent)
    assert (by_url.cat_file("t/note"), again.cat_file("t/note")) == (b"n", b"n")
    assert (len(again.find("t")), again.cat_file("t@dev/note")) == (3, b"of dev")
    assert unpinned.cat_file("t/note") == b"new"
    again.invalidate_cache()
    assert again.cat_file("t/note") == b"new"


def test_a_pinned_file_system_of_a_revision_that_is_not_there_yet_can_be_sent(lake: Lake) -> None:
    again = pickle.loads(pickle.dumps(lake.files_system("later", pinned=True)))
    lake.branch("later").create()
    lake.table("t", "later").files.put("x", b"1")
    assert again.cat_file("t/x") == b"1"


def test_no_token_is_told_to_another_process(
    lake: Lake, fs: FilesSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local(lake.catalogue, [NATIVE], gate=TokenGate(lake.catalogue)) as server:
        token = lake.create_token("see", "read:main")
        sent = pickle.dumps(FilesSystem(server.url, token=token, pinned=True))
        assert token.encode() not in sent
        lake.table("t").files.put("note", b"new")
        monkeypatch.setenv("PENSTOCK_TOKEN", token)
        assert (
            pickle.loads(sent).cat_file("t/note") == b"n"
        )  # a commit that this token sees only by its branch
    assert fs.cat_file("t/note") == b"new"


# -- files that are written --------------------------------------------------------------------------------


def test_a_file_that_is_closed_while_an_exception_is_handled_is_discarded_with_a_warning(
    lake: Lake, fs: FilesSystem, caplog: pytest.LogCaptureFixture
) -> None:
    file, before = fs.open("t/new", "wb"), lake.branch().head
    file.write(b"half")
    try:
        raise KeyError
    except KeyError:
        with pytest.warns(RuntimeWarning, match="'t/new' was discarded: it was closed while KeyError"):
            file.close()
    assert (lake.branch().head, fs.exists("t/new")) == (before, False)
    assert "'t/new' was discarded" in caplog.text


def test_a_file_that_nobody_closes_is_warned_of(
    lake: Lake, fs: FilesSystem, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    before = lake.branch().head
    file = fs.open("t/new", "wb")
    file.write(b"half")
    with pytest.warns(ResourceWarning, match="'t/new' was discarded: the file was never closed"):
        del file
    assert (lake.branch().head, "the file was never closed" in caplog.text) == (before, True)


@pytest.mark.parametrize("how", ["gzip", "bz2", "xz", "infer", "text"])
def test_a_compressed_file_is_one_commit_at_its_close(lake: Lake, fs: FilesSystem, how: str) -> None:
    compression = {"infer": "infer", "text": "gzip"}.get(how, how)
    path, before = "t/new.gz" if how == "infer" else "t/new", len(lake.log())
    with fs.open(path, "w" if how == "text" else "wb", compression=compression) as file:
        file.write("whole" if how == "text" else b"whole")
    with fs.open(path, "rb", compression=compression) as file:
        assert file.read() == b"whole"
    assert (len(lake.log()), fs.cat_file(path) != b"whole") == (before + 1, True)


def test_a_write_that_is_denied_leaves_no_bytes(lake: Lake, fs: FilesSystem) -> None:
    before = stored(lake)
    with local(lake.catalogue, [NATIVE], gate=TokenGate(lake.catalogue)) as server:
        theirs = FilesSystem(server.url, token=lake.create_token("see", "read:main"))
        with pytest.raises(PermissionError):
            theirs.pipe_file("t/x", b"1")
    assert stored(lake) == before


# -- folders -----------------------------------------------------------------------------------------------


def test_a_folder_is_moved_as_a_whole_or_not_without_a_word(lake: Lake, fs: FilesSystem) -> None:
    with pytest.raises(IsADirectoryError, match="recursive=True"):
        fs.mv("t/g", "t/moved")
    assert fs.find("t") == ["t/g/a", "t/g/h/b", "t/note"]
    fs.mv("t/g", "t/moved", recursive=True)
    assert fs.find("t") == ["t/moved/a", "t/moved/h/b", "t/note"]


@pytest.mark.parametrize("paths", ["t/g/**", ["t/g", "t/g/a"], ["t/g/a", "t/g"]], ids=["glob", "down", "up"])
def test_a_folder_and_what_is_in_it_can_be_removed_together(
    lake: Lake, fs: FilesSystem, paths: str | list[str]
) -> None:
    fs.rm(paths, recursive=True)
    assert fs.find("t") == ["t/note"]


def test_a_file_of_a_folder_that_the_transaction_removes_is_gone_with_it(lake: Lake, fs: FilesSystem) -> None:
    with fs.transaction:
        fs.rm("t/g", recursive=True)
        fs.rm("t/g/a")
        fs.mv("t/g/h/b", "t/kept")
    assert (fs.find("t"), fs.cat_file("t/kept")) == (["t/kept", "t/note"], b"b")


def test_paths_that_no_file_can_have_are_not_there(fs: FilesSystem) -> None:
    for path in ("t/g//a", "t/../t", "t/./g"):
        assert not fs.exists(path)
    assert fs.glob("t/g/*") == ["t/g/a", "t/g/h"]
    assert fs.glob("t/g*") == ["t/g"]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_text_that_nobody_closes_is_not_written_either(
    lake: Lake, fs: FilesSystem, compression: str | None
) -> None:
    lake.table("t").files.put("old", b"1")
    before = lake.branch().head
    file = fs.open("t/half.txt", "w", compression=compression)
    file.write("half")
    with pytest.warns(ResourceWarning, match="'t/half.txt' was discarded: the file was never closed"):
        del file
    assert lake.branch().head == before
    with fs.open("t/whole.txt", "wt", encoding="utf-16", compression=compression) as file:
        file.write("wholé")
    with fs.open("t/whole.txt", "rt", encoding="utf-16", compression=compression) as file:
        assert file.read() == "wholé"
