"""A lake as work in another process sees it: what it asks of the lake is asked by who gave the work.

So the process needs neither the lake's store nor its secrets, and can do no more than the caller whose
request it works on. Commits are made where the lake is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, TypeVar

from penstock.errors import PenstockError
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import CALLS, Call, WriteCall
from penstock.lake.catalogue import Catalogue
from penstock.lake.plugins import list_calls_of_other_formats
from penstock.lake.transactions.calls import AbortTransaction, BeginTransaction, CommitTransaction
from penstock.model.transactions import PREFIX
from penstock.processes.child_process import ChildTask
from penstock.wire import json
from penstock.wire.errors import decode_error, encode_error

R = TypeVar("R")

ANSWERED: Final = b"\x01"
REFUSED: Final = b"\x00"
_KINDS: Final[dict[bytes, type[Call[Any]]]] = {kind.__name__.encode(): kind for kind in CALLS}


class TaskCatalogue:
    """A catalogue in a process of a pool. May be used by many threads."""

    def __init__(self, task: ChildTask, page_max: int | None) -> None:
        self._task, self.page_max = task, page_max

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:  # noqa: ARG002 - nobody would see it
        kind = type(call)
        reply = self._task.ask(kind.__name__.encode() + b"\0" + json.encode(call, kind))
        if reply[:1] == ANSWERED:
            answer: R = json.read_answer_json(reply[1:], kind.answer)
            return answer
        error = decode_error(500, reply[1:])
        raise error if error is not None else RuntimeError("the response cannot be parsed")

    def close(self) -> None:
        """The lake stays open: it is elsewhere."""


class CallAnswers:
    """Answers what a ``TaskCatalogue`` asks, and knows what the work has done to the lake."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._begun: set[str] = set()
        self.has_written = False
        """Whether something was changed that stays, whatever becomes of the work."""

    def __call__(self, question: bytes) -> bytes:
        name, _, data = question.partition(b"\0")
        kind = _KINDS.get(name) or next(
            candidate for candidate in list_calls_of_other_formats() if candidate.__name__.encode() == name
        )
        try:
            call = json.decode(data, kind)
            answer = self._catalogue.do(call)
        except PenstockError as error:
            return REFUSED + encode_error(error, "")
        self._record_transaction(call)
        return ANSWERED + json.encode(answer, kind.answer)

    def _record_transaction(self, call: Call[Any]) -> None:
        if isinstance(call, BeginTransaction):
            self._begun.add(call.id)
        elif isinstance(call, AbortTransaction):
            self._begun.discard(call.id)
        elif isinstance(call, CommitTransaction):
            self._begun.discard(call.id)
            self.has_written = True
        elif isinstance(call, WriteCall):
            branch = getattr(call, call.target, None) or ""
            self.has_written |= branch.removeprefix(PREFIX) not in self._begun

    def abort_left_transactions(self) -> None:
        """Abort transactions that the work has begun and not ended, since it was ended itself."""
        for transaction in self._begun:
            with suppress(PenstockError):  # its lease runs out
                self._catalogue.do(
                    AbortTransaction(id=transaction, why="the operation that started it was stopped")
                )
