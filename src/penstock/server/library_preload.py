"""Imports: what the requests of an API need is loaded before the server says that it serves.

Libraries of table formats take seconds to load. A request that waited for that would use up its time limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from time import monotonic

from penstock.server.logs import Log, LogLevel
from penstock.server.routes import Api


def import_libraries(apis: Iterable[Api], log: Log) -> None:
    """Import what the requests of these APIs need, as far as it is installed.

    A library that cannot be imported is logged, and the server starts without it.
    """
    began_s = monotonic()
    for name in dict.fromkeys(name for api in apis for name in api.imports):
        try:
            import_module(name)
        except ModuleNotFoundError as missing:  # of an extra that was left out: requests that need it say so
            log.log_message(LogLevel.DEBUG, f"{name} is not available: {missing}")
        except Exception as problem:  # noqa: BLE001 - other people's code runs here, and any error is possible
            log.log_message(LogLevel.WARNING, f"{name} is installed, but cannot be imported: {problem!r}")
    log.log_message(LogLevel.DEBUG, f"libraries were imported in {monotonic() - began_s:.1f} s")


def has_row_libraries() -> bool:
    """Whether a library is installed that works on rows, which is done in processes of their own."""
    return any(find_spec(name) is not None for name in ("lance", "duckdb"))
