"""Limits: how much one request, and all of them together, may ask of a server."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

DAY_S: Final = 86_400
THREADS_MAX: Final = 10_000


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
    body_timeout_s: Annotated[float, Meta(gt=0, le=DAY_S)] = 30.0
    """For a request's body to arrive, and for its headers."""
    open_requests_max: Annotated[int, Meta(ge=1, le=THREADS_MAX)] = 128
    """Being worked on at the same time, in each worker."""
