"""What a server is told when it is started."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.server.limits import Limits
from penstock.server.logs import LogLevel

PORT: Final = 19120


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is told."""

    lake: str
    host: str = "127.0.0.1"
    port: int = PORT
    workers: int = 1
    is_dev: bool = False
    """For everybody on this machine, with tables anywhere; a lake is made if none is there."""
    is_insecure: bool = False
    """Everybody may do everything."""
    limits: Limits = Limits()
    drain_timeout_s: float = 30.0
    sweep_every_hours: float = 24.0
    """How often the lake is swept in the background; never, if that is 0."""
    sweep_data: bool = False
    """Whether data files of tables that no commit names are removed then, and not only counted."""
    log_level: LogLevel = LogLevel.INFO
    logs_for_people: bool = False

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self.is_dev or self.is_insecure
