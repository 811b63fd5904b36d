"""Copying and moving a lake from the command line."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock.cli import progress
from penstock.kernel.lake_seal import seal_lake
from tests.cli.conftest import Terminal


def test_a_move_says_what_was_done_and_the_old_place_says_where_to_go(
    forked: Terminal, tmp_path: Path
) -> None:
    target = tmp_path / "new" / "place"
    lines = forked.plain("move", str(forked.place), str(target), "--yes", "--author", "mover").lines
    assert lines[0] == f"moved {forked.place} to {target}"
    assert lines[1:3] == ["  copied  2 references", "          4 commits"]
    assert lines[4:] == [
        "checked: nothing is wrong",
        f"{forked.place} can still be read; write to {target} from now on",
    ]
    refused = forked("put", "t", "--type", "lance", status=1)
    assert f"has moved to {target}; write there" in refused.err
    assert "--lake LOCATION, or the variable PENSTOCK_LAKE" in refused.err
    refused = forked("branch", "create", "new", "--json", status=1)
    assert refused.error["code"] == "lake_moved"
    assert refused.error["details"]["target"] == str(target)
    there = Terminal(target)
    assert there("log").lines == forked("log").lines
    there.put("t", "t-1")
    events = there.json("reflog", "dev")["items"]
    assert (events[0]["event"], events[0]["who"]) == ("seal", "mover")
    assert there("reflog", "dev").lines[0].startswith("#4  seal    was at")
    assert there.json("fsck")["damages"] == []


def test_a_move_as_an_object(forked: Terminal, tmp_path: Path) -> None:
    target = tmp_path / "there"
    with penstock.open(forked.place) as lake:
        identity = lake.id
    first = forked.plain("move", str(forked.place), f"sqlite://{target}", "--yes", "--json").json
    copied = first["copied"]
    places = {"source": str(forked.place), "target": str(target)}
    assert first == {"state": "moved", **places, "copied": copied}
    assert copied == {
        **places,
        "id": identity,
        "references": 2,
        "commits": 4,
        "objects": copied["objects"],
        "size_bytes": copied["size_bytes"],
        "is_fork": False,
        "repeated": False,
    }
    assert copied["objects"] > 10
    assert copied["size_bytes"] > 1000
    again = forked.plain("move", str(forked.place), str(target), "--yes", "--json").json
    assert again == first | {"copied": copied | {"repeated": True}}
    text = forked.plain("move", str(forked.place), str(target), "--yes").lines[0]
    assert text == f"moved {forked.place} to {target} (it was complete before)"


def test_a_copy_goes_its_own_way(forked: Terminal, tmp_path: Path) -> None:
    twin = Terminal(tmp_path / "twin")
    lines = forked.plain("copy", str(forked.place), str(twin.place)).lines
    assert lines[0] == f"copied {forked.place} to {twin.place}"
    assert lines[-1] == "checked: nothing is wrong"
    twin.put("only.here", "here-1")
    forked.put("only.there", "there-1")
    assert "only.here" not in forked("tables").out
    with penstock.open(forked.place) as lake, penstock.open(twin.place) as other:
        assert other.forked_from == lake.id != other.id


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_move_that_nobody_confirms_changes_nothing(
    forked: Terminal, tmp_path: Path, options: list[str]
) -> None:
    target = tmp_path / "there"
    refused = forked.plain("move", str(forked.place), str(target), *options, status=2)
    assert "use --yes" in refused.err
    assert not target.exists()
    forked.put("t", "t-1")


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_a_move_asks_whoever_is_there(forked: Terminal, tmp_path: Path, answer: str) -> None:
    target = tmp_path / "there"
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [sys.executable, "-m", "penstock.cli.main", "move", str(forked.place), str(target)]
    found = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)
    for one in (ours, theirs):
        os.close(one)
    assert found.returncode == (0 if answer == "y" else 1), found.stderr
    assert f"From now on {forked.place} takes no more writes" in found.stdout
    assert target.exists() == (answer == "y")
    if answer != "y":
        assert "nothing was moved" in found.stderr
        forked.put("t", "t-1")


def test_a_move_is_undone_until_somebody_writes_to_the_target(forked: Terminal, tmp_path: Path) -> None:
    here, there = str(forked.place), tmp_path / "there"
    forked.plain("move", here, str(there), "--yes")
    lines = forked.plain("move", here, str(there), "--undo").lines
    assert lines[0] == f"the lake is at {here} again, and takes writes there"
    forked.put("t", "t-1")
    assert f"has moved to {here}" in Terminal(there)("put", "t", "--type", "lance", status=1).err
    other = tmp_path / "other"
    forked.plain("move", here, str(other), "--yes")
    Terminal(other).put("t", "t-2")
    refused = forked.plain("move", here, str(other), "--undo", status=1)
    assert "these were written there since: 'main'" in refused.err
    Terminal(other).put("t", "t-3")
    found = forked.plain("move", here, str(there), "--undo", "--json", status=1)
    assert "was not moved to" in found.error["message"]


def test_an_undone_move_as_an_object(forked: Terminal, tmp_path: Path) -> None:
    here, there = str(forked.place), str(tmp_path / "there")
    forked.plain("move", here, there, "--yes")
    found = forked.plain("move", here, there, "--undo", "--json").json
    assert found == {"state": "undone", "source": here, "target": there, "copied": None}


def test_a_move_can_be_cancelled_until_it_is_complete(forked: Terminal, tmp_path: Path) -> None:
    with penstock.open(forked.place) as lake, ThreadPoolExecutor(1) as workers:
        list(seal_lake(lake.kernel, "some-copy", "postgresql://there/lake", "mover", workers))
    refused = forked("put", "t", "--type", "lance", status=1)
    assert "is moving to postgresql://there/lake" in refused.err
    assert "--cancel" in refused.err
    target = str(tmp_path / "target")
    assert "is moving to" in forked.plain("move", str(forked.place), target, "--yes", status=1).err
    assert forked.plain("move", str(forked.place), "--cancel").lines == [
        f"{forked.place} stays where it is and takes writes again"
    ]
    forked.put("t", "t-1")
    assert "nothing to cancel" in forked.plain("move", str(forked.place), "--cancel", status=1).err
    forked.plain("move", str(forked.place), target, "--yes")
    assert "has moved" in forked.plain("move", str(forked.place), "--cancel", status=1).err


def test_a_cancelled_move_as_an_object(forked: Terminal) -> None:
    with penstock.open(forked.place) as lake, ThreadPoolExecutor(1) as workers:
        list(seal_lake(lake.kernel, "some-copy", "s3://there/lake", "mover", workers))
    found = forked.plain("move", str(forked.place), "--cancel", "--json").json
    places = {"source": str(forked.place), "target": "s3://there/lake"}
    assert found == {"state": "cancelled", **places, "copied": None}


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
        (["move", "LAKE"], "TARGET is missing"),
        (["move", "LAKE", "--undo"], "TARGET is missing"),
        (["move"], "SOURCE"),
        (["move", "LAKE", "target", "--cancel"], "SOURCE only"),
        (["move", "LAKE", "--cancel", "--undo"], "SOURCE only"),
        (["move", "LAKE", "target", "--lake", "other"], "not as --lake"),
        (["copy", "LAKE"], "TARGET"),
        (["copy", "LAKE", "target", "--lake", "other"], "not as --lake"),
    ],
)
def test_a_command_that_is_not_understood_is_a_usage_error(
    arguments: list[str], message: str, forked: Terminal
) -> None:
    given = [argument.replace("LAKE", str(forked.place)) for argument in arguments]
    assert message in forked.plain(*given, status=2).err


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_where_it_is_known_how_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Tty()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "REDRAW_S", 0)
    with progress.ProgressBar() as bar:
        bar("sealing references", 1200, 0)
        assert stream.getvalue() == "\r\x1b[Ksealing references 1,200"
        bar("copying objects", 500, 2000)
        assert stream.getvalue().endswith(f"copying objects {'█' * 7}{'░' * 23}  25% of 2,000")
        bar("copying objects", 2001, 2000)
        assert stream.getvalue().endswith(f"{'█' * 30} 100% of 2,000")
    assert stream.getvalue().endswith("\r\x1b[K")
