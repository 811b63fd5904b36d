"""Sending: a call is tried until its outcome is known, or time is up.

A try is in doubt if it may have been carried out, or may still be: its answer was lost, or the server stopped
waiting for it. What a later try is told must be read with that in mind.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import (
    ConflictError,
    Denied,
    IdempotencyKeyReused,
    InvalidKey,
    InvalidName,
    InvalidRequest,
    LakeMoved,
    PenstockError,
    RequestError,
    TableStateRefused,
    Unauthenticated,
)
from penstock.kernel.reachable import Progress
from penstock.lake.answers import LandedRequest
from penstock.lake.call import (
    AFTER_DOUBT,
    Ask,
    Call,
    RetrySafety,
    WriteCall,
    find_retry_safety,
    request_digest,
)
from penstock.lake.read_calls import GetOutcome
from penstock.lake.remote_connection import Connection, LostAnswer, RequestNotSent, ServerReply
from penstock.lake.remote_outcome import is_same_for_every_try, recover_answer, unknown_outcome_error
from penstock.lake.remote_reply import DoneVerdict, RefusedVerdict, UnansweredTry, judge_reply
from penstock.wire.requests import WireRequest, make_wire_request

if TYPE_CHECKING:
    from penstock.lake.remote import RemoteTimeouts


SETTLE_S: Final = 45.0
"""How long a server may still carry out a write whose sender heard nothing of it, if it does not say."""


class RemoteSender:
    """One call on its way: its tries, and whether one of them may have been carried out."""

    def __init__(
        self,
        connection: Connection,
        patience: RemoteTimeouts,
        ask: Ask,
        *,
        key_is_new: bool,
        settle_s: float,
        longer_s: float = 0.0,
    ) -> None:
        """``longer_s`` is how much longer than others this server works on a request."""
        self._connection, self._patience = connection, patience
        self._ask = ask
        """Makes other calls, to find out what came of this one."""
        self._key_is_new = key_is_new
        """Whether nobody can have used the call's idempotency key before."""
        self._settle_s = settle_s
        """How long after it was sent a try may still be carried out."""
        self._answer_timeout_s = patience.answer_timeout_s + longer_s
        self._deadline_s = time.monotonic() + patience.total_s + longer_s
        self._tries = 0
        self._doubt: PenstockError | None = None
        """Why it is not known whether it was carried out by an earlier try."""
        self._doubt_s = 0.0
        """When the last try in doubt was sent."""
        self._was_spoilt = False
        """Whether an answer came that could not be made use of."""

    def send_until_answered(self, call: Call[Any], progress: Progress) -> Any:
        """Send the call until its outcome is known; ``OutcomeUnknown`` if it is not in the end."""
        request, seen = encode_request(call), call.look_up_before(self._ask)
        while True:
            self._tries += 1
            heard = self._send_once(call, request, progress)
            sent_s, verdict = self._connection.sent_s, judge_reply(heard, call, self._connection.url)
            if isinstance(verdict, DoneVerdict):
                return verdict.answer
            if isinstance(verdict, RefusedVerdict):
                return self._raise_refusal(call, verdict.error, seen)
            if verdict.in_doubt and find_retry_safety(call) is not RetrySafety.READ:
                is_told = isinstance(heard, ServerReply) and heard.is_json
                if is_told or self._doubt is None:  # what the server says tells more than a loss
                    self._doubt = verdict.error
                self._doubt_s = sent_s
            if not self._may_repeat(call, verdict):
                return self._raise_final_error(call, verdict.error)
            if not self._wait_for_next_try(verdict.wait_s):
                raise verdict.error if self._doubt is None else unknown_outcome_error(call, self._doubt)

    def _send_once(
        self, call: Call[Any], request: WireRequest, progress: Progress
    ) -> ServerReply | LostAnswer | RequestNotSent:
        try:
            if call.is_long:
                return self._connection.send_and_follow_progress(
                    request, self._patience.silence_timeout_s, progress
                )
            left_s = max(self._deadline_s - time.monotonic(), self._patience.connect_timeout_s)
            return self._connection.send_and_wait(request, min(self._answer_timeout_s, left_s))
        except (LostAnswer, RequestNotSent) as problem:
            return problem

    def _may_repeat(self, call: Call[Any], verdict: UnansweredTry) -> bool:
        retry = find_retry_safety(call)
        if self._doubt is not None and retry is RetrySafety.ONCE:
            return False
        if verdict.is_spoilt:
            is_second, self._was_spoilt = self._was_spoilt, True
            return not is_second and retry is not RetrySafety.READ
        return verdict.again

    def _wait_for_next_try(self, at_least_s: float) -> bool:
        """Wait before the next try; whether there is time for one."""
        longest_s = self._patience.wait_min_s * 2 ** min(self._tries - 1, 30)
        wait_s = max(random.uniform(0, min(longest_s, self._patience.wait_max_s)), at_least_s)
        if time.monotonic() + wait_s >= self._deadline_s:
            return False
        time.sleep(wait_s)
        return True

    # -- after a doubt -------------------------------------------------------------------------------------

    def _raise_final_error(self, call: Call[Any], error: PenstockError) -> Any:
        """Another try is of no use. If this one may have been carried out, the lake may know."""
        if self._doubt is None:
            raise error
        if isinstance(call, WriteCall) and (landing := self._look_up(call, self._doubt)) is not None:
            return recover_answer(self._ask, call, landing)
        raise unknown_outcome_error(call, self._doubt)

    def _raise_refusal(self, call: Call[Any], error: PenstockError, seen: Any) -> Any:
        """Raise the error, unless an earlier try was carried out, and that is why this one was refused."""
        if self._doubt is None:
            raise error
        may_be_another = isinstance(error, IdempotencyKeyReused) and not self._key_is_new
        if may_be_another or isinstance(error, Denied | Unauthenticated):
            raise unknown_outcome_error(call, self._doubt) from error
        if not isinstance(call, WriteCall):
            if isinstance(error, LakeMoved) or not isinstance(error, RequestError | ConflictError):
                raise unknown_outcome_error(call, self._doubt) from error
            try:
                return call.answer_if_done_before(self._ask, error, seen)
            except PenstockError as problem:
                if problem is error:
                    raise
                raise unknown_outcome_error(call, self._doubt) from problem
        landing = self._wait_for_outcome(call, error, self._doubt)
        if landing is None:
            error.details[AFTER_DOUBT] = True
            raise error
        if call.is_checked_again and isinstance(error, TableStateRefused):
            raise unknown_outcome_error(call, error) from error
        return recover_answer(self._ask, call, landing)

    def _wait_for_outcome(
        self, call: WriteCall[Any], error: PenstockError, doubt: PenstockError
    ) -> LandedRequest | None:
        """What an earlier try came to; ``None`` if to nothing, once none can still be running.

        A branch that a merge named may be gone by now, while a first try that still found it waits for a
        slow store. So a refusal that is of the moment proves nothing until every try must have ended, even
        if that is after the time for all tries.
        """
        wait_s = self._patience.wait_min_s
        while True:
            left_s = self._doubt_s + self._settle_s - time.monotonic()
            landing = self._look_up(call, doubt)
            if landing is not None or left_s <= 0 or is_same_for_every_try(call, error):
                return landing
            time.sleep(min(wait_s, left_s))
            wait_s = min(wait_s * 2, self._patience.wait_max_s)

    def _look_up(self, call: WriteCall[Any], doubt: PenstockError) -> LandedRequest | None:
        assert call.idempotency_key is not None
        key, branch = call.idempotency_key, call.target_name
        try:
            this_one = (
                None if self._key_is_new else request_digest(call)
            )  # others may have used the caller's key
            question = GetOutcome(key=key, branch=branch, asked=this_one)
            landing: LandedRequest | None = self._ask(question)
        except (InvalidName, InvalidKey, IdempotencyKeyReused):
            return None  # nothing can have been done under such a name, or with a key that another has
        except PenstockError as problem:
            raise unknown_outcome_error(call, doubt) from problem
        return landing


def encode_request(call: Call[Any]) -> WireRequest:
    """The call as a request; ``InvalidName`` or ``InvalidContent`` if that is why it cannot be sent."""
    try:
        return make_wire_request(call)
    except InvalidRequest:
        call.check_sendable()
        raise
