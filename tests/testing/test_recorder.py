"""The recorder: what was called and answered outlives the process that did it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from penstock.errors import CommitConflict, InvalidRequest, OutcomeUnknown, Unavailable
from penstock.testing import Recorder
from penstock.testing.recorder import Answer, ReadDone, attempts, load


def test_calls_and_answers_are_read_back_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    recorder = Recorder("c", path)
    with recorder.call("k", {"x": "1", "y": None}, {"x": "0"}) as call:
        call.commit = "abc"
    recorder.read(1, {"x": "1"}, "abc")
    recorder.close()
    events = load([path])
    assert events == recorder.events
    (attempt,) = attempts(events)
    assert (attempt.answer, attempt.commit, attempt.call.key) == (Answer.OK, "abc", "k")
    assert (attempt.call.writes, attempt.call.reads) == ({"x": "1", "y": None}, {"x": "0"})
    assert attempt.returned_ns is not None
    assert attempt.call.at_ns < attempt.returned_ns
    assert isinstance(events[-1], ReadDone)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (CommitConflict(()), Answer.REFUSED),
        (InvalidRequest("no"), Answer.REFUSED),
        (Unavailable("later"), Answer.NOT_NOW),
        (OutcomeUnknown("who knows"), Answer.UNKNOWN),
        (ZeroDivisionError(), Answer.UNKNOWN),
        (KeyboardInterrupt(), Answer.UNKNOWN),
    ],
)
def test_an_error_is_recorded_as_what_it_says_and_goes_on(error: BaseException, answer: Answer) -> None:
    recorder = Recorder("c")
    with pytest.raises(type(error)), recorder.call("k", {}, {}):
        raise error
    (attempt,) = attempts(recorder.events)
    assert attempt.answer is answer
    assert type(error).__name__ in attempt.why


def test_a_line_that_was_not_written_whole_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    recorder = Recorder("c", path)
    with recorder.call("k", {"x": "1"}, {}):
        pass
    recorder.close()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert len(load([path])) == whole[:length].count(b"\n")


def test_a_killed_process_has_lost_nothing_that_it_recorded(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    code = """
        import os, signal, sys
        from penstock.testing.recorder import Recorder
        recorder = Recorder("victim", sys.argv[1])
        for number in range(100):
            with recorder.call(f"k{number}", {"x": str(number)}, {}):
                if number == 60:
                    os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", dedent(code), str(path)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    made = attempts(load([path]))
    assert [attempt.call.key for attempt in made] == [f"k{number}" for number in range(61)]
    assert {attempt.answer for attempt in made[:60]} == {Answer.OK}
    assert (made[60].answer, made[60].returned_ns) == (Answer.UNKNOWN, None)
