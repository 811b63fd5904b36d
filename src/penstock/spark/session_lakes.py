"""The lakes that Spark sessions of this process work with."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from penstock.errors import InvalidRequest, LakeNotFound, PenstockError, TryAgainError
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.spark import settings
from penstock.spark.arguments import check_session
from penstock.spark.option_guard import guard_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAKES: Final[dict[str, Lake]] = {}
"""The lakes that sessions of this process were made for, by id; and those opened for one, by address."""
_TWINS: Final[dict[str, WeakSet[Lake]]] = {}
"""By id, further objects for the same lakes, which another one took the place of, while somebody has them."""
_OPENING: Final = Lock()


def get_lake(spark: SparkSession, lake: Lake | None = None) -> Lake:
    """The lake that a session works with, unless another one is given.

    It is the very object that the session was made with, the latest one that is not closed if there were
    several; in another process, and for sessions that were only given the lake's address
    (``spark.penstock.lake``), one that is opened once. ``InvalidRequest`` if the session knows no lake, if it
    was stopped, and if it is none.
    """
    check_session(spark)
    guard_options()
    if isinstance(lake, Lake):
        return lake
    if lake is not None:
        # An address is not shown: it may have a password.
        raise InvalidRequest(
            f"'lake' must be a lake, as penstock.open('./lake') returns it, got {type(lake).__name__}"
        )
    if (known_lake := find_lake(spark.conf.get(settings.LAKE_ID, None) or "")) is not None:
        return known_lake
    address = spark.conf.get(settings.LAKE, None)
    if not address:
        raise InvalidRequest(
            "this Spark session has no lake: create it by penstock.spark.session(lake), or set "
            f"{settings.LAKE} to the lake's address"
        )
    return _opened_once(address, create=False)


def keep_lake(lake: Lake | str | os.PathLike[str]) -> Lake:
    """The lake, known from now on to this process's sessions. ``InvalidRequest`` if it was closed."""
    if not isinstance(lake, Lake | str | os.PathLike):
        raise InvalidRequest(
            "a session needs a lake, as penstock.open('./lake') returns it, or its address, got "
            f"{type(lake).__name__}"
        )
    opened = lake if isinstance(lake, Lake) else _opened_once(os.fspath(lake), create=None)
    # Whether it can be reached now, or is there yet, is for those to find out who use it.
    with suppress(TryAgainError, LakeNotFound):
        _ = opened.about
    identity = lake_identity(opened)
    with _OPENING:
        before = _LAKES.get(identity)
        if before is not None and before is not opened:
            _TWINS.setdefault(identity, WeakSet()).add(before)
        _LAKES[identity] = opened
    return opened


def lake_identity(lake: Lake) -> str:
    """What sessions know a lake by: its id, or its place if there is no lake before the first write."""
    try:
        return lake.id
    except LakeNotFound:
        return lake.url


def find_lake(lake_id: str) -> Lake | None:
    """The lake of an id. If it was closed, and another object for the same lake is open, that one.

    Only where there are several is it worth a question to the lake whether it is open.
    """
    lake = _LAKES.get(lake_id)
    twins = list(_TWINS.get(lake_id, ()))
    if lake is None or not twins or not _is_closed(lake):
        return lake
    for twin in twins:
        if twin is not lake and not _is_closed(twin):
            _LAKES[lake_id] = twin
            return twin
    return lake


def _is_closed(lake: Lake) -> bool:
    try:
        _ = lake.about
    except InvalidRequest:
        return True
    except PenstockError:
        return False  # it cannot answer now
    return False


def _opened_once(address: str, create: bool | None) -> Lake:
    with _OPENING:
        lake = _LAKES.get(address)
        if lake is None or (create is None and _is_closed(lake)):
            lake = _LAKES[address] = open_lake(address, create=create)
        return lake
