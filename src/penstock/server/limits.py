"""Limits: how much one request, and all of them together, may ask of a server."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.processes.limits import WorkerPoolLimits

DAY_S: Final = 86_400
PROCESSES_MAX: Final = 1_000
ROW_MEMORY_MIN_BYTES: Final = 256 * 1024**2
"""Less is not enough for the libraries alone."""
CHECKS_SHARE: Final = 2 / 3
"""How much of a request's time is for what its branch expects."""
VALUES_OF_OPERATION: Final = 50
THREADS_MAX: Final = 10_000
CONNECTIONS_MAX: Final = 1_000_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Every limit of a server. What exceeds one is refused with an error that names it.

    Each of them is an option of ``penstock serve`` and a variable ``PENSTOCK_SERVE_…`` of the same name.
    """

    body_max_bytes: Annotated[int, Meta(ge=1)] = 32 * 1024 * 1024
    """Of one request, also once it is unpacked."""
    operations_max: Annotated[int, Meta(ge=1)] = 10_000
    """Of one commit."""
    page_max: Annotated[int, Meta(ge=100)] = 1_000
    """Items in one answer. Nessie's clients that ask for more get so many, and go on from there."""
    request_timeout_s: Annotated[float, Meta(gt=0, le=DAY_S)] = 30.0
    """From the moment that a request is complete to its answer."""
    expectation_timeout_s: Annotated[float, Meta(ge=0, le=DAY_S)] = 0.0
    """For each query of what a branch expects, and for a writer to wait until others are checked; 0 for two
    thirds of `request_timeout_s`. The rest of a request's time is for the commit itself."""
    body_timeout_s: Annotated[float, Meta(gt=0, le=DAY_S)] = 30.0
    """For a request's body to arrive, and for its headers."""
    open_requests_max: Annotated[int, Meta(ge=1, le=THREADS_MAX)] = 128
    """Being worked on at the same time, in each worker."""
    caller_requests_max: Annotated[int, Meta(ge=1, le=THREADS_MAX)] = 64
    """Of them, those of one caller. Nobody ever has more than are left for others."""
    long_reads_max: Annotated[int, Meta(ge=1, le=THREADS_MAX)] = 2
    """Reads that compute for long and do so at the same time, in each worker. Callers take turns."""
    connections_max: Annotated[int, Meta(ge=1, le=CONNECTIONS_MAX)] = 2_048
    """Open at the same time, in each worker; fewer, if the limit of open files does not allow so many."""
    address_connections_max: Annotated[int, Meta(ge=1, le=CONNECTIONS_MAX)] = 1_024
    """Of them, those of one address. No address ever has more than are left for others."""
    row_workers: Annotated[int, Meta(ge=0, le=PROCESSES_MAX)] = 0
    """Processes apart from this one that work on rows, for each worker; 0 for one more than cores, at
    least 3."""
    row_memory_max_bytes: Annotated[int, Meta(ge=ROW_MEMORY_MIN_BYTES)] = 2 * 1024**3
    """Of each of them."""
    row_timeout_s: Annotated[float, Meta(gt=0, le=DAY_S)] = 25.0
    """For the work on rows of one request; less than a request may take, so that it is told why it ended."""
    row_queue_max: Annotated[int, Meta(ge=0)] = 32
    """Requests that wait for a row worker."""

    @property
    def values_max(self) -> int:
        """Texts, objects and lists in one body: what an operation has of them, and more."""
        return self.operations_max * VALUES_OF_OPERATION

    @property
    def checks_timeout_s(self) -> float:
        """How long all the checks of one request may take: so that there is time for its commit."""
        return self.request_timeout_s * CHECKS_SHARE

    @property
    def processes(self) -> WorkerPoolLimits:
        """Those of the row workers."""
        return WorkerPoolLimits(
            count_max=self.row_workers,
            memory_max_bytes=self.row_memory_max_bytes,
            timeout_s=self.row_timeout_s,
            queue_max=self.row_queue_max,
            memory_option="--row-memory-max-bytes",
            timeout_option="--row-timeout-s",
            queue_option="--row-queue-max",
        )
