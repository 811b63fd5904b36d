"""Stores: the databases that a lake can live in, one adapter a file."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.model.clock import Clock
from penstock.stores.lake_directory import DATABASE_FILE as DATABASE_FILE
from penstock.stores.port import Store


class StoreAdapter(NamedTuple):
    """Where the store for a kind of URL is found, and the extra that brings its library."""

    module: str
    name: str
    extra: str
    is_local: bool = False
    """Whether it is on this machine, so that a first write may make a lake; others are made by ``init``."""


ADAPTERS: Final = {
    "postgresql": (_postgres := StoreAdapter("postgres", "PostgresStore", "postgres")),
    "postgres": _postgres,
    "mongodb": (_mongodb := StoreAdapter("mongodb", "MongoStore", "mongodb")),
    "mongodb+srv": _mongodb,
    "dynamodb": StoreAdapter("dynamodb", "DynamoStore", "dynamodb"),
    "rocksdb": StoreAdapter("rocksdb", "RocksdbStore", "rocksdb", is_local=True),
    "s3": (_bucket := StoreAdapter("objectstore", "ObjectStore", "objectstore")),
    "gs": _bucket,
    "az": _bucket,
    "file": _bucket._replace(is_local=True),
}


def is_local(target: str) -> bool:
    """Whether a target is on this machine, so that a first write may make it; others are made by ``init``."""
    scheme, separator, _ = target.partition("://")
    return not separator or scheme == "sqlite" or (scheme in ADAPTERS and ADAPTERS[scheme].is_local)


def get_place(store: Store) -> str:
    """Where a store is, as people say it and without secrets."""
    return store.url.removeprefix("sqlite://").removesuffix(f"/{DATABASE_FILE}")


def open_store(target: str, create: bool, clock: Clock) -> Store:
    """The store behind a path or URL; it is made if ``create`` says so."""
    if not target or not target.isprintable():
        raise InvalidRequest(f"{target!r} cannot be the location of a lake")
    if target.startswith("memory:"):
        from penstock.stores.memory import MemoryStore

        return MemoryStore(clock)
    scheme, has_scheme, _ = target.partition("://")
    if not has_scheme:
        _check_no_url(target)
    if has_scheme and scheme != "sqlite":
        return _find_adapter(scheme)(target, create=create, clock=clock)
    from penstock.stores.sqlite import SqliteStore

    path = Path(target.removeprefix("sqlite://"))
    if path.is_file() and path.name != DATABASE_FILE:
        raise InvalidRequest(f"{path} is a file; a lake is a directory")
    return SqliteStore(
        path if path.name == DATABASE_FILE else path / DATABASE_FILE, create=create, clock=clock
    )


def _check_no_url(path: str) -> None:
    """``InvalidRequest`` for a URL that lacks a slash: it would be a path, and make a lake nobody finds."""
    scheme, colon, place = path.partition(":")
    if colon and scheme.lower() in (*ADAPTERS, "sqlite", "http", "https"):
        url = f"{scheme.lower()}://{_get_part_after_slashes(scheme, place)}"
        raise InvalidRequest(f"{path!r} cannot be the location of a lake; write it as {url}")


def _get_part_after_slashes(scheme: str, place: str) -> str:
    """What comes after ``://`` in a URL that was written with fewer slashes: a path, or a host."""
    is_path = scheme.lower() in ("sqlite", "rocksdb", "file")
    return place if is_path else place.lstrip("/")


def _find_adapter(scheme: str) -> Callable[..., Store]:
    """The adapter for a URL; ``InvalidRequest`` names the extra if its library is not installed."""
    if scheme not in ADAPTERS:
        schemes = ", ".join(f"{scheme}://" for scheme in ADAPTERS)
        raise InvalidRequest(
            f"unknown scheme '{scheme}://'; the address of a lake is a directory, a server at http:// or "
            f"https://, or one of {schemes}",
            scheme=scheme,
        )
    adapter = ADAPTERS[scheme]
    try:
        module = import_module(f"penstock.stores.{adapter.module}")
    except ModuleNotFoundError as missing:
        raise InvalidRequest(
            f"a lake behind {scheme}:// needs the library {missing.name}: "
            f"pip install 'penstock[{adapter.extra}]'",
            extra=adapter.extra,
        ) from None
    adapter_class: Callable[..., Store] = getattr(module, adapter.name)
    return adapter_class
