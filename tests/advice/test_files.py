"""What messages about tables of files, and of replacing rows, advise is done, and no row is lost."""

from __future__ import annotations

from uuid import uuid4

import pytest

from penstock import Key, Lake
from penstock.errors import InvalidRequest, PenstockError
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake.calls import NewFile, WriteFiles
from penstock.formats.files.lake.file_system import FilesSystem
from penstock.model.clock import now_us
from tests.advice.rows import numbers, rows


def test_a_file_is_copied_to_another_table_and_removed_then(lake: Lake) -> None:
    lake.table("raw.a").files.write({"x": b"1"})
    lake.table("raw.b").files.write({"y": b"2"})
    system = FilesSystem(lake)
    with pytest.raises(OSError, match="copy it, then remove it"):
        system.mv("raw.a/x", "raw.b/x")
    assert system.cat_file("raw.a/x") == b"1"
    system.copy("raw.a/x", "raw.b/x")
    system.rm("raw.a/x")
    assert (system.cat_file("raw.b/x"), system.exists("raw.a/x")) == (b"1", False)


def test_files_that_waited_too_long_are_written_again(lake: Lake) -> None:
    lake.table("raw.a").files.write({"x": b"1"})
    old_us = now_us() - 6 * 24 * 3600 * 1_000_000
    call = WriteFiles(
        key=Key.parse("raw.a"),
        folder=make_folder_name(lake.id, uuid4(), old_us),
        added=(NewFile(path="y", size=1),),
    )
    with pytest.raises(InvalidRequest, match="at any time; write them again"):
        lake.do(call)
    lake.table("raw.a").files.write({"y": b"2"})
    assert [one.path for one in lake.table("raw.a").files.list()] == ["x", "y"]


def test_what_was_replaced_as_advised_is_in_the_history(lake: Lake) -> None:
    lake.table("raw.a").write(rows(1, 2), format="parquet")
    before = lake.resolve()
    with pytest.raises(PenstockError, match="replace all files of this one"):
        lake.table("raw.a").write(rows(3), format="csv")
    lake.table("raw.a").write(rows(3), format="csv", mode="overwrite")
    assert numbers(lake, "raw.a") == [3]
    assert numbers(lake, "raw.a", before) == [1, 2]
