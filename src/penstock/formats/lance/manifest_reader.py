"""Reads the manifests of versions that the lake has, wherever they are by now.

A manifest is put where Lance's readers look at some time after its version was ratified, and then what its
writer had staged goes. So both places are looked at, and what is found is known by its hash.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import Final, NamedTuple

from penstock.errors import Damaged
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.protobuf import MalformedMessage
from penstock.formats.lance.relocation import check_movable
from penstock.formats.lance.state import LanceTableVersion
from penstock.storage.places import Places

KEPT_MAX_BYTES: Final = 64 * 1024 * 1024
"""How much of what was read is remembered."""
PARSED_MAX_BYTES: Final = 64 * 1024
"""Up to this size a manifest is remembered as it was parsed, too: whoever writes often writes small ones, and
each is the next one's predecessor."""


class _KeptManifest(NamedTuple):
    data: bytes
    manifest: Manifest | None

    @property
    def size(self) -> int:
        """About what it takes of memory."""
        return len(self.data) if self.manifest is None else 8 * len(self.data)


class ManifestReader:
    """Reads manifests. May be used by many threads."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._kept: OrderedDict[bytes, _KeptManifest] = OrderedDict()
        self._size, self._lock = 0, Lock()

    def find_cached(self, version: LanceTableVersion) -> bytes | None:
        """The bytes of a version's manifest, if they are in memory."""
        kept_manifest = self._find_cached(version)
        return None if kept_manifest is None else kept_manifest.data

    def read_bytes(self, location: str, branch: str, number: int, version: LanceTableVersion) -> bytes:
        """The bytes of a version's manifest. ``Damaged`` if it is not there, or is another one."""
        if (cached := self.find_cached(version)) is not None:
            return cached
        place = self._places.open_place(location)
        names = [name for name in (version.promoted_path(branch, number), version.staged) if name]
        for data in (*place.read(names), *place.read(names[:1])):  # it may have been put there in between
            if data is not None and is_manifest_of(version, data):
                self.cache_manifest(version, data)
                return data
        raise Damaged(
            f"the manifest of version {number} of the Lance table at {location} is missing or was "
            f"replaced: {' and '.join(names)}",
            location=location,
            version=number,
        )

    def read_manifest(self, location: str, branch: str, number: int, version: LanceTableVersion) -> Manifest:
        """A version's manifest. ``Damaged`` as for its bytes."""
        kept_manifest = self._find_cached(version)
        if kept_manifest is not None and kept_manifest.manifest is not None:
            return kept_manifest.manifest
        try:
            return Manifest.decode(self.read_bytes(location, branch, number, version), self._places.moved)
        except MalformedMessage as problem:
            raise Damaged(
                f"the manifest of version {number} of the Lance table at {location} cannot be read: {problem}"
            ) from None

    def read_readable_bytes(
        self, location: str, branch: str, number: int, version: LanceTableVersion
    ) -> bytes:
        """The bytes of a manifest by which Lance finds a version's files: its own, unless they name places
        that files were moved away from.

        ``Damaged`` as for its bytes, ``UnknownPlacement`` if it has something whose place is not known here.
        """
        data, moved = self.read_bytes(location, branch, number, version), self._places.moved
        if not moved:
            return data
        try:
            if not Manifest.decode(data).has_moved_bases(moved):
                return data
        except MalformedMessage:
            return data  # opening it reports that
        manifest = self.read_manifest(location, branch, number, version)
        check_movable(manifest)
        return manifest.encode(moved)

    def cache_manifest(
        self, version: LanceTableVersion, data: bytes, manifest: Manifest | None = None
    ) -> None:
        """Remember the bytes of a version that somebody has read or written, and what they say.

        Not those of one that is known by its place alone: another manifest may come to be there, when a table
        is let go and registered again.
        """
        if not version.sha256:
            return
        entry = _KeptManifest(data, manifest if len(data) <= PARSED_MAX_BYTES else None)
        with self._lock:
            if version.sha256 in self._kept:
                return
            self._kept[version.sha256], self._size = entry, self._size + entry.size
            while self._size > KEPT_MAX_BYTES and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].size

    def _find_cached(self, version: LanceTableVersion) -> _KeptManifest | None:
        with self._lock:
            return self._kept.get(version.sha256)


def is_manifest_of(version: LanceTableVersion, data: bytes) -> bool:
    """Whether bytes are a version's manifest, as far as is known of it."""
    if version.sha256:
        return hashlib.sha256(data).digest() == version.sha256
    return len(data) == version.size
