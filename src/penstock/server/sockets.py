"""Sockets: how many connections a server takes, from everybody and from one address.

Each is an open file, of which a process may have so many. If connections used them all, the system would
reset the next ones without a word, and the server could not open its own files: the store's, and those of
tables. So some are kept for these, and a connection that would use one of them is refused and logged.
"""

from __future__ import annotations

import resource
from time import monotonic
from typing import Final

from penstock.errors import Throttled
from penstock.metrics.meter import SILENT, Meter
from penstock.metrics.table import HTTP_CONNECTIONS, HTTP_REFUSALS
from penstock.server.limits import Limits
from penstock.server.logs import Log, LogLevel
from penstock.server.request_slots import RequestSlot, RequestSlots
from penstock.wire.errors import encode_error

FILES_A_REQUEST: Final = 3
"""Files that a request may have open beside its connection: a database has up to three."""
FILES_MORE: Final = 64
"""Files that a process has open beside those of its requests, and as many that it may open at any time."""
LOG_EVERY_S: Final = 10.0
"""However many connections are refused, the log says so once in this time."""


class ConnectionLimits:
    """The connections of one process. Used by the thread of the event loop alone."""

    def __init__(self, limits: Limits, log: Log, meter: Meter = SILENT) -> None:
        self._log, self._meter = log, meter
        self._kept_files = 2 * FILES_MORE + FILES_A_REQUEST * limits.open_requests_max
        self.files_max = _raise_open_files(limits.connections_max + self._kept_files)
        self._descriptor_max = self.files_max - min(self._kept_files - FILES_MORE, self.files_max // 2)
        self._wanted = limits.connections_max
        room = max(1, self._descriptor_max - FILES_MORE)
        self._places = RequestSlots(min(limits.connections_max, room), limits.address_connections_max)
        self._next_line_s, self._unlogged = 0.0, 0

    @property
    def open(self) -> int:
        return self._places.taken

    @property
    def capacity_warning(self) -> str:
        """What whoever runs the server should know: that there is room for fewer connections than it may
        have."""
        if self._places.count_max == self._wanted:
            return ""
        return (
            f"the limit of open files, {self.files_max:,}, leaves room for {self._places.count_max:,} "
            f"connections, not for {self._wanted:,}: raise it ('ulimit -n', LimitNOFILE of systemd) to "
            f"{self._wanted + self._kept_files:,}, or lower --connections-max"
        )

    def admit_connection(self, address: str, descriptor: int) -> RequestSlot:
        """The place of a new connection; ``Throttled`` says why it gets none.

        The system gives the lowest free number, so that a high one tells how many files are open.
        """
        if descriptor >= self._descriptor_max:
            raise self._throttled_error(
                "open_files",
                f"the process can have {self.files_max:,} open files, and reserves the remaining ones for "
                "its own work; raise the limit of open files",
            )
        if not self._places.has_free_slots():
            raise self._throttled_error(
                "connections",
                f"{self._places.count_max:,} are open already, as many as --connections-max and the limit of "
                "open files allow",
            )
        if not self._places.may_take(address):
            raise self._throttled_error(
                "address_connections",
                f"{address} has {self._places.count_slots(address):,} open already, "
                "and one address can have at "
                f"most {self._places.caller_max:,} (--address-connections-max), and not more than are "
                "left for others",
            )
        self._meter.gauge(HTTP_CONNECTIONS, self.open + 1)
        return self._places.take_slot(address)

    def return_slot(self, slot: RequestSlot) -> None:
        slot.give_back()
        self._meter.gauge(HTTP_CONNECTIONS, self.open)

    def _throttled_error(self, reason: str, why: str) -> Throttled:
        self._meter.count(HTTP_REFUSALS, reason=reason)
        self._unlogged += 1
        now_s = monotonic()
        if now_s >= self._next_line_s:
            count = "1 connection is" if self._unlogged == 1 else f"{self._unlogged:,} connections are"
            self._log.log_message(LogLevel.WARNING, f"{count} refused: {why}", error=Throttled.code)
            self._next_line_s, self._unlogged = now_s + LOG_EVERY_S, 0
        return Throttled(f"the server accepts no more connections from this address at the moment: {why}")


def encode_refusal(error: Throttled) -> bytes:
    """The answer to whatever a refused connection asks."""
    body = encode_error(error, "")
    return (
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\nconnection: close\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    )


def _raise_open_files(wanted: int) -> int:
    """How many files the process may have open: as many as wanted, if whoever started it allows that."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    if now != infinite and now < wanted:
        now = wanted if most == infinite else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))
    return now if now != infinite else wanted
