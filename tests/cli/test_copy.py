"""Moving and forking a lake from the command line."""

from __future__ import annotations

import io
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock.cli import progress
from penstock.kernel.seal import seal
from tests.cli.conftest import Terminal


def test_a_move_says_what_was_done_and_the_old_place_says_where_to_go(
    forked: Terminal, tmp_path: Path
) -> None:
    target = tmp_path / "new" / "place"
    lines = forked.plain("copy", str(forked.place), str(target), "--author", "mover").lines
    assert lines[0] == f"moved {forked.place} to {target}"
    assert lines[1:3] == ["  copied  2 references", "          4 commits"]
    assert lines[4:] == [
        "checked: nothing is wrong",
        f"{forked.place} can still be read; write to {target} from now on",
    ]
    refused = forked("put", "t", "--type", "lance", status=1)
    assert f"has moved to {target}; write there" in refused.err
    assert "--lake or PENSTOCK_LAKE" in refused.err
    refused = forked("branch", "create", "new", "--json", status=1)
    assert refused.error["code"] == "lake_moved"
    assert refused.error["details"]["target"] == str(target)
    there = Terminal(target)
    assert there("log").lines == forked("log").lines
    there.put("t", "t-1")
    events = there.json("reflog", "dev")["events"]
    assert (events[0]["event"], events[0]["who"]) == ("seal", "mover")
    assert there("reflog", "dev").lines[0].startswith("#4  seal    was at")
    assert there.json("fsck")["sound"] is True


def test_a_move_as_an_object(forked: Terminal, tmp_path: Path) -> None:
    target = tmp_path / "there"
    with penstock.open(forked.place) as lake:
        identity = lake.id
    first = forked.plain("copy", str(forked.place), f"sqlite://{target}", "--json").json
    assert first == {
        "cancelled": False,
        "source": str(forked.place),
        "target": str(target),
        "fork": False,
        "id": identity,
        "references": 2,
        "commits": 4,
        "objects": first["objects"],
        "bytes": first["bytes"],
        "repeated": False,
    }
    assert first["objects"] > 10
    assert first["bytes"] > 1000
    again = forked.plain("copy", str(forked.place), str(target), "--json").json
    assert again == first | {"repeated": True}
    text = forked.plain("copy", str(forked.place), str(target)).lines[0]
    assert text == f"moved {forked.place} to {target} (it was complete before)"


def test_a_fork_goes_its_own_way(forked: Terminal, tmp_path: Path) -> None:
    fork = Terminal(tmp_path / "fork")
    lines = forked.plain("copy", str(forked.place), str(fork.place), "--fork").lines
    assert lines[0] == f"forked {forked.place} to {fork.place}"
    assert lines[-1] == "checked: nothing is wrong"
    fork.put("only.here", "here-1")
    forked.put("only.there", "there-1")
    assert "only.here" not in forked("tables").out
    with penstock.open(forked.place) as lake, penstock.open(fork.place) as other:
        assert other.forked_from == lake.id != other.id


def test_a_move_can_be_cancelled_until_it_is_complete(forked: Terminal, tmp_path: Path) -> None:
    with penstock.open(forked.place) as lake, ThreadPoolExecutor(1) as workers:
        list(seal(lake.kernel, "some-copy", "postgresql://there/lake", "mover", workers))
    refused = forked("put", "t", "--type", "lance", status=1)
    assert "is moving to postgresql://there/lake" in refused.err
    assert "--cancel" in refused.err
    target = str(tmp_path / "target")
    assert "is moving to" in forked.plain("copy", str(forked.place), target, status=1).err
    assert forked.plain("copy", str(forked.place), "--cancel").lines == [
        f"{forked.place} stays where it is and takes writes again"
    ]
    forked.put("t", "t-1")
    assert "nothing to cancel" in forked.plain("copy", str(forked.place), "--cancel", status=1).err
    forked.plain("copy", str(forked.place), target)
    assert "has moved" in forked.plain("copy", str(forked.place), "--cancel", status=1).err


def test_a_cancelled_move_as_an_object(forked: Terminal) -> None:
    with penstock.open(forked.place) as lake, ThreadPoolExecutor(1) as workers:
        list(seal(lake.kernel, "some-copy", "s3://there/lake", "mover", workers))
    found = forked.plain("copy", str(forked.place), "--cancel", "--json").json
    assert (found["cancelled"], found["source"]) == (True, str(forked.place))
    assert found["target"] == "s3://there/lake"
    assert found["objects"] is None


def test_places_that_cannot_be_are_refused(forked: Terminal, tmp_path: Path) -> None:
    here, nowhere = str(forked.place), str(tmp_path / "nowhere")
    assert "already" in forked.plain("copy", here, here, status=3).err
    assert "there is no lake" in forked.plain("copy", nowhere, nowhere + "2", status=4).err
    assert not Path(nowhere + "2").exists()
    penstock.init(nowhere).close()
    refused = forked.plain("copy", here, nowhere, "--json", status=3)
    assert refused.error["code"] == "lake_exists"
    forked.put("t", "t-1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["LAKE"], "say where to"),
        ([], "SOURCE"),
        (["LAKE", "target", "--cancel"], "nothing else"),
        (["LAKE", "--cancel", "--fork"], "nothing else"),
        (["LAKE", "target", "--lake", "other"], "not by --lake"),
    ],
)
def test_a_copy_that_is_not_understood_is_a_usage_error(
    arguments: list[str], message: str, forked: Terminal
) -> None:
    given = [argument.replace("LAKE", str(forked.place)) for argument in arguments]
    assert message in forked.plain("copy", *given, status=2).err


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_where_it_is_known_how_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Tty()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "REDRAW_S", 0)
    with progress.Bar() as bar:
        bar("sealing references", 1200, 0)
        assert stream.getvalue() == "\r\x1b[Ksealing references 1,200"
        bar("copying objects", 500, 2000)
        assert stream.getvalue().endswith(f"copying objects {'█' * 7}{'░' * 23}  25% of 2,000")
        bar("copying objects", 2001, 2000)
        assert stream.getvalue().endswith(f"{'█' * 30} 100% of 2,000")
    assert stream.getvalue().endswith("\r\x1b[K")
