"""Expired commits: those behind the history horizon that kept commits name as their parents.

There is at least one for every branch with a horizon. A few are in the lake's own row. More than that are in
blobs, which the row names: so the row stays small enough for every store, and is read quickly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from penstock.errors import Damaged
from penstock.kernel.description import EXPIRED_VERSION, LakeDescription
from penstock.kernel.objects import Objects, list_blobs_of_values, split_blobs
from penstock.model.encoding import ObjectId

ROW_MAX: Final = 256
"""How many are in the lake's row."""
ID_BYTES: Final = 32


class ExpiredCommits(Collection[ObjectId]):
    """Ids of commits, sorted and without gaps in between, as they are in blobs."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data) // ID_BYTES

    def __getitem__(self, number: int) -> ObjectId:
        return self._data[number * ID_BYTES : (number + 1) * ID_BYTES]

    def __iter__(self) -> Iterator[ObjectId]:
        return map(self.__getitem__, range(len(self)))

    def __contains__(self, commit_id: object) -> bool:
        if not isinstance(commit_id, bytes):
            return False
        number = bisect_left(range(len(self)), commit_id, key=self.__getitem__)
        return number < len(self) and self[number] == commit_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpiredCommits) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)


def read_expired_commits(lake: LakeDescription, objects: Objects) -> ExpiredCommits:
    """The commits that have expired, as a lake's description has them; ``Damaged`` if they cannot be read."""
    if lake.more_expired is None:
        return ExpiredCommits(b"".join(sorted(lake.expired)))
    data = objects.read_value(lake.more_expired)
    if len(data) % ID_BYTES:
        names = [part.hex() for part in lake.more_expired.parts]
        raise Damaged(
            "the lake's list of expired commits is damaged: it contains something other than commit ids",
            objects=names,
        )
    return ExpiredCommits(data)


def record_expired_commits(
    lake: LakeDescription, expired: Iterable[ObjectId]
) -> tuple[LakeDescription, dict[ObjectId, bytes]]:
    """The lake with these commits as the expired ones, and the blobs that have to be stored with its row.

    With blobs, an older Penstock cannot open it any more: it would take missing commits for damage.
    """
    ids = sorted(set(expired))
    if len(ids) <= ROW_MAX:
        return msgspec.structs.replace(lake, expired=tuple(ids), more_expired=None), {}
    value, blobs = split_blobs(b"".join(ids))
    version = max(lake.format_version, EXPIRED_VERSION)
    return msgspec.structs.replace(lake, format_version=version, expired=(), more_expired=value), blobs


def list_blobs_of_lake(lake: LakeDescription) -> list[ObjectId]:
    """The objects that a lake's description needs."""
    return list_blobs_of_values((lake.more_expired, *(backup.heads for backup in lake.backups)))
