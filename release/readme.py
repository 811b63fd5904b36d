"""README.md as a reader has it: installed by its own command, and run from top to bottom."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from release import ROOT, environments

README = ROOT / "README.md"


class Install(NamedTuple):
    """What README's command installs."""

    extras: tuple[str, ...]
    others: tuple[str, ...]
    """Libraries beside Penstock."""
    constraints: str


def find_install(text: str) -> Install:
    """The command in README that installs what the page needs; ``ValueError`` if there is not exactly one."""
    [command] = re.findall(r"^\$ (pip install .*'\.\[.*)$", text, re.MULTILINE)
    words = shlex.split(command, comments=True)[2:]
    at = words.index("-c")
    constraints = words[at + 1]
    [own, *others] = words[:at] + words[at + 2 :]
    found = re.fullmatch(r"\.\[([\w,]+)\]", own)
    if found is None:
        raise ValueError(f"not an installation from the checkout: {command}")
    return Install(tuple(found[1].split(",")), tuple(others), constraints)


def try_out(wheel: Path, scratch: Path) -> None:
    """Install a wheel with exactly README's extras, and run README there; ``SystemExit`` if that fails."""
    wanted = find_install(README.read_text("utf-8"))
    python = environments.create(scratch / "environment")
    environments.install(python, [f"{wheel}[{','.join(wanted.extras)}]", *wanted.others])
    place = scratch / "place"
    place.mkdir()
    environments.run([python, "-m", "tests.documents.runner", README, place])
