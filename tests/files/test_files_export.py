"""Exporting files of a table into a directory."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from penstock.errors import Damaged, FileNotFound, InvalidRequest, PenstockError
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake.calls import NewFile, WriteFiles
from penstock.lake.lake import Lake
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.testing.threads import at_once

KEY = Key("raw", "events")
FILES = {"day=1/a": b"1", "day=1/b": b"22", "day=2/ü": b"", "note": b"333"}


def exported(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_files_are_exported_at_their_paths_and_again_without_harm(lake: Lake, tmp_path: Path) -> None:
    files, out, steps = lake.table(KEY).files, tmp_path / "out" / "deep", list[tuple[str, int]]()
    files.write(FILES)
    for _ in range(2):
        total = files.export(out, progress=lambda *step: steps.append(step))
        assert ((total.files, total.size), exported(out)) == ((4, 6), FILES)
    assert steps == [("exported", count) for count in range(1, 5)] * 2
    assert files.export(str(tmp_path / "some"), "day=1/").files == 2
    assert set(exported(tmp_path / "some")) == {"day=1/a", "day=1/b"}


def test_nothing_is_overwritten_and_nothing_is_left_half_done(own: Lake, tmp_path: Path) -> None:
    files = own.table(KEY).files
    files.write(FILES)
    for there in (b"x", b"longer than it"):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "note").write_bytes(there)
        with pytest.raises(InvalidRequest, match="already exists, with other content"):
            files.export(tmp_path / "out")
        assert exported(tmp_path / "out")["note"] == there
        assert not [name for name in exported(tmp_path / "out") if ".penstock" in name]


def test_a_link_in_the_directory_leads_nowhere_else(own: Lake, tmp_path: Path) -> None:
    files = own.table(KEY).files
    files.write(FILES)
    for name in ("out", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "day=1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequest, match="outside"):
        files.export(tmp_path / "out")
    (tmp_path / "out" / "day=1").unlink()
    (tmp_path / "out" / "note").unlink(missing_ok=True)
    (tmp_path / "out" / "note").symlink_to(tmp_path / "elsewhere" / "note")
    with pytest.raises(InvalidRequest, match="already exists"):
        files.export(tmp_path / "out")
    assert exported(tmp_path / "elsewhere") == {}


def test_a_file_in_the_place_of_a_folder_is_named(own: Lake, tmp_path: Path) -> None:
    files = own.table(KEY).files
    files.write({"a": b"1", "a/b": b"2"})
    with pytest.raises(InvalidRequest, match=r"out/a\b"):
        files.export(tmp_path / "out")


def test_bytes_that_are_not_those_that_were_written_are_not_exported(own: Lake, tmp_path: Path) -> None:
    files = own.table(KEY).files
    files.put("x", b"right")
    Path(files.stat("x").address).write_bytes(b"wrong")
    with pytest.raises(Damaged, match="'x' of 'raw"):
        files.export(tmp_path / "out")
    own.do(
        WriteFiles(
            key=KEY,
            folder=make_folder_name(own.id, UUID(int=7), now_us()),
            replaced=("",),
            put=(NewFile(path="y", size=1),),
        )
    )
    with pytest.raises(Damaged, match="'y' of 'raw"):
        files.export(tmp_path / "out")
    assert exported(tmp_path / "out") == {}


def test_two_exports_into_one_directory_do_not_disturb_each_other(own: Lake, tmp_path: Path) -> None:
    files = own.table(KEY).files
    files.write({str(number): bytes(1000) for number in range(20)})
    told = at_once(*[lambda: files.export(tmp_path / "out").files] * 3)
    assert (told, len(exported(tmp_path / "out"))) == ([20, 20, 20], 20)


def test_an_export_is_of_one_commit(own: Lake, tmp_path: Path) -> None:
    files = own.table(KEY).files
    files.write({"a": b"1", "b": b"1"})

    def change(_: str, count: int) -> None:
        if count == 1:
            files.write({"b": b"2"}, remove=["a"])

    assert files.export(tmp_path / "out", progress=change).files == 2
    assert exported(tmp_path / "out") == {"a": b"1", "b": b"1"}
    with pytest.raises(PenstockError):
        own.table(KEY, "nobody").files.export(tmp_path / "nobody")


def test_a_folder_that_is_not_there_is_not_exported(lake: Lake, tmp_path: Path) -> None:
    files = lake.table(KEY).files
    files.write(FILES)
    for folder in ("day=3", "note", "day"):
        with pytest.raises(FileNotFound, match=f"no file at '{folder}'"):
            files.export(tmp_path / "out", folder)
    assert not (tmp_path / "out").exists()
    files.write(replace=[""])
    assert files.export(tmp_path / "out").files == 0


def test_one_file_is_exported_by_the_same_rules(lake: Lake, tmp_path: Path) -> None:
    files, target = lake.table(KEY).files, tmp_path / "target"
    files.write(FILES)
    for _ in range(2):
        assert files.export_file("day=1/b", target).size == len(target.read_bytes()) == 2
    with pytest.raises(InvalidRequest, match="nothing was overwritten"):
        files.export_file("note", target)
    Path(files.stat("note").address).write_bytes(b"xxx")
    with pytest.raises(Damaged, match="'note' of 'raw"):
        files.export_file("note", tmp_path / "damaged")
    with pytest.raises(PenstockError, match="cannot be written"):
        files.export_file("day=1/a", tmp_path / "none" / "a")
    assert exported(tmp_path).get("target") == b"22"
    assert not [name for name in exported(tmp_path) if "damaged" in name or ".penstock-export" in name]


def test_of_two_who_export_different_files_to_one_path_one_wins(own: Lake, tmp_path: Path) -> None:
    files = own.table(KEY).files
    files.write({"a": bytes(100_000), "b": b"b" * 100_000})

    def to_target(path: str) -> str | None:
        try:
            files.export_file(path, tmp_path / "target")
        except InvalidRequest:
            return None
        return path

    for _ in range(10):
        (winner,) = filter(None, at_once(lambda: to_target("a"), lambda: to_target("b")))
        assert (tmp_path / "target").read_bytes() == files.read(winner)
        (tmp_path / "target").unlink()


def test_no_directory_is_made_behind_a_link(own: Lake, tmp_path: Path) -> None:
    own.table(KEY).files.put("link/deep/x", b"1")
    for name in ("out", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequest, match="outside"):
        own.table(KEY).files.export(tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []
