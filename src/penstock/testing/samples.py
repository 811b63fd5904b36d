"""Objects and rows to fill a store with."""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from typing import TypeAlias

from penstock.model.encoding import ObjectId
from penstock.stores.port import Row, Store, StoredObject

OpenStore: TypeAlias = Callable[[], Store]
"""Opens a handle on a store; every call gives one on the same data."""


def sample(count: int, label: str = "object", size: int = 0) -> dict[ObjectId, bytes]:
    """So many objects, the same for the same label; of a given size, or short."""
    made = {}
    for number in range(count):
        text = f"{label} {number} ".encode()
        made[sha256(text).digest()] = (text * (size // len(text) + 1))[:size] if size else text
    return made


def row(name: str, kind: str = "branch", data: bytes = b"somewhere") -> Row:
    return Row(name, kind, data)


def scan_all(store: Store, page: int = 1000) -> list[StoredObject]:
    """All objects, page by page."""
    stored, token = store.scan(b"", page)
    while token:
        more, token = store.scan(token, page)
        stored += more
    return stored


def let_time_pass(store: Store) -> None:
    """Until the store's clock shows another time: what is stored after this was stored later."""
    time.sleep(max(store.resolution_us, 1000) * 2 / 1e6)
