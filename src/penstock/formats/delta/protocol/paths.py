"""Whether an address in the log is one that every reader finds."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from penstock.formats.delta.protocol.names import LOG
from penstock.storage.places import SCRATCH

PATH_MAX: Final = 4096
"""Characters of an address; file systems take no more either."""

BRANCH_DATA: Final = f"{SCRATCH}/data/"
"""Below the table's root: data files that branches write. No engine that cleans up the table looks there, and
until the branch is merged its log does not name them."""

_NOT_FOR_DATA: Final = frozenset({LOG.rstrip("/"), SCRATCH})
"""Folders of a table, be it this one or one below it, for what is no data."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_ROOT: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*:)?/*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_IN_A_URI: Final = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}\[\]#?]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def path_fault(path: str, *, absolute_allowed: bool = False) -> str | None:
    """What is wrong with the percent-encoded address of a file, or ``None``.

    An address is decoded once, as readers do, and judged by what comes out: ``%2e%2e`` is ``..`` and leads
    out of the table, ``%252e`` is the name ``%2e``. Characters that no address may hold unencoded are
    refused, because strict readers fail on them and lenient ones disagree about what they mean.
    """
    if not path:
        return "the path is empty"
    if len(path) > PATH_MAX:
        return f"the path {path[:60]!r}… has {len(path)} characters; at most {PATH_MAX} are taken"
    if match := _NOT_IN_A_URI.search(path):
        return f"the path {path!r} holds {match[0]!r}, which must be percent-encoded"
    if _BAD_ESCAPE.search(path):
        return f"the path {path!r} holds a '%' that does not begin an encoded character; encode it as '%25'"
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return f"the path {path!r} does not decode to UTF-8"
    if _CONTROL.search(decoded):
        return f"the path {path!r} holds a control character"
    # An encoded colon makes no scheme, except to those who decode before they look.
    absolute = path.startswith("/") or _SCHEME.match(path) or decoded.startswith("file:/")
    if absolute and not absolute_allowed:
        return f"the path {path!r} is absolute; give it relative to the table"
    steps = _ROOT.sub("", decoded, count=1).split("/") if absolute else decoded.split("/")
    if wrong := {"", ".", ".."}.intersection(steps):
        return f"the path {path!r} holds the step {min(wrong)!r}; give the shortest path there is"
    if not absolute and decoded.startswith(BRANCH_DATA):
        steps = steps[2:]
    if reserved_steps := _NOT_FOR_DATA.intersection(steps):
        return f"the path {path!r} lies in '{min(reserved_steps)}', which is not for data files"
    return None
