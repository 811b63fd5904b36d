"""Opening and making lakes: in a directory, in a database, behind a server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.errors import InvalidRequest, LakeExists, LakeNotFound, ReferenceExists
from penstock.formats.files.format import FilesFormat
from penstock.kernel.description import (
    Description,
    new_description,
    read_description,
    require_arrived,
    write_description,
)
from penstock.kernel.format import Format
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.on_demand import delta_on_demand, lance_on_demand
from penstock.metrics.meter import SILENT, Meter
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import NO_COMMIT
from penstock.model.names import check_name
from penstock.model.references import Kind
from penstock.storage.locations import normalise
from penstock.stores import is_local, open_store
from penstock.stores.observed import ObservedStore
from penstock.stores.port import Store


def open_lake(
    target: str | os.PathLike[str] | Store,
    *,
    create: bool = True,
    author: str | None = None,
    token: str | None = None,
    settings: Settings | None = None,
    formats: Sequence[Format] = (),
    clock: Clock = now_us,
    meter: Meter = SILENT,
    catch_up: bool = True,
) -> Lake:
    """Open the lake at a directory or URL, behind a server, or in a store that the caller made.

    A directory without a lake becomes one, unless ``create=False``; then it is ``LakeNotFound``. A database
    that several share is made a lake once, by ``penstock init``. ``author`` is who commits, the user of this
    process if it is not given. ``meter`` is told about every request and every call of the store. Versions of
    Delta and Lance tables that earlier processes ratified and did not publish are published in the
    background, unless ``catch_up`` says no.

    Behind ``http://`` or ``https://`` is a server with a lake of its own, which sets everything else itself;
    ``token`` is what it knows the caller by, that of ``PENSTOCK_TOKEN`` if it is not given.
    """
    if not isinstance(target, Store) and is_remote(place := os.fspath(target)):
        if settings is not None or formats or meter is not SILENT:
            raise InvalidRequest(
                f"{place} is a server: settings, formats and meter are given where it is started"
            )
        from penstock.lake.remote import Remote

        return Lake(Remote(place, token), author)
    if token is not None:
        raise InvalidRequest("a token is for a lake behind a server, at http:// or https://")
    if isinstance(target, Store):
        store, makes = target, create
    else:
        makes = create and is_local(place)
        store = open_store(place, makes, clock)
    if meter is not SILENT:
        store = ObservedStore(store, meter)
    try:
        try:
            description = read_description(store)
        except LakeNotFound:
            if not makes:
                raise
            description = _found_lake(
                store, clock, "main", _default_warehouse(store), (), settings, exist_ok=True
            )
        require_arrived(description, store)
        embedded = _embedded(store, description, formats, settings, clock, meter)
        if catch_up:
            embedded.catch_up()
        return Lake(embedded, author)
    except BaseException:
        store.close()
        raise


def is_remote(place: str) -> bool:
    """Whether a place is a server's address."""
    return place.lower().startswith(("http://", "https://"))


def init_lake(
    target: str | os.PathLike[str],
    *,
    warehouse: str | None = None,
    roots: Sequence[str] = (),
    default_branch: str = "main",
    author: str | None = None,
    settings: Settings | None = None,
) -> Lake:
    """Make a lake; ``LakeExists`` if there is one.

    ``warehouse`` holds the tables that have no location of their own; ``roots`` are further places where
    tables may be.
    """
    check_name(default_branch)
    home = normalise(warehouse) if warehouse else None
    places = tuple(normalise(root) for root in roots)
    if is_remote(os.fspath(target)):
        raise InvalidRequest(f"{os.fspath(target)} is a server; a lake is made where its data is")
    store = open_store(os.fspath(target), True, now_us)
    try:
        home = home or _default_warehouse(store)
        description = _found_lake(store, now_us, default_branch, home, places, settings, exist_ok=False)
        return Lake(_embedded(store, description, (), settings, now_us, SILENT), author)
    except BaseException:
        store.close()
        raise


def _embedded(
    store: Store,
    description: Description,
    formats: Sequence[Format],
    settings: Settings | None,
    clock: Clock,
    meter: Meter,
) -> Embedded:
    """A catalogue over a kernel that knows Delta, Lance and files, and whatever other formats are given."""
    ours: tuple[Format, ...] = (
        delta_on_demand(lambda: catalogue.delta.format),
        lance_on_demand(lambda: catalogue.lance.format),
        FilesFormat(),
    )
    given = {one.name for one in formats}
    known = (*formats, *(one for one in ours if one.name not in given))
    kernel = Kernel(store, known, settings, clock, meter, description.default_branch)
    catalogue = Embedded(kernel, description)
    return catalogue


def _default_warehouse(store: Store) -> str:
    """Beside the lake's own data, where that is in a directory or a bucket."""
    scheme, _, place = store.url.partition("://")
    if scheme == "sqlite":
        return str(Path(place).parent / "warehouse")
    if scheme in ("file", "rocksdb"):
        return str(Path(place) / "warehouse")
    bucket = place.partition("?")[0].rstrip("/")
    return f"{scheme}://{bucket}/warehouse" if scheme in ("s3", "gs", "az") else ""


def _found_lake(
    store: Store,
    clock: Clock,
    default_branch: str,
    warehouse: str,
    roots: tuple[str, ...],
    settings: Settings | None,
    exist_ok: bool,
) -> Description:
    """Make the lake's default branch and description; whoever writes the description made the lake."""
    if not exist_ok and store.reference("@lake") is not None:
        raise LakeExists(f"there is a lake at {store.url} already", url=store.url)
    description = new_description(clock(), default_branch, warehouse, roots)
    kernel = Kernel(store, (), settings, clock)
    with suppress(ReferenceExists):  # somebody else is making the lake, or was stopped while making it
        kernel.references.create(default_branch, Kind.BRANCH, NO_COMMIT)
    try:
        write_description(store, description)
    except LakeExists:
        if not exist_ok:
            raise
        return read_description(store)
    return description
