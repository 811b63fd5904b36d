"""Leftovers: which files in a Lance table's folder nothing needs, as far as their names tell.

Whatever a kept version names stays, and so does whatever is not known here. The rest goes when it is old
enough: data that no version names, manifests of versions that are not told any more or never were, what is
put apart for transactions that never landed, and lines that no branch goes on in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import Final, NamedTuple

from penstock.formats.lance.lake.retained_tables import RetainedTable
from penstock.formats.lance.names import MANIFEST, STAGING, TRANSACTIONS, VERSION_MAX, VERSIONS
from penstock.storage.buckets import BucketEntry
from penstock.storage.sweep_decisions import SweepDecision

LINE: Final = re.compile(r"_penstock/[0-9a-f]{32}/")
_BRANCH: Final = re.compile(r"tree/(?P<name>.+)/", re.DOTALL)
_V2_DIGITS: Final = 20
_LAST: Final = 2**64 - 1
_DATA: Final = ("data/", "_deletions/", "_indices/")
HINT: Final = "latest_version_hint.json"
"""A file beside manifests that tells which version was the newest when it was written."""


class FoundFile(NamedTuple):
    """The manifest of a version, by its name."""

    chain: str
    branch: str
    number: int


class LanceNeeds(NamedTuple):
    """By what files are judged."""

    table: RetainedTable
    names: Callable[[str], bool]
    """Whether a file is named, by its whole path or URL."""
    foreign: Container[str]
    """Manifests, and folders, of versions that others than the lake have put there."""
    before_us: int
    """Only what was written before then is old enough."""


def parse_manifest_path(key: str) -> FoundFile | None:
    """The version that a file below a table's folder is the manifest of, where everybody looks; ``None`` if
    it is no such file."""
    folder, slash, name = key.rpartition(VERSIONS)
    number = name.removesuffix(MANIFEST)
    if not slash or not name.endswith(MANIFEST) or not number.isdecimal() or not number.isascii():
        return None
    chain = match.group() if (match := LINE.match(folder)) else ""
    own = folder.removeprefix(chain)
    branch = _BRANCH.fullmatch(own)
    if own and branch is None:
        return None
    version = _LAST - int(number) if len(number) == _V2_DIGITS else int(number)
    return (
        FoundFile(chain, branch["name"] if branch else "", version) if 0 <= version <= VERSION_MAX else None
    )


def is_data(key: str) -> bool:
    """Whether a file has rows, or what belongs to rows: which of them are gone, or where they are found."""
    return any(f"/{folder}" in f"/{key}" for folder in _DATA)


def judge_file(entry: BucketEntry, needs: LanceNeeds) -> SweepDecision:
    """What becomes of a file."""
    fate = _decide_fate(entry.key, needs)
    if fate in (SweepDecision.DATA, SweepDecision.SCRATCH) and entry.modified_us >= needs.before_us:
        return SweepDecision.WAITING
    return fate


def _decide_fate(key: str, needs: LanceNeeds) -> SweepDecision:
    table = needs.table
    if needs.names(f"{table.location}/{key}") or key in needs.foreign:
        return SweepDecision.KEPT
    line = LINE.match(key)
    chain, inside = (line.group(), key[line.end() :]) if line else ("", key)
    branch = _BRANCH.match(inside)
    parts = f"/{inside}"
    if is_data(inside):
        return SweepDecision.DATA
    if f"/{VERSIONS}" in parts:
        return _decide_fate_of_manifest(key, chain, needs)
    if f"/{STAGING}" in parts or f"/{TRANSACTIONS}" in parts:
        return SweepDecision.SCRATCH
    if (line or branch) and chain not in table.lines:
        return SweepDecision.SCRATCH
    return SweepDecision.KEPT


def _decide_fate_of_manifest(key: str, chain: str, needs: LanceNeeds) -> SweepDecision:
    """What becomes of a file that is beside manifests and is not one that is named."""
    folder, _, name = key.rpartition(VERSIONS)
    if name == HINT:
        return (
            SweepDecision.KEPT
            if needs.table.has_chain_folder(folder) or folder in needs.foreign
            else SweepDecision.SCRATCH
        )
    manifest = parse_manifest_path(key)
    if manifest is not None and needs.table.is_copy(chain, manifest.branch, manifest.number):
        return SweepDecision.KEPT
    return SweepDecision.DATA if name.endswith(MANIFEST) else SweepDecision.SCRATCH
