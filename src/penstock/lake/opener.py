"""Opening and making lakes: in a directory, in a database, behind a server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.errors import Denied, InvalidRequest, LakeExists, LakeNotFound, ReferenceExists
from penstock.formats.registry import list_format_metrics
from penstock.kernel.description import (
    LakeDescription,
    is_incomplete_lake,
    make_description,
    read_description,
    require_arrived,
    require_no_backup,
    require_unused,
    write_description,
)
from penstock.kernel.format import Format
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.lake.embedded import Embedded
from penstock.lake.empty_place import EmptyPlace
from penstock.lake.lake import Lake
from penstock.lake.plugins import make_plugins
from penstock.metrics.meter import SILENT, LabelledMeter, Meter
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import NO_COMMIT
from penstock.model.names import check_name
from penstock.model.references import Kind
from penstock.storage.locations import normalise_location
from penstock.stores import DATABASE_FILE, is_local, open_store
from penstock.stores.lake_directory import find_directory, require_room
from penstock.stores.made_on_write import StoreMadeOnWrite
from penstock.stores.observed import ObservedStore
from penstock.stores.port import Store
from penstock.stores.urls import hide_secrets


def open_lake(
    target: str | os.PathLike[str] | Store,
    *,
    create: bool | None = None,
    author: str | None = None,
    token: str | None = None,
    settings: Settings | None = None,
    formats: Sequence[Format] = (),
    clock: Clock = now_us,
    meter: Meter = SILENT,
    catch_up: bool = True,
) -> Lake:
    """Open the lake at a directory or URL, behind a server, or in a store that the caller made.

    Opening creates nothing. If a local directory has no lake yet, the first write creates one; until then,
    reads raise ``LakeNotFound``. ``create=True`` creates the lake at once; ``create=False`` raises
    ``LakeNotFound`` at once. ``InvalidRequest`` if the directory has other files. A lake in a shared database
    is created by ``penstock init`` only; ``"memory:"`` and an empty store that the caller made become lakes
    at once.

    ``author`` is the author of commits, by default the user of this process. ``meter`` counts every request
    and every call of the store. Versions of Delta and Lance tables that earlier processes ratified and did
    not publish are published in the background, unless ``catch_up`` is false.

    With ``http://`` or ``https://``, the lake of a server is opened, and the server decides all other
    settings; ``token`` identifies the caller, by default that of ``PENSTOCK_TOKEN``.
    """
    if not isinstance(target, Store) and is_remote(place := os.fspath(target)):
        if settings is not None or formats or meter is not SILENT:
            raise InvalidRequest(
                f"{place} is a server: settings, formats and meter can only be given where the server is "
                "started"
            )
        from penstock.lake.remote import RemoteCatalogue

        return Lake(RemoteCatalogue(place, token), author)
    if token is not None:
        raise InvalidRequest("a token can only be used with a server, at http:// or https://")
    opening = _LakeOpener(settings, tuple(formats), clock, meter, catch_up)
    if isinstance(target, Store):
        return Lake(opening.open_in_store(target, makes=create is not False), author)
    if place.startswith("memory:"):
        return Lake(opening.open_in_store(open_store(place, True, clock), makes=create is not False), author)
    if not is_local(place):
        return Lake(opening.open_in_store(open_store(place, False, clock), makes=False), author)
    try:
        return Lake(opening.find_lake(place), author)
    except LakeNotFound:
        if create is False:
            raise
    if create:
        return Lake(opening.make_lake(place), author)
    opening.require_room(place)
    return Lake(EmptyPlace(place, opening.find_lake, opening.make_lake), author)


class _LakeOpener(NamedTuple):
    """How a lake is opened: what a program says of it beside its place."""

    settings: Settings | None
    formats: tuple[Format, ...]
    clock: Clock
    meter: Meter
    catch_up: bool

    def find_lake(self, url: str) -> Embedded:
        """The lake at a place of this machine; ``LakeNotFound`` if there is none."""
        return self.open_in_store(open_store(url, False, self.clock), makes=False)

    def make_lake(self, url: str) -> Embedded:
        """The lake at a place of this machine, which is made if there is none."""
        self.require_room(url)
        return self.open_in_store(open_store(url, True, self.clock), makes=True)

    def require_room(self, url: str) -> None:
        """``InvalidRequest`` if there is no lake at a place, and none can be made there."""
        try:
            require_room(url)
        except InvalidRequest as problem:
            try:  # what is there may belong to a lake that another process made meanwhile
                self.find_lake(url).close()
            except LakeNotFound:
                raise problem from None

    def open_in_store(self, store: Store, *, makes: bool) -> Embedded:
        """The lake in a store, which is closed if that fails."""
        if self.meter is not SILENT:
            store = ObservedStore(store, self.meter)
        if isinstance(self.meter, LabelledMeter):
            self.meter.declare(list_format_metrics())
        try:
            try:
                description = read_description(store)
            except LakeNotFound:
                if not makes:
                    raise
                description = _make_lake(
                    store,
                    self.clock,
                    "main",
                    _choose_default_warehouse(store),
                    (),
                    self.settings,
                    exist_ok=True,
                )
            require_no_backup(description, store)
            require_arrived(description, store)
            _complete_lake(store, description, self.clock, self.settings)
            embedded = _build_embedded(
                store, description, self.formats, self.settings, self.clock, self.meter
            )
            if self.catch_up:
                embedded.catch_up()
            return embedded
        except BaseException:
            store.close()
            raise


def is_remote(url: str) -> bool:
    """Whether a place is a server's address."""
    return url.lower().startswith(("http://", "https://"))


def require_no_server(target: str) -> None:
    """``InvalidRequest`` if a lake is to be made at a server's address."""
    if is_remote(target):
        raise InvalidRequest(
            f"{target} is a server, and cannot create a lake; give the directory or the database of the new "
            "lake",
            url=target,
        )


def init_lake(
    target: str | os.PathLike[str],
    *,
    warehouse: str | None = None,
    roots: Sequence[str] = (),
    default_branch: str = "main",
    author: str | None = None,
    settings: Settings | None = None,
) -> Lake:
    """Create a lake; ``LakeExists`` if there is one.

    Tables are created in ``warehouse`` by default; ``roots`` are further locations where tables may be.
    """
    check_name(default_branch)
    home = normalise_location(warehouse) if warehouse else None
    places = tuple(normalise_location(root) for root in roots)
    place = os.fspath(target)
    require_no_server(place)
    require_target(place)
    store = open_store(place, True, now_us)
    try:
        home = home or _choose_default_warehouse(store)
        description = _make_lake(store, now_us, default_branch, home, places, settings, exist_ok=False)
        return Lake(_build_embedded(store, description, (), settings, now_us, SILENT), author)
    except BaseException:
        store.close()
        raise


def require_target(url: str) -> None:
    """``InvalidRequest`` if a lake that is to be made or copied to a place would lie among other files."""
    if is_local(url) and not url.startswith("memory:"):
        _LakeOpener(None, (), now_us, SILENT, catch_up=False).require_room(url)


def open_or_make_store(place: str, clock: Clock) -> Store:
    """The store at a place. If there is none, one that is made: on this machine by the first write, so that
    whoever refuses before that leaves nothing; ``InvalidRequest`` if it would lie among other files."""
    try:
        return open_store(place, False, clock)
    except LakeNotFound:
        require_target(place)
    if not is_local(place) or place.startswith("memory:"):
        return open_store(place, True, clock)
    scheme, directory = find_directory(place)
    path = directory / DATABASE_FILE if scheme == "sqlite" else directory
    url = hide_secrets(place) if scheme == "file" else f"{scheme}://{path}"
    return StoreMadeOnWrite(url, lambda: open_store(place, True, clock))


def _build_embedded(
    store: Store,
    description: LakeDescription,
    formats: Sequence[Format],
    settings: Settings | None,
    clock: Clock,
    meter: Meter,
) -> Embedded:
    """A catalogue over a kernel that knows the formats of Penstock, and whatever others are given."""
    plugins = make_plugins(lambda: catalogue)
    given_names = {format_.name for format_ in formats}
    rules = (*formats, *(plugin.rules for plugin in plugins if plugin.name not in given_names))
    kernel = Kernel(store, rules, settings, clock, meter, description.default_branch)
    catalogue = Embedded(kernel, description, plugins, open_lake=Lake)
    return catalogue


def _choose_default_warehouse(store: Store) -> str:
    """Beside the lake's own data, where that is in a directory or a bucket."""
    scheme, _, place = store.url.partition("://")
    if scheme == "sqlite":
        return str(Path(place).parent / "warehouse")
    if scheme in ("file", "rocksdb"):
        return str(Path(place) / "warehouse")
    bucket = place.partition("?")[0].rstrip("/")
    return f"{scheme}://{bucket}/warehouse" if scheme in ("s3", "gs", "az") else ""


def _make_lake(
    store: Store,
    clock: Clock,
    default_branch: str,
    warehouse: str,
    roots: tuple[str, ...],
    settings: Settings | None,
    exist_ok: bool,
) -> LakeDescription:
    """Make a lake: whoever writes the description made it, and nothing else is stored before that.

    ``Damaged`` if the store holds what is left of a lake.
    """
    require_unused(store)
    description = make_description(clock(), default_branch, warehouse, roots)
    try:
        write_description(store, description, settings=settings)
    except LakeExists:
        if not exist_ok:
            raise
        description = read_description(store)
    _complete_lake(store, description, clock, settings)
    return description


def _complete_lake(
    store: Store, description: LakeDescription, clock: Clock, settings: Settings | None
) -> None:
    """Make the default branch of a lake whose maker was stopped before that.

    A lake that holds anything else lost its default branch in another way, and is left as it is.
    """
    if store.reference(description.default_branch) is not None or not is_incomplete_lake(store):
        return
    with suppress(ReferenceExists, Denied):  # another process makes it, or this one may only read
        Kernel(store, (), settings, clock).references.create_reference(
            description.default_branch, Kind.BRANCH, NO_COMMIT
        )
