"""Requests of a remote lake: a call with values of wrong types is refused here, in the lake's own words."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidRequest
from penstock.lake.call import Call
from penstock.wire.requests import WireRequest, request_of


def encode_request(call: Call[Any]) -> WireRequest:
    """The call as a request; ``InvalidName`` or ``InvalidContent`` if that is why it cannot be sent."""
    try:
        return request_of(call)
    except InvalidRequest:
        call.check_sendable()
        raise
