"""The installed program: start-up, terminals, pipes, signals, completion."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root
from penstock.model.nessie import IcebergTable
from tests.cli.conftest import Terminal

PROGRAM = str(Path(sys.executable).parent / "penstock")
TIMEOUT_S = 60


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "LC_ALL": "C.UTF-8", "TERM": "xterm", **more}


def run(*args: str, stdin: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the program with nobody there to answer a question."""
    given: dict[str, object] = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [PROGRAM, *args],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(**more),
        check=False,
        **given,
    )


def on_a_terminal(*args: str, **more: str) -> str:
    """What the program writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [PROGRAM, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(COLUMNS="80", **more)
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so when the other end is closed
                break
            if not part:
                break
            written += part
        process.wait(TIMEOUT_S)
    os.close(ours)
    return written.decode()


@pytest.fixture
def long(tmp_path: Path) -> Terminal:
    """A lake with a log of many lines."""
    with penstock.open(tmp_path / "lake", author="ada") as lake:
        for number in range(400):
            lake.branch().put(
                f"t{number % 7}", IcebergTable(metadata_location=f"s3://b/{number}"), message="x" * 200
            )
    return Terminal(tmp_path / "lake")


def test_the_program_runs_from_anywhere(forked: Terminal, tmp_path: Path) -> None:
    ran = run("tables", "--lake", str(forked.place))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == forked("tables").out  # the log tells how long ago, which is another time each time
    module = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "--version"], capture_output=True, text=True, check=True
    )
    assert module.stdout == run("--version").stdout


def test_help_loads_neither_the_lake_nor_any_command() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "from penstock.cli.main import main\n"
        "sys.argv = ['penstock', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('penstock.lake', 'penstock.kernel', 'penstock.cli.commands', 'msgspec', 'sqlite3',\n"
        "         'importlib.metadata', 'email', 'html', 'zipfile', 'socket')\n"
        "print(sorted(name for name in {*sys.modules} - before if name.startswith(heavy)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


def test_a_reader_that_stops_reading_is_no_error(long: Terminal) -> None:
    script = f"{PROGRAM} log -n 400 --lake {long.place} | head -1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(),
        check=True,
    )
    first, status = ran.stdout.splitlines()
    assert (first[0], status, ran.stderr) == ("●", "141", "")


def test_a_reader_that_never_reads_is_no_error(forked: Terminal) -> None:
    # Little enough to fit into the buffer: the program only notices when it flushes at its end.
    script = f"{PROGRAM} branch --lake {forked.place} | true; echo ${{PIPESTATUS[0]}}"
    for _ in range(3):
        ran = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment(),
            check=True,
        )
        assert ran.stderr == ""
        assert ran.stdout.strip() in ("0", "141")


def _ageless(log: str) -> str:
    """A log without how long ago its commits were, which grows from one program to the next."""
    return re.sub(r"just now|\d+ (?:s|min) ago", "then", log)


def test_colours_are_for_terminals(forked: Terminal) -> None:
    plain = run("log", "--lake", str(forked.place)).stdout
    assert "\x1b" not in plain
    painted = on_a_terminal("log", "--lake", str(forked.place))
    assert "\x1b[33m" in painted
    without_colours = re.sub(r"\x1b\[[0-9;]*m", "", painted).replace("\r\n", "\n")
    assert _ageless(without_colours) == _ageless(plain)
    assert "\x1b" not in on_a_terminal("log", "--lake", str(forked.place), NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("log", "--lake", str(forked.place), TERM="dumb")
    assert "\x1b" not in on_a_terminal("log", "--json", "--lake", str(forked.place))
    assert "\x1b[1;31mpenstock:\x1b[0m there is no" in on_a_terminal("log", "x", "--lake", str(forked.place))


def test_lines_fit_on_a_terminal_and_stay_whole_in_a_pipe(long: Terminal) -> None:
    shown = on_a_terminal("log", "-n", "3", "--lake", str(long.place), NO_COLOR="1").replace("\r\n", "\n")
    assert max(map(len, shown.splitlines())) == 80
    assert "xxx…  ada  " in shown
    assert "x" * 200 in run("log", "-n", "3", "--lake", str(long.place)).stdout


def test_a_terminal_without_lines_gets_plain_characters(forked: Terminal) -> None:
    forked("merge", "dev", "--default", "force")
    shown = run("log", "--lake", str(forked.place), LC_ALL="C", PYTHONIOENCODING="ascii")
    assert shown.returncode == 0
    assert shown.stdout.isascii()
    assert shown.stdout.startswith("*-\\  ")
    forked("put", "größe", "--type", "lance")
    assert "gr\\xf6\\xdfe" in run("tables", "--lake", str(forked.place), PYTHONIOENCODING="ascii").stdout


def test_nothing_asks_a_question(forked: Terminal) -> None:
    lake = ["--lake", str(forked.place)]
    assert run("branch", "delete", "dev", *lake).returncode == 0
    assert run("put", "t", "--content", "-", *lake).returncode == 1
    assert run("put", "t", "--content", "-", *lake, stdin='{"type": "LANCE_TABLE"}').returncode == 0
    for command in (
        ["delete", "sales.orders"],
        ["sweep", "--nobody-writes", "--grace-s", "0"],
        ["fsck"],
        ["doctor"],
    ):
        assert forked(*command, stdin="").err == ""


def test_an_interruption_ends_with_130_and_no_traceback(terminal: Terminal) -> None:
    with subprocess.Popen(
        [PROGRAM, "put", "t", "--content", "-", "--lake", str(terminal.place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(PYTHONFAULTHANDLER=""),
    ) as process:
        _wait_until_it_reads(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err.strip()) == (130, b"", b"")
    assert terminal("log").lines == ["no commits yet"]


def _wait_until_it_reads(pid: int) -> None:
    """Until the process sleeps in the read of its standard input, which is a pipe."""
    wchan = Path(f"/proc/{pid}/syscall")
    while True:
        try:
            number, descriptor = wchan.read_text().split()[:2]
        except (ValueError, PermissionError):
            continue
        if int(number) == 0 and int(descriptor, 16) == 0:
            return


def test_bytes_that_are_no_text_are_refused(terminal: Terminal) -> None:
    for arguments in ([b"a\xff", b"-m", b"text"], [b"a", b"-m", b"\xff"]):
        ran = subprocess.run(
            [PROGRAM, "put", *arguments, "--type", "lance", "--lake", str(terminal.place)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment(),
            check=False,
        )
        assert (ran.returncode, "\\udcff' is not valid text" in ran.stderr) == (2, True)
        assert "unexpected" not in ran.stderr
    assert terminal("log").lines == ["no commits yet"]


# -- completion --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(shell: str) -> None:
    ran = run("completion", shell)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in ran.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=ran.stdout, text=True, check=True, env=environment())


def asked(*words: str) -> dict[str, str]:
    """How bash asks what it may offer for the last of some words."""
    return {
        "_PENSTOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["penstock", *words]),
        "COMP_CWORD": str(len(words)),
    }


def completed(*words: str, **more: str) -> list[str]:
    """What bash offers for the last of some words."""
    ran = CliRunner().invoke(root, env={**asked(*words), **more})
    assert (ran.exit_code, ran.stderr) == (0, "")
    return [line.partition(",")[2] for line in ran.stdout.split()]


def test_the_program_completes_when_the_shell_asks(forked: Terminal) -> None:
    ran = run(**asked("log", "d"), PENSTOCK_LAKE=str(forked.place))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "plain,dev\n", "")


def test_commands_names_and_keys_are_completed(forked: Terminal) -> None:
    forked("tag", "create", "daily")
    lake = {"PENSTOCK_LAKE": str(forked.place)}
    assert completed("re", **lake) == ["reflog", "rebase", "revert", "restore", "resync", "restore-backup"]
    assert completed("branch", "as", **lake) == ["assign"]
    assert completed("log", "d", **lake) == ["dev", "daily"]
    assert completed("merge", "--into", "m", **lake) == ["main"]
    assert completed("branch", "delete", "d", **lake) == ["dev"]
    assert completed("show", "main", "sales.o", **lake) == ["sales.orders"]
    assert completed("--lake", str(forked.place), "tag", "delete", "d") == ["daily"]
    assert completed("merge", "--def", **lake) == ["--default"]


def test_completion_makes_no_lake_and_never_fails(tmp_path: Path) -> None:
    assert completed("log", "d", PENSTOCK_LAKE=str(tmp_path / "nowhere")) == []
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "penstock.db").write_bytes(b"damaged" * 1000)
    assert completed("log", "d", PENSTOCK_LAKE=str(tmp_path)) == []
    assert completed("show", "main", "x..y.", PENSTOCK_LAKE=str(tmp_path)) == []


def test_a_completion_script_in_json(terminal: Terminal) -> None:
    found = terminal.json("completion", "bash")
    assert sorted(found) == ["script", "shell"]
