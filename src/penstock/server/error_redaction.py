"""Redaction of errors: the location of a lake and the messages of its store are for administrators only.

Errors of stores name hosts, databases and paths, which an administrator needs to fix them. Other callers get
an error of the same class with a general message; the server's log has the whole message.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from penstock.errors import (
    Damaged,
    Denied,
    LakeExists,
    LakeMoved,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    StorageFull,
    StorageRefused,
    Unavailable,
    UnsupportedFormat,
)
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import Call
from penstock.lake.catalogue import Catalogue

R = TypeVar("R")

_PUBLIC_MESSAGES: Final[dict[type[PenstockError], str]] = {
    Unavailable: "the lake's {part} cannot be used at the moment",
    StorageFull: "the lake's {part} has no room left; the server's administrator must free space there",
    OutcomeUnknown: "the lake's store did not confirm whether the change was applied",
    StorageRefused: (
        "the lake's {part} refuses access to the server, and does so again if the request is repeated; the "
        "server's administrator must check its keys and permissions"
    ),
    Denied: "the server has no access to the lake's store; the server's administrator must fix that",
    Damaged: "the lake is damaged; the server's administrator must fix that",
    UnsupportedFormat: "the server's version cannot read the lake; the server's administrator must fix that",
    LakeNotFound: "the lake is not where the server expects it; the server's administrator must fix that",
    LakeExists: "the lake already exists",
    LakeMoved: "the lake is being moved, or has moved, to another location; this one is read-only",
}
"""Errors of the store, whose messages may contain its address, and the messages that callers get instead."""

_STORE_ERRORS: Final = tuple(_PUBLIC_MESSAGES)

_PARTS: Final = {"database": "database", "storage": "storage of tables"}
"""Parts of a lake, by the values of ``details["part"]``."""

_SHARED_DETAILS: Final = ("key", "name", "id", "object", "objects", "part", "right")
"""Details that describe the request, and are passed on."""


class RedactingCatalogue:
    """A catalogue whose errors do not reveal where the lake is stored."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.page_max = catalogue.page_max

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        try:
            return self._catalogue.do(call, progress)
        except _STORE_ERRORS as error:
            raise redact_error(error) from error

    def close(self) -> None:
        """The lake stays open: others use it too."""


def redact_error(error: PenstockError) -> PenstockError:
    """An error of the same class, with a message that any caller may read."""
    kind = next(kind for kind in type(error).__mro__ if kind in _PUBLIC_MESSAGES)
    details: dict[str, Any] = {name: error.details[name] for name in _SHARED_DETAILS if name in error.details}
    message = _PUBLIC_MESSAGES[kind].format(part=_PARTS.get(error.details.get("part", ""), "store"))
    if isinstance(error, OutcomeUnknown):
        key = details.get("key")
        again = f"; repeating it with idempotency key {key} is safe, and returns the outcome"
        message += again if key else "; check whether it was before you repeat it"
    return type(error)(message, **details)


def get_whole_message(error: PenstockError) -> str:
    """What an error says to those who run the server."""
    cause = error.__cause__
    return cause.message if isinstance(cause, PenstockError) else error.message
