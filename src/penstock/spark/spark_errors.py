"""Errors of Penstock, found again in what Spark makes of them.

Code that Spark runs in processes of its own can hand back nothing but text: an error arrives as one of
Spark's, with a traceback inside its message. So Penstock's errors leave those processes with a line of text
that holds all of them, and ``unwrap`` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Final

from penstock.errors import PenstockError
from penstock.wire.errors import ERROR_MARK, decode_error, encode_error

LINE_MAX_BYTES: Final = 8 * 1024
"""A longer line would be cut on its way, and then say nothing: the larger details stay behind before that."""
_LINKS_MAX: Final = 32
"""How far causes are followed. They may lead in a circle."""


def unwrap(error: BaseException | None) -> PenstockError | None:
    """Return the Penstock error that caused a Spark error; ``None`` if there is none.

    It has its original class, message and details. Accepts any error that Spark raises, also over Spark
    Connect, and what ``StreamingQuery.exception()`` returns.
    """
    for cause in _list_causes(error):
        if isinstance(cause, PenstockError):
            return cause
        for text in (str(cause), *_java_texts(cause)):
            if (marked_error := _parse_marked_error(text)) is not None:
                return marked_error
    return None


@contextmanager
def mark_errors() -> Iterator[None]:
    """Let errors of Penstock that leave a worker say in their text all that they are.

    Where inside of Penstock they were raised is left out: Spark shows users the whole text.
    """
    try:
        yield
    except PenstockError as problem:
        penstock_error = copy(problem)
        penstock_error.add_note(ERROR_MARK + _format_line(problem))
        raise penstock_error from None


def as_line(error: PenstockError) -> str:
    """The line that ``unwrap`` reads, for an error of the JVM that says the message by itself."""
    return ERROR_MARK + _format_line(error)


def _format_line(error: PenstockError) -> str:
    line = encode_error(error, error.request_id)
    if len(line) > LINE_MAX_BYTES:
        plain = {name: value for name, value in error.details.items() if isinstance(value, str | int | float)}
        shorter = PenstockError.__new__(type(error))
        PenstockError.__init__(shorter, error.message[: LINE_MAX_BYTES // 4], **plain)
        line = encode_error(shorter, error.request_id)
    return line.decode()


def _parse_marked_error(text: str) -> PenstockError | None:
    """The error that a text holds a line of."""
    _, mark, rest = text.partition(ERROR_MARK)
    if not mark:
        return None
    try:
        error_json, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:  # cut on its way
        return None
    return decode_error(500, json.dumps(error_json).encode())


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those it was raised for."""
    for _ in range(_LINKS_MAX):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _java_texts(error: BaseException) -> Iterator[str]:
    """What the errors of the JVM say that a Python error stands for, with their causes."""
    waiting: list[Any] = [getattr(error, "java_exception", None), getattr(error, "_origin", None)]
    for _ in range(_LINKS_MAX):
        if not waiting:
            return
        java = waiting.pop(0)
        if hasattr(java, "getCause"):
            yield str(java.toString())
            waiting += [java.getCause(), *java.getSuppressed()]
