"""The metrics of Penstock, each declared once: name, help text, labels, unit and buckets.

Those of a table format are in its package.

Names end as Prometheus wants them to: in ``_total`` where something is only ever added, else in the unit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

BRANCH: Final = "branch"
"""The one label whose values users make up; a meter shows only so many of them."""


class Type(StrEnum):
    """What can be done with a metric."""

    COUNTER = "counter"
    """Only ever added to."""
    GAUGE = "gauge"
    """Set to what it is now."""
    HISTOGRAM = "histogram"
    """Observed, value by value."""


class Metric(msgspec.Struct, frozen=True, eq=False):
    """One metric. ``buckets`` are the upper bounds for those systems that need them in advance."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    """In the way of UCUM, as OpenTelemetry wants it: ``s``, ``By``, or ``{things}`` that are counted."""
    buckets: tuple[float, ...] = ()


SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""From a look-up in memory to a store that is in trouble."""
REQUESTS_A_BATCH: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


def declare_counter(name: str, unit: str, text: str, *labels: str) -> Metric:
    """A counter of things, or of bytes if their name is ``By``."""
    return Metric(name, Type.COUNTER, text, labels, f"{{{unit}}}" if unit != "By" else unit)


def _declare_seconds(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Type.HISTOGRAM, text, labels, "s", SECONDS)


# --- the kernel ---

REQUESTS: Final = declare_counter(
    "penstock_requests_total",
    "requests",
    "Requests that move a branch or tag, by kind (as in the ref log; 'reference' if it was created, "
    "assigned, rebased or deleted) and outcome: 'ok', the code of the error, or 'error' for an error "
    "that is not Penstock's.",
    BRANCH,
    "kind",
    "outcome",
)
REQUEST_SECONDS: Final = _declare_seconds(
    "penstock_request_seconds",
    "Time from the start of a request to its response, including waiting.",
    "kind",
)
QUEUE_DEPTH: Final = Metric(
    "penstock_queue_depth",
    Type.GAUGE,
    "Requests that a branch's queue holds in this process, those being committed included.",
    (BRANCH,),
    "{requests}",
)
QUEUE_WAIT_SECONDS: Final = _declare_seconds(
    "penstock_queue_wait_seconds",
    "Time that a request waited in the queue before its batch began.",
)
BATCH_REQUESTS: Final = Metric(
    "penstock_batch_requests",
    Type.HISTOGRAM,
    "Requests in a batch, which one swap commits together.",
    (),
    "{requests}",
    REQUESTS_A_BATCH,
)
TRIES: Final = declare_counter(
    "penstock_tries_total",
    "tries",
    "Attempts to apply a batch and send it to the store; all but the first one of a batch are retries.",
    BRANCH,
)
SWAPS_LOST: Final = declare_counter(
    "penstock_swaps_lost_total",
    "swaps",
    "Attempts that failed because another process moved the branch first.",
    BRANCH,
)

# --- a store that is observed ---

STORE_SECONDS: Final = _declare_seconds(
    "penstock_store_seconds",
    "Time of calls to a store, by operation, including failed ones. Its count is the number of calls.",
    "operation",
)
STORE_ERRORS: Final = declare_counter(
    "penstock_store_errors_total",
    "errors",
    "Calls to a store that raised an error, by operation and the error's code.",
    "operation",
    "error",
)
STORE_SWAPS: Final = declare_counter(
    "penstock_store_swaps_total",
    "swaps",
    "Conditional replacements of a row, by outcome: 'swapped'; 'lost', because the row had changed; "
    "'present', because an object that had to be new was there already; 'unknown', because the answer "
    "was lost; 'failed', which surely replaced nothing.",
    BRANCH,
    "outcome",
)
STORE_OBJECTS_READ: Final = declare_counter(
    "penstock_store_objects_read_total", "objects", "Objects read from a store."
)
STORE_OBJECTS_WRITTEN: Final = declare_counter(
    "penstock_store_objects_written_total",
    "objects",
    "Objects written to a store, including those that it already had.",
)
STORE_OBJECTS_DELETED: Final = declare_counter(
    "penstock_store_objects_deleted_total", "objects", "Objects that a store deleted for the sweep."
)
STORE_READ_BYTES: Final = declare_counter(
    "penstock_store_read_bytes_total", "By", "Bytes of objects and rows read from a store."
)
STORE_WRITTEN_BYTES: Final = declare_counter(
    "penstock_store_written_bytes_total", "By", "Bytes of objects and rows written to a store."
)

# --- a store that caches ---

CACHE_OBJECTS: Final = declare_counter(
    "penstock_cache_objects_total",
    "objects",
    "Reads of objects, by result: 'hit' if the object was in the cache, 'miss' if it was not.",
    "result",
)
CACHE_BYTES: Final = Metric(
    "penstock_cache_bytes", Type.GAUGE, "Bytes of objects that the cache holds.", (), "By"
)

# --- a server ---

HTTP_REQUESTS: Final = declare_counter(
    "penstock_http_requests_total",
    "requests",
    "Requests that a server answered, by API, route ('GET /references/{name}'; empty for an unknown "
    "address) and HTTP status; 499 if the client disconnected before its request was complete.",
    "api",
    "route",
    "status",
)
HTTP_SECONDS: Final = _declare_seconds(
    "penstock_http_request_seconds",
    "Time of a request, from its first line to the end of the response.",
    "api",
    "route",
)
HTTP_OPEN_REQUESTS: Final = Metric(
    "penstock_http_open_requests",
    Type.GAUGE,
    "Requests that a server is reading or working on, including those that have timed out.",
    (),
    "{requests}",
)
HTTP_REFUSALS: Final = declare_counter(
    "penstock_http_refusals_total",
    "refusals",
    "Requests and connections that a server refused to keep room for others, by what was used up: 'places' "
    "of the server, 'caller_places' of one caller, 'large_bodies' of the server, 'connections' of the "
    "server, 'address_connections' of one address, 'open_files' of the process.",
    "reason",
)
HTTP_TURN_WAIT_SECONDS: Final = _declare_seconds(
    "penstock_http_turn_wait_seconds",
    "Time that long-running reads waited for their turn, each time.",
)
HTTP_STOPPED_READS: Final = declare_counter(
    "penstock_http_stopped_reads_total",
    "reads",
    "Reads that were stopped before they were complete, by reason: 'deadline', or 'client_gone'.",
    "reason",
)
HTTP_CONNECTIONS: Final = Metric(
    "penstock_http_connections", Type.GAUGE, "Connections that a server has open.", (), "{connections}"
)

METRICS: Final = (
    *(REQUESTS, REQUEST_SECONDS, QUEUE_DEPTH, QUEUE_WAIT_SECONDS, BATCH_REQUESTS, TRIES, SWAPS_LOST),
    *(STORE_SECONDS, STORE_ERRORS, STORE_SWAPS),
    *(STORE_OBJECTS_READ, STORE_OBJECTS_WRITTEN, STORE_OBJECTS_DELETED),
    *(STORE_READ_BYTES, STORE_WRITTEN_BYTES),
    *(CACHE_OBJECTS, CACHE_BYTES),
    *(HTTP_REQUESTS, HTTP_SECONDS, HTTP_OPEN_REQUESTS),
    *(HTTP_REFUSALS, HTTP_TURN_WAIT_SECONDS, HTTP_STOPPED_READS, HTTP_CONNECTIONS),
)
"""All of them but those of table formats."""
