"""The constraints that users get name exactly the versions that the tests run with."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from penstock.cli.installation import parse_release, read_requirements

ROOT: Final = Path(__file__).parents[2]
CONSTRAINTS: Final = ROOT / "src" / "penstock" / "constraints.txt"
BESIDE: Final = "deltalake"
"""What the documents install beside Penstock."""


def lines(file: Path) -> set[str]:
    """The pins of a file, each with its marker, without hashes."""
    return set(re.findall(r"^([a-z][\w.-]*==[^\\\n]*?)(?: \\)?$", file.read_text("utf-8"), re.MULTILINE))


def named_here() -> dict[str, str]:
    """The versions that the constraints name for this Python and this system."""
    pins = [Requirement(line) for line in lines(CONSTRAINTS)]
    return {
        pin.name: next(iter(pin.specifier)).version for pin in pins if not pin.marker or pin.marker.evaluate()
    }


def installed_with_all_extras() -> dict[str, str]:
    """Every library that Penstock with all its extras brings, as it is installed here."""
    found: dict[str, str] = {}
    extras = metadata.metadata("penstock").get_all("Provides-Extra") or []
    waiting = [(Requirement(f"penstock[{','.join(extras)}]")), Requirement(BESIDE)]
    seen: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        name = canonicalize_name(wanted.name)
        found[name] = metadata.version(name)
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            contexts = [{"extra": extra} for extra in ("", *wanted.extras)]
            if needed.marker is None or any(needed.marker.evaluate(one) for one in contexts):
                waiting.append(needed)
    found.pop("penstock")
    return found


def test_every_constraint_is_a_pin_of_the_tests() -> None:
    assert lines(CONSTRAINTS) - lines(ROOT / "requirements" / "dev.txt") == set()


def test_the_constraints_name_exactly_what_is_tested() -> None:
    assert named_here() == installed_with_all_extras()


def test_the_lowest_versions_are_those_of_the_bounds() -> None:
    pins = {Requirement(line).name: line for line in lines(ROOT / "requirements" / "lowest.txt")}
    for needed in read_requirements().values():
        for one in needed:
            [bound] = [parse_release(version) for sign, version in one.bounds if sign == ">="]
            pinned = parse_release(pins[one.name].partition("==")[2])
            assert pinned[: len(bound)] == bound, f"{pins[one.name]}; run `make lock`"


@pytest.mark.parametrize("name", ["dev", "lowest", "release"])
def test_every_pin_has_a_hash(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")
    pins = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert pins
    assert [pin.splitlines()[0] for pin in pins if "--hash=sha256:" not in pin] == []
