"""Logs: one JSON object a line, with the id of the request and without secrets.

A terminal gets lines for people instead. A query is never logged, for it may hold anything; a path is, with
whatever looks like a token masked.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
import warnings
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, BinaryIO, Final
from urllib.parse import unquote

import msgspec

PATH_MAX_CHARS: Final = 500
DECODED_MAX: Final = 8
"""A path that is percent-encoded more often than this is not shown at all."""

_SECRETS: Final = re.compile(
    r"(?P<token>penstock_[0-9a-f]+_)[\w-]+"
    r"|(?P<scheme>(?:bearer|basic)(?:\s|%20|\+)+)[^\s\"']+"
    r"|(?P<user>://[^/\s:@]*):[^/\s]+(?=@)",
    re.IGNORECASE,
)


class LogLevel(StrEnum):
    """How much is said: everything from here on."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogLineWriter(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line. What does not apply is left out."""

    time: str
    level: str
    message: str = ""
    request_id: str = ""
    method: str = ""
    path: str = ""
    status: int = 0
    ms: float = -1.0
    """From the first byte of the request's head to the last one of the answer."""
    who: str = ""
    request_bytes: int = 0
    answer_bytes: int = 0
    error: str = ""
    """The code of the error that the request ended with."""
    worker: int = 0
    """The process, where several serve."""
    trace: str = ""


class Log:
    """Writes lines to a stream, which it does not close."""

    def __init__(
        self, stream: BinaryIO, level: LogLevel = LogLevel.INFO, for_people: bool = False, worker: int = 0
    ) -> None:
        self._stream, self._for_people, self._worker = stream, for_people, worker
        self._encoder = msgspec.json.Encoder()
        self.level = _NUMBERS[level]

    def wants_level(self, level: LogLevel) -> bool:
        """Whether lines of a level are written."""
        return _NUMBERS[level] >= self.level

    def log_request(self, line: LogLineWriter) -> None:
        """The line of a request that was answered."""
        line.path = mask_path(line.path)[:PATH_MAX_CHARS]
        line.message = mask_secrets(line.message)
        self._write_line(line)

    def log_message(
        self, level: LogLevel, message: str, raised: BaseException | None = None, **fields: Any
    ) -> None:
        """Anything else."""
        if self.wants_level(level):
            trace = "".join(traceback.format_exception(raised)) if raised is not None else ""
            line = LogLineWriter(
                time=format_current_time(),
                level=level,
                message=mask_secrets(message),
                trace=mask_secrets(trace),
                **fields,
            )
            self._write_line(line)

    def _write_line(self, line: LogLineWriter) -> None:
        line.worker = self._worker
        data = _format_line(line).encode() if self._for_people else self._encoder.encode(line)
        try:
            self._stream.write(data + b"\n")
            self._stream.flush()
        except (OSError, ValueError):
            # Whoever read the log has gone. That is no reason to stop serving.
            return


class LogHandler(logging.Handler):
    """Brings what libraries log to our log, in the same form."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.level)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._log.log_message(_log_level(record.levelno), record.getMessage(), error)


def take_over(log: Log) -> None:
    """Let everything that this process logs or warns about go to a log."""
    root = logging.getLogger()
    root.handlers[:] = [LogHandler(log)]
    # Libraries tell people who debug them much that nobody else wants to know.
    root.setLevel(max(log.level, logging.INFO))
    logging.getLogger("uvicorn").setLevel(max(log.level, logging.WARNING))
    logging.captureWarnings(True)
    warnings.simplefilter("default")
    sys.excepthook = lambda kind, error, trace: _log_uncaught(log, kind, error, trace)


def _log_uncaught(log: Log, _: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
    log.log_message(LogLevel.ERROR, "the server ended with an unexpected error", error)


def mask_secrets(text: str) -> str:
    """The text without what looks like a secret in it."""
    return _SECRETS.sub(lambda match: f"{match['token'] or match['scheme'] or match['user'] + ':'}***", text)


def mask_path(path: str) -> str:
    """A path without secrets, however often they are percent-encoded; it is shown decoded then."""
    decoded = path
    for _ in range(DECODED_MAX):
        if _SECRETS.search(decoded):
            return mask_secrets(decoded)
        before, decoded = decoded, unquote(decoded)
        if decoded == before:
            return path
    return "***"


def format_current_time() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_NUMBERS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


def _log_level(number: int) -> LogLevel:
    return max(
        (level for level in LogLevel if _NUMBERS[level] <= number),
        key=_NUMBERS.__getitem__,
        default=LogLevel.DEBUG,
    )


def _format_line(line: LogLineWriter) -> str:
    """A line for people: the time of day, then what happened."""
    words = [line.time[11:19]]
    if line.status:
        words += [str(line.status), f"{line.method} {line.path}", f"{line.ms:.1f} ms"]
    else:
        words.append(f"{line.level}: {line.message}")
    words += [word for word in (line.who, line.error, line.message if line.status else "") if word]
    if line.request_id and (line.status >= 400 or line.trace):
        words.append(f"[{line.request_id}]")
    shown = "  ".join(words)
    text = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in shown)
    return f"{text}\n{line.trace}".rstrip()
