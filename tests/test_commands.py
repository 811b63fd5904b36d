"""The commands of the Makefile, and the scripts with which they install what is missing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXTS = ("*.md", "docs/**/*.md", "benchmarks/*", "tests/**/*.py", "scripts/*", ".ci/run", "pyproject.toml")
ENDS_MAX_S = 30.0


def commands() -> set[str]:
    [declared] = re.findall(r"^\.PHONY: (help .*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    return set(declared.split())


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")
def test_make_alone_lists_every_command() -> None:
    listed = subprocess.run(["make", "--silent"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z-]+) +\S", listed, re.MULTILINE)) == commands()


def test_texts_name_commands_that_there_are() -> None:
    named = {
        (str(file.relative_to(ROOT)), command)
        for pattern in TEXTS
        for file in ROOT.glob(pattern)
        if file.is_file()
        for command in re.findall(r"`make ([a-z-]+)", file.read_text("utf-8"))
    }
    assert len(named) > 20
    assert {(file, command) for file, command in named if command not in commands()} == set()


def start(directory: Path, script: str) -> subprocess.Popen[str]:
    """A script that installs parts."""
    lines = ["set -euo pipefail", "name=parts", f". '{ROOT}/scripts/parts.sh'", script]
    return subprocess.Popen(
        ["bash", "-c", "\n".join(lines)], cwd=directory, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )


def test_a_part_that_fails_stops_no_other_and_shows_the_end_of_its_log(tmp_path: Path) -> None:
    script = """
    good() { touch good; }
    bad() { echo the cause; false; touch never; }
    begin "the bad one" bad bad
    begin "the good one" good good
    finish || { say "not complete"; exit 3; }
    """
    process = start(tmp_path, script)
    printed, _ = process.communicate(timeout=ENDS_MAX_S)
    assert process.returncode == 3
    assert "the bad one could not be installed; the end of build/logs/parts-bad.log:\n" in printed
    assert "parts:     the cause\n" in printed
    assert "parts: installed the good one" in printed
    assert printed.endswith("parts: not complete\n")
    assert (tmp_path / "good").exists()
    assert not (tmp_path / "never").exists()


def test_what_is_installed_on_the_system_is_said_before_it_is(tmp_path: Path) -> None:
    script = """
    missing_packages() { echo default-jdk-headless; }
    id() { echo 0; }
    has() { true; }
    install_packages() { echo "$@" >installed; }
    begin_packages jdk
    finish
    """
    process = start(tmp_path, script)
    printed, _ = process.communicate(timeout=ENDS_MAX_S)
    said = "parts: installing default-jdk-headless from the system's packages (apt-get)\n"
    assert (process.returncode, printed.startswith(said)) == (0, True)
    assert (tmp_path / "installed").read_text() == "default-jdk-headless\n"


def test_an_interrupted_script_leaves_no_part_running_and_lets_packages_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "endless")
    os.mkfifo(tmp_path / "packages")
    script = """
    endless() { exec >endless; echo begun; sleep 1000; }
    packages() { read -r line <packages; echo "$line" >installed; }
    begin_uninterrupted "the packages" packages packages
    begin "the endless one" endless endless
    finish
    """
    process = start(tmp_path, script)
    with (tmp_path / "endless").open() as endless:
        assert endless.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert endless.read() == "", "only what has ended lets go of the pipe"
    (tmp_path / "packages").write_text("whole\n")
    printed, _ = process.communicate(timeout=ENDS_MAX_S)
    assert process.returncode == 130
    assert "parts: interrupted; waiting for what is under way to end\n" in printed
    assert "parts: installed the packages" in printed
    assert (tmp_path / "installed").read_text() == "whole\n"
