"""Reading what the kernel holds of many versions, without asking the store for each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from penstock.formats.delta.branch_log.branch_log import BranchLogEntry, Read
from penstock.model.encoding import ObjectId

Fetch = Callable[[Collection[ObjectId]], object]
"""Brings kernel objects into memory, as many as exist and fit, with one request to the store."""


class PrefetchReader:
    """Reads kernel objects one by one, and can be told which ones will be asked for next."""

    def __init__(self, read: Read, fetch: Fetch | None = None) -> None:
        self._read, self._fetch = read, fetch

    def __call__(self, data: ObjectId) -> bytes:
        return self._read(data)

    def prefetch_objects(self, ids: Collection[ObjectId]) -> None:
        """Only a hint: what is missing afterwards is read, or found missing, when it is asked for."""
        if self._fetch is not None and len(ids) > 1:
            self._fetch(ids)


def read_ahead(entries: Iterable[tuple[int, BranchLogEntry]], read: Read) -> None:
    """Have in memory what the kernel holds of some versions, where there is a way."""
    if isinstance(read, PrefetchReader):
        read.prefetch_objects({entry.held for _, entry in entries if entry.held is not None})
