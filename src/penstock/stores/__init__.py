"""Stores: the databases that a lake can live in, one adapter a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.errors import InvalidRequest
from penstock.model.clock import Clock
from penstock.stores.port import Store

DATABASE_FILE: Final = "penstock.db"


def is_local(target: str) -> bool:
    """Whether a target belongs to this machine, so that opening may make it; others are made by ``init``."""
    return "://" not in target or target.startswith("sqlite://")


def open_store(target: str, create: bool, clock: Clock) -> Store:
    """The store behind a path or URL; a local one is made if ``create`` says so."""
    if not target or not target.isprintable():
        raise InvalidRequest(f"{target!r} is not a place for a lake")
    if target.startswith("memory:"):
        from penstock.stores.memory import MemoryStore

        return MemoryStore(clock)
    if target.startswith("sqlite://"):
        target = target.removeprefix("sqlite://")
    if "://" in target:
        scheme = target.partition("://")[0]
        raise InvalidRequest(f"there is no store for '{scheme}://'; a lake can be a directory", scheme=scheme)
    from penstock.stores.sqlite import SqliteStore

    path = Path(target)
    if path.is_file() and path.name != DATABASE_FILE:
        raise InvalidRequest(f"{path} is a file; a lake is a directory")
    return SqliteStore(
        path if path.name == DATABASE_FILE else path / DATABASE_FILE, create=create, clock=clock
    )
