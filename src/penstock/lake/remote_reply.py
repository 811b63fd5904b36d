"""Verdicts: what an answer of a server, or a missing one, says about a request."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from penstock.errors import (
    AdministratorError,
    Denied,
    InvalidRequest,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    RouteNotFound,
    StorageFull,
    Throttled,
    TimedOut,
    Unauthenticated,
    Unavailable,
    UnsupportedFormat,
)
from penstock.lake.call import Call, RetrySafety, find_retry_safety
from penstock.lake.remote_connection import LostAnswer, RequestNotSent, ServerReply
from penstock.wire import json
from penstock.wire.errors import decode_error, find_error_class

_PASSING: Final = (502, 503, 504, *range(520, 530))
"""What things in between say when the server does not answer them as it should."""


class DoneVerdict(msgspec.Struct, frozen=True):
    """It was carried out."""

    answer: Any


class RefusedVerdict(msgspec.Struct, frozen=True):
    """It was looked at, and not carried out."""

    error: PenstockError


class UnansweredTry(msgspec.Struct, frozen=True, kw_only=True):
    """A try without an answer: the request may or may not have been carried out."""

    error: PenstockError
    """What to raise if it is not tried again, and certainly was not carried out."""
    in_doubt: bool
    """Whether it may have been carried out."""
    again: bool = True
    """Whether another try may help."""
    is_spoilt: bool = False
    """Whether an answer came that cannot be made use of: another try may be answered better, but a third one
    is hardly."""
    wait_s: float = 0.0
    """How long the server asks to wait."""


Verdict: TypeAlias = DoneVerdict | RefusedVerdict | UnansweredTry


def judge_reply(heard: ServerReply | LostAnswer | RequestNotSent, call: Call[Any], url: str) -> Verdict:
    """What was heard of the server at an address, after a call was sent to it."""
    if isinstance(heard, RequestNotSent):
        unsent = heard.error or Unavailable(f"cannot connect to {url}: {heard}", url=url)
        return UnansweredTry(error=unsent, in_doubt=False, again=not heard.is_final)
    if isinstance(heard, LostAnswer):
        error = Unavailable(f"the connection to {url} was lost: {heard}", url=url)
        is_long = call.is_long  # starting anew is for the caller to decide
        return UnansweredTry(error=error, in_doubt=True, again=not is_long)
    if 200 <= heard.status < 300:
        return _judge_success(heard, call, url)
    decoded_error = decode_error(heard.status, heard.body) if heard.is_json else None
    return (
        _judge_proxy_reply(heard, call, url)
        if decoded_error is None
        else _judge_error(decoded_error, heard, call, url)
    )


def _judge_success(reply: ServerReply, call: Call[Any], url: str) -> Verdict:
    if call.answer is None and reply.status == HTTPStatus.NO_CONTENT:
        return DoneVerdict(None)
    if not reply.is_json:
        return UnansweredTry(error=_proxy_error(reply, url), in_doubt=True, is_spoilt=True)
    if call.answer is None:
        return DoneVerdict(None)
    try:
        return DoneVerdict(json.read_answer_json(reply.body, call.answer))
    except UnsupportedFormat as problem:
        error = UnsupportedFormat(
            f"{url} is newer than this Penstock, or not a Penstock server: {problem}", url=url
        )
        return UnansweredTry(error=error, in_doubt=True, is_spoilt=True)


def _judge_error(error: PenstockError, reply: ServerReply, call: Call[Any], url: str) -> Verdict:
    if isinstance(error, StorageFull):  # it stays so until somebody makes room
        return UnansweredTry(error=error, in_doubt=False, again=False)
    if isinstance(error, Unavailable | Throttled):
        return UnansweredTry(error=error, in_doubt=False, wait_s=reply.retry_after_s)
    if isinstance(error, OutcomeUnknown):
        return UnansweredTry(error=error, in_doubt=True, wait_s=reply.retry_after_s)
    if isinstance(error, TimedOut):
        # A read that took too long would take as long again.
        again = find_retry_safety(call) is not RetrySafety.READ
        return UnansweredTry(error=error, in_doubt=True, again=again, wait_s=reply.retry_after_s)
    if type(error) is AdministratorError:  # a fault of the server, before or after it was carried out
        return UnansweredTry(error=error, in_doubt=True, is_spoilt=True)
    return RefusedVerdict(_no_route_error(error, call, url) if isinstance(error, RouteNotFound) else error)


def _no_route_error(error: RouteNotFound, call: Call[Any], url: str) -> PenstockError:
    """What it means that Penstock answers, but knows no such address."""
    place = urlsplit(url)
    root = f"{place.scheme}://{place.netloc}"
    if place.path:
        not_found: PenstockError = LakeNotFound(f"there is no lake at {url}, but a server at {root}", url=url)
    else:
        what = f"{call.method} {call.path}"
        not_found = RouteNotFound(
            f"{url} does not support {what}: it may be older than this Penstock", url=url
        )
    not_found.request_id = error.request_id
    return not_found


def _judge_proxy_reply(reply: ServerReply, call: Call[Any], url: str) -> Verdict:
    """The answer is from a proxy, or there is no Penstock at that address."""
    is_passing = reply.status in _PASSING
    if (
        find_retry_safety(call) is not RetrySafety.READ
    ):  # it may have been passed on, whatever is said of it then
        is_passing = reply.status == HTTPStatus.REQUEST_TIMEOUT or reply.status >= 500
    if is_passing:
        error = Unavailable(f"{url} returned {reply.status} from a proxy, not from Penstock", url=url)
        return UnansweredTry(error=error, in_doubt=True, wait_s=reply.retry_after_s)
    if reply.status == Throttled.http_status:
        busy = Throttled(f"{url} accepts no more requests at the moment", url=url)
        return UnansweredTry(error=busy, in_doubt=False, wait_s=reply.retry_after_s)
    return RefusedVerdict(_proxy_error(reply, url))


def _proxy_error(reply: ServerReply, url: str) -> PenstockError:
    if 300 <= reply.status < 400:
        place = reply.headers.get("location", "somewhere else")
        return InvalidRequest(f"{url} redirects to {place}; open that instead, if it is the lake's server")
    if reply.status in (400, 414, 431):
        return InvalidRequest(f"{url} cannot read the request ({reply.status}): it may be too long")
    kind = find_error_class(reply.status)
    if kind in (Unauthenticated, Denied) or reply.status in (408, 413) or reply.status >= 500:
        return kind(f"{url} returned {reply.status}, but not from Penstock: is there a proxy in front of it?")
    return LakeNotFound(f"{url} is not a Penstock server: something else answered ({reply.status})", url=url)
