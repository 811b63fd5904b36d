"""Reading manifests of versions that the lake has: wherever they are by now.

A manifest is put where Lance's readers look at some time after its version was ratified, and then what its
writer had staged goes. So both places are looked at, and what is found is known by its hash.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import Final

from penstock.errors import Damaged
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.state import Version
from penstock.formats.lance.wire import Malformed
from penstock.model.encoding import ObjectId
from penstock.storage.places import Places

KEPT_MAX_BYTES: Final = 64 * 1024 * 1024
"""How much of what was read is remembered."""


class Manifests:
    """Reads manifests. May be used by many threads."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._kept: OrderedDict[tuple[str, ObjectId], bytes] = OrderedDict()
        self._size, self._lock = 0, Lock()

    def known(self, location: str, number: int, version: Version) -> bytes | None:
        """The bytes of a version's manifest, if they are in memory."""
        with self._lock:
            return self._kept.get((location, version.id(number)))

    def read(self, location: str, branch: str, number: int, version: Version) -> bytes:
        """The bytes of a version's manifest. ``Damaged`` if it is not there, or is another one."""
        if (found := self.known(location, number, version)) is not None:
            return found
        place = self._places.at(location)
        names = [name for name in (version.place(branch, number), version.staged) if name]
        for data in (*place.read(names), *place.read(names[:1])):  # it may have been put there in between
            if data is not None and is_of(version, data):
                self.keep(location, number, version, data)
                return data
        raise Damaged(
            f"the manifest of version {number} of the Lance table at {location} is gone, or is another one:"
            f" {' and '.join(names)}",
            location=location,
            version=number,
        )

    def manifest(self, location: str, branch: str, number: int, version: Version) -> Manifest:
        """A version's manifest. ``Damaged`` as for its bytes."""
        try:
            return Manifest.read(self.read(location, branch, number, version))
        except Malformed as problem:
            raise Damaged(
                f"the manifest of version {number} of the Lance table at {location} cannot be read: {problem}"
            ) from None

    def keep(self, location: str, number: int, version: Version, data: bytes) -> None:
        """Remember the bytes of a version that somebody has read or written."""
        with self._lock:
            if (key := (location, version.id(number))) in self._kept:
                return
            self._kept[key], self._size = data, self._size + len(data)
            while self._size > KEPT_MAX_BYTES and len(self._kept) > 1:
                self._size -= len(self._kept.popitem(last=False)[1])


def is_of(version: Version, data: bytes) -> bool:
    """Whether bytes are a version's manifest, as far as is known of it."""
    if version.sha256:
        return hashlib.sha256(data).digest() == version.sha256
    return len(data) == version.size
