"""Registering: the versions of a table that was there before the lake knew it.

Its folder is read as Lance reads it: the manifests that are listed are its versions, by either way of naming
them, and small files tell of Lance's own branches and tags. The newest manifest is read, to see that it is.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from penstock.errors import InvalidTable, TableNotFound, UnsupportedFeature
from penstock.formats.lance.changing import FoundVersion
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.names import (
    MAIN,
    REFS_OF_BRANCHES,
    REFS_OF_TAGS,
    VERSION_MAX,
    VERSIONS,
    folder_of,
)
from penstock.formats.lance.pinning import is_pin
from penstock.formats.lance.state import (
    Entry,
    OwnBranch,
    OwnTag,
    Version,
    branch_key,
    tag_key,
    version_key,
)
from penstock.formats.lance.wire import Malformed
from penstock.model.decoders import json_decoder
from penstock.model.keys import Key
from penstock.storage.places import Place

RESERVED: Final = ".lance-reserved"
"""A file that tells that a table was declared here, and has no version yet."""
_LAST: Final = 2**64 - 1
_NAME: Final = re.compile(r"(\d{1,20})\.manifest")
_V2_DIGITS: Final = 20


def look_at(place: Place, key: Key) -> FoundVersion:
    """What is at a place. ``TableNotFound`` if no Lance table is, ``InvalidTable`` if it cannot be read."""
    entries = _versions(place, MAIN)
    if not entries and place.look(RESERVED) is None:
        raise TableNotFound(f"there is no Lance table at {place.url}, to be '{key}'", location=place.url)
    for name, said in _said(place, REFS_OF_BRANCHES):
        found = _versions(place, name)
        if not found:
            continue  # a branch that was begun, and has no version, is none
        entries |= found
        entries[branch_key(name)] = OwnBranch(
            parent=_text(said, "parentBranch"),
            version=_number(place, name, said, "parentVersion"),
            created_us=int(said.get("createAt") or 0) * 1_000_000,
            metadata=_metadata(said),
        )
    for name, said in _said(place, REFS_OF_TAGS):
        if is_pin(name, said):
            continue  # of a lake that the table was in before
        branch, version = _text(said, "branch"), _number(place, name, said, "version")
        if version_key(branch, version) in entries:
            entries[tag_key(name)] = OwnTag(
                branch=branch,
                version=version,
                created_us=_time_us(said.get("createdAt")),
                updated_us=_time_us(said.get("updatedAt")),
                metadata=_metadata(said),
            )
    return FoundVersion(entries)


def _versions(place: Place, branch: str) -> dict[bytes, Entry]:
    """The versions of one of Lance's branches; the newest one is checked."""
    found = versions_at(place, branch)
    if found:
        _check(place, branch, max(found), found[max(found)][0])
    return {version_key(branch, number): version for number, (_, version) in found.items()}


def versions_at(place: Place, branch: str) -> dict[int, tuple[str, Version]]:
    """The manifests in the folder of one of Lance's branches, by version: the name, and what that tells."""
    folder = folder_of("", branch) + VERSIONS
    found: dict[int, tuple[str, Version]] = {}
    for entry in place.list(folder):
        match = _NAME.fullmatch(entry.key.removeprefix(folder))
        if match is None:
            continue  # staged by somebody, or of no chain
        is_v1 = len(match[1]) < _V2_DIGITS
        number = int(match[1]) if is_v1 else _LAST - int(match[1])
        if 0 < number <= VERSION_MAX:
            version = Version(size=entry.size, time_us=entry.modified_us, is_v1=is_v1)
            found[number] = entry.key, version
    return found


def _check(place: Place, branch: str, number: int, name: str) -> None:
    (data,) = place.read([name])
    try:
        manifest = Manifest.read(data or b"")
        says = manifest.version, manifest.branch or MAIN
    except Malformed as problem:
        raise InvalidTable(f"{place.url}/{name} is no manifest: {problem}", location=place.url) from None
    if says != (number, branch):
        raise InvalidTable(
            f"{place.url}/{name} says that it is version {says[0]} of branch '{says[1] or 'main'}'",
            location=place.url,
        )
    if not manifest.data_format.startswith("2"):
        raise UnsupportedFeature(
            f"the table at {place.url} is in Lance's oldest file format, which cannot be branched\n"
            "  Write it anew with Lance, and register that.",
            location=place.url,
        )


def _said(place: Place, folder: str) -> list[tuple[str, dict[str, Any]]]:
    """What the small files below a folder say, by the names that they have."""
    names = [one.key for one in place.list(folder) if one.key.endswith(".json")]
    found: list[tuple[str, dict[str, Any]]] = []
    for name, data in zip(names, place.read(names), strict=True):
        try:
            said = json_decoder(dict[str, Any]).decode(data or b"")
        except msgspec.MsgspecError as problem:
            raise InvalidTable(f"{place.url}/{name} cannot be read: {problem}", location=place.url) from None
        found.append((unquote(name.removeprefix(folder).removesuffix(".json")), said))
    return found


def _text(said: dict[str, Any], field: str) -> str:
    """The branch that a field names; Lance's main one has no name."""
    found = said.get(field)
    return MAIN if found in (None, "main") else str(found)


def _number(place: Place, name: str, said: dict[str, Any], field: str) -> int:
    found = said.get(field)
    if not isinstance(found, int):
        raise InvalidTable(f"'{name}' of the table at {place.url} names no version", location=place.url)
    return found


def _metadata(said: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in (said.get("metadata") or {}).items()}


def _time_us(text: object) -> int:
    """A time as Lance writes it, with more digits than are kept here."""
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1_000_000)
    except ValueError:
        return 0
