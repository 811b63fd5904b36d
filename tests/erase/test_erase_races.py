"""A revert or a restore that races with an erase is refused, or was there before it: in every order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import HistoryExpired, MergeConflict
from penstock.formats.delta.lake.erase import DeltaErasure
from penstock.formats.files.lake.erase import FilesErasure
from penstock.kernel.restore import RestoreRequest
from penstock.kernel.revert import RevertRequest
from penstock.lake.erase import EraseRun
from penstock.lake.lake import Lake
from tests.erase.tables import MARKER, alone, people, where_is

KINDS: dict[str, type[Any]] = {"delta": DeltaErasure, "files": FilesErasure}
Way = Callable[[Lake], object]


def fill(lake: Lake, kind: str) -> None:
    """A table with two entries, one of which has the marker and is deleted by the newest commit."""
    if kind == "delta":
        lake.create_table("t", data=people().slice(1, 2))
        lake.table("t").overwrite(people().slice(2, 1), message="forget")
    else:
        lake.table("t").files.put("zoe", b"zoe")
        lake.table("t").files.put("gone", MARKER.encode(), message="load")
        lake.table("t").files.delete("gone", message="forget")
    lake.finish_background()


def has_marker(lake: Lake, kind: str) -> bool:
    if kind == "delta":
        return MARKER in lake.table("t").to_arrow()["name"].to_pylist()
    return "gone" in {one.path for one in lake.table("t").files.list()}


def revert(lake: Lake) -> None:
    lake.revert(_deletion(lake))


def restore(lake: Lake) -> None:
    lake.restore("t", to=f"{_deletion(lake)}~1")


def restore_all(lake: Lake) -> None:
    lake.restore(all=True, to=f"{_deletion(lake)}~1")


def _deletion(lake: Lake) -> str:
    return next(one.id for one in lake.log() if one.message == "forget")


REQUESTS: dict[Way, type[Any]] = {revert: RevertRequest, restore: RestoreRequest, restore_all: RestoreRequest}
in_each_kind = pytest.mark.parametrize("kind", KINDS)
by_each_way = pytest.mark.parametrize("way", REQUESTS)


@in_each_kind
@by_each_way
def test_what_was_prepared_before_the_erase_is_refused_at_its_turn(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, way: Way
) -> None:
    fill(lake, kind)
    prepare, raced = REQUESTS[way].prepare, list[bool]()

    def racing(request: Any, reference: Any) -> None:
        prepare(request, reference)
        if not raced:
            with alone(path) as other:
                raced.append(other.erase("t").finished)

    monkeypatch.setattr(REQUESTS[way], "prepare", racing)
    with pytest.raises((MergeConflict, HistoryExpired), match="erased"):
        way(lake)
    assert raced == [True]
    assert (where_is(path), has_marker(lake, kind)) == ([], False)
    assert lake.fsck().damages == ()


@in_each_kind
@by_each_way
def test_it_is_refused_while_an_erase_is_about_to_begin(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, way: Way
) -> None:
    fill(lake, kind)
    settle, raced = KINDS[kind].commit_first_version, list[bool]()

    def racing(erasure: Any, erase: str) -> Any:
        with pytest.raises(MergeConflict, match="is being erased"):
            way(lake)
        raced.append(True)
        return settle(erasure, erase)

    monkeypatch.setattr(KINDS[kind], "commit_first_version", racing)
    with alone(path) as other:
        assert other.erase("t").finished
    assert raced == [True]
    assert (where_is(path), has_marker(lake, kind)) == ([], False)


@in_each_kind
@by_each_way
def test_what_lands_before_the_erase_begins_is_there_afterwards(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, way: Way
) -> None:
    fill(lake, kind)
    begin = EraseRun._note_begun

    def racing(erase: EraseRun, known: Any) -> Any:
        way(lake)
        return begin(erase, known)

    monkeypatch.setattr(EraseRun, "_note_begun", racing)
    with alone(path) as other:
        other.erase("t")
        assert has_marker(other, kind)
    assert has_marker(lake, kind)
    assert lake.fsck().damages == ()


@in_each_kind
@by_each_way
def test_an_erase_whose_first_version_is_overtaken_leaves_what_can_be_read(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, way: Way
) -> None:
    """The request is prepared before the erase is known, and its turn comes when the erase is under way."""
    fill(lake, kind)
    prepare, settle = REQUESTS[way].prepare, KINDS[kind].commit_first_version
    raced: list[str] = []

    def prepared(request: Any, reference: Any) -> None:
        prepare(request, reference)
        if not raced:
            raced.append("prepared")
            with alone(path) as other, pytest.raises(KeyboardInterrupt):
                other.erase("t")

    def stopped(_erasure: Any, _erase: str) -> int:
        raise KeyboardInterrupt  # the process dies after the row says that an erase is under way

    monkeypatch.setattr(REQUESTS[way], "prepare", prepared)
    monkeypatch.setattr(KINDS[kind], "commit_first_version", stopped)
    with pytest.raises(MergeConflict, match="is being erased"):
        way(lake)
    monkeypatch.setattr(KINDS[kind], "commit_first_version", settle)
    with alone(path) as other:
        assert other.erase("t").finished
    assert (where_is(path), has_marker(lake, kind)) == ([], False)
