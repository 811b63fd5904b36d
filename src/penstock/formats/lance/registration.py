"""Registers a Lance table that the lake does not know yet: finds its versions, branches and tags.

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
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.names import (
    MAIN,
    REFS_OF_BRANCHES,
    REFS_OF_TAGS,
    VERSION_MAX,
    VERSIONS,
    make_branch_folder,
)
from penstock.formats.lance.protobuf import MalformedMessage
from penstock.formats.lance.state import (
    Entry,
    LanceTableVersion,
    OwnBranch,
    OwnTag,
    encode_branch_key,
    encode_tag_key,
    encode_version_key,
)
from penstock.formats.lance.table_changes import FoundVersion
from penstock.formats.lance.version_pins import is_pin
from penstock.model.decoders import get_json_decoder
from penstock.model.keys import Key
from penstock.storage.places import Place

RESERVED: Final = ".lance-reserved"
"""A file that tells that a table was declared here, and has no version yet."""
_LAST: Final = 2**64 - 1
_NAME: Final = re.compile(r"(\d{1,20})\.manifest")
_V2_DIGITS: Final = 20


def read_registered_version(place: Place, key: Key) -> FoundVersion:
    """What is at a place. ``TableNotFound`` if no Lance table is, ``InvalidTable`` if it cannot be read."""
    entries = _read_versions(place, MAIN)
    if not entries and place.look(RESERVED) is None:
        raise TableNotFound(
            f"there is no Lance table at {place.url} to register as '{key}'", location=place.url
        )
    for name, fields in _read_ref_files(place, REFS_OF_BRANCHES):
        versions = _read_versions(place, name)
        if not versions:
            continue  # a branch that was begun, and has no version, is none
        entries |= versions
        entries[encode_branch_key(name)] = OwnBranch(
            parent=_parse_branch_name(fields, "parentBranch"),
            version=_parse_version_number(place, name, fields, "parentVersion"),
            created_us=int(fields.get("createAt") or 0) * 1_000_000,
            metadata=_parse_metadata(fields),
        )
    for name, fields in _read_ref_files(place, REFS_OF_TAGS):
        if is_pin(name, fields):
            continue  # of a lake that the table was in before
        branch, version = (
            _parse_branch_name(fields, "branch"),
            _parse_version_number(place, name, fields, "version"),
        )
        if encode_version_key(branch, version) in entries:
            entries[encode_tag_key(name)] = OwnTag(
                branch=branch,
                version=version,
                created_us=_time_us(fields.get("createdAt")),
                updated_us=_time_us(fields.get("updatedAt")),
                metadata=_parse_metadata(fields),
            )
    return FoundVersion(entries)


def _read_versions(place: Place, branch: str) -> dict[bytes, Entry]:
    """The versions of one of Lance's branches; the newest one is checked."""
    versions = list_versions_at(place, branch)
    if versions:
        _check_manifest(place, branch, max(versions), versions[max(versions)][0])
    return {encode_version_key(branch, number): version for number, (_, version) in versions.items()}


def list_versions_at(place: Place, branch: str) -> dict[int, tuple[str, LanceTableVersion]]:
    """The manifests in the folder of one of Lance's branches, by version: the name, and what that tells."""
    folder = make_branch_folder("", branch) + VERSIONS
    versions: dict[int, tuple[str, LanceTableVersion]] = {}
    for entry in place.list(folder):
        match = _NAME.fullmatch(entry.key.removeprefix(folder))
        if match is None:
            continue  # staged by somebody, or of no chain
        is_v1 = len(match[1]) < _V2_DIGITS
        number = int(match[1]) if is_v1 else _LAST - int(match[1])
        if 0 < number <= VERSION_MAX:
            version = LanceTableVersion(size=entry.size, time_us=entry.modified_us, is_v1=is_v1)
            versions[number] = entry.key, version
    return versions


def _check_manifest(place: Place, branch: str, number: int, name: str) -> None:
    (data,) = place.read([name])
    try:
        manifest = Manifest.decode(data or b"")
        says = manifest.version, manifest.branch or MAIN
    except MalformedMessage as problem:
        raise InvalidTable(f"{place.url}/{name} is not a manifest: {problem}", location=place.url) from None
    if says != (number, branch):
        raise InvalidTable(
            f"{place.url}/{name} is, by its content, version {says[0]} of branch '{says[1] or 'main'}'",
            location=place.url,
        )
    if not manifest.data_format.startswith("2"):
        raise UnsupportedFeature(
            f"the table at {place.url} is in Lance's oldest file format, which cannot be branched\n  Rewrite "
            "the table with Lance, and register the new one.",
            location=place.url,
        )


def _read_ref_files(place: Place, folder: str) -> list[tuple[str, dict[str, Any]]]:
    """The JSON files of branches or tags below a folder, each with its name."""
    names = [entry.key for entry in place.list(folder) if entry.key.endswith(".json")]
    ref_files: list[tuple[str, dict[str, Any]]] = []
    for name, data in zip(names, place.read(names), strict=True):
        try:
            fields = get_json_decoder(dict[str, Any]).decode(data or b"")
        except msgspec.MsgspecError as problem:
            raise InvalidTable(f"{place.url}/{name} cannot be read: {problem}", location=place.url) from None
        ref_files.append((unquote(name.removeprefix(folder).removesuffix(".json")), fields))
    return ref_files


def _parse_branch_name(fields: dict[str, Any], field: str) -> str:
    """The branch that a field names; Lance's main one has no name."""
    value = fields.get(field)
    return MAIN if value in (None, "main") else str(value)


def _parse_version_number(place: Place, name: str, fields: dict[str, Any], field: str) -> int:
    value = fields.get(field)
    if not isinstance(value, int):
        raise InvalidTable(
            f"'{name}' of the table at {place.url} names no version (its number is missing)",
            location=place.url,
        )
    return value


def _parse_metadata(fields: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in (fields.get("metadata") or {}).items()}


def _time_us(text: object) -> int:
    """A time as Lance writes it, with more digits than are kept here."""
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1_000_000)
    except ValueError:
        return 0
