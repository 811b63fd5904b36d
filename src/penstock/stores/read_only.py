"""A store that is only read, though the one behind it could be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.errors import Denied
from penstock.model.encoding import ObjectId
from penstock.stores.port import Row, StoredObject, Turn
from penstock.stores.wrapped import WrappedStore


class ReadOnlyStore(WrappedStore):
    """Takes no writes. The store behind it stays open when this one is closed."""

    @property
    def is_read_only(self) -> bool:
        return True

    def require_writable(self) -> None:
        raise Denied(f"{self.url} is read-only here. Nothing was changed.", url=self.url)

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:  # noqa: ARG002
        self.require_writable()

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:  # noqa: ARG002
        self.require_writable()
        yield from ()

    def delete(self, objects: Sequence[StoredObject]) -> int:  # noqa: ARG002
        self.require_writable()
        return 0

    def scan_data(
        self, after: bytes, limit: int, max_bytes: int
    ) -> tuple[dict[ObjectId, bytes], list[StoredObject], bytes]:
        return self.inner.scan_data(after, limit, max_bytes)

    def close(self) -> None:
        pass
