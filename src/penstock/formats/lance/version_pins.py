"""Pins: tags that keep Lance's own cleanup from removing versions that the lake needs.

Lance's clean-up knows one folder, and nothing of the lake. It removes every version but the newest, with the
files that no other one has, unless a version is tagged. A branch or a tag of the lake may be at an older one,
a commit has one that may be looked at or restored, and what another chain took names files that stay here. So
**a version is tagged, in Lance's own way, before anybody can see its successor**: whoever cleans up has seen
the successor, and finds the tag. These are no tags of the table. The sweep removes those whose version no
kept commit has, and they go with the folder of their chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.errors import OutcomeUnknown
from penstock.formats.lance.merge_sides import NumberedVersion
from penstock.formats.lance.names import MAIN, PINS, REFS_OF_TAGS, STAGING
from penstock.formats.lance.state import LanceVersionReader
from penstock.model.clock import to_utc_datetime
from penstock.model.encoding import hash_parts
from penstock.storage.places import Place

MARK: Final = "penstock"
"""The entry of a pin's metadata by which it is known."""
WHY: Final = "commits of the lake have this version; penstock sweep removes the tag when none has it any more"
"""For whoever lists a table's tags."""


def write_pin(place: Place, version: NumberedVersion, branch: str, now_us: int) -> None:
    """Keep a version, of one of Lance's own branches in a chain, from being cleaned up. Raises as storage
    does; one that is pinned already stays so."""
    time = to_utc_datetime(now_us).isoformat(timespec="microseconds").replace("+00:00", "Z")
    tag_fields: dict[str, object] = {
        "branch": branch or None,
        "version": version.number,
        "createdAt": time,
        "updatedAt": time,
        "manifestSize": version.version.size,
        "metadata": {MARK: WHY},
    }
    name = f"{version.version.chain}{REFS_OF_TAGS}{make_pin_name(branch, version.number)}.json"
    with suppress(OutcomeUnknown):
        place.create(name, msgspec.json.encode(tag_fields))
        return
    if place.size(name) is None:
        raise OutcomeUnknown(f"it is not known whether {place.url}/{name} was written; try again")


def make_pin_name(branch: str, number: int) -> str:
    """The name of the tag that pins a version of one of Lance's own branches."""
    own = f"{hash_parts('lance pin', branch.encode()).hex()[:8]}-" if branch else ""
    return f"{PINS}{own}{number}"


def find_version_to_pin(
    place: Place, versions: LanceVersionReader, branch: str, number: int
) -> tuple[str, NumberedVersion] | None:
    """The version, and Lance's own branch of it, that may be cleaned up once a version of a branch is seen.

    That is the one before it which is where Lance looks: a transaction has its versions elsewhere. The first
    one of a branch of Lance's own comes after the one that it forks from.
    """
    for before, version in versions.list_versions(branch, number):
        if STAGING not in version.staged or place.size(version.promoted_path(branch, before)) is not None:
            return branch, NumberedVersion(before, version)
    own = versions.get_branch(branch) if branch != MAIN else None
    parent = None if own is None else versions.get_version(own.parent, own.version)
    return None if own is None or parent is None else (own.parent, NumberedVersion(own.version, parent))


def is_pin(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether a tag, by its name and what its file says, is a pin and no tag of the table."""
    metadata = fields.get("metadata")
    return name.startswith(PINS) and isinstance(metadata, dict) and MARK in metadata


def parse_pin(fields: Mapping[str, Any]) -> tuple[str, int] | None:
    """Lance's own branch and the number that a pin's file says; ``None`` if it says none."""
    branch, number = fields.get("branch") or MAIN, fields.get("version")
    return (branch, number) if isinstance(branch, str) and isinstance(number, int) else None
