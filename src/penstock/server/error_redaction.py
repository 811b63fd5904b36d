"""Discretion: where a lake is stored, and what its store says when it fails, concerns who runs the server.

Errors of stores name hosts, databases and paths, so that somebody can mend them. Callers who do not
administer the lake are told the same in general words; the log has all of it.
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
from penstock.kernel.reachable import Progress, silent
from penstock.lake.calls import Call
from penstock.lake.catalogue import Catalogue

R = TypeVar("R")

_GENERAL: Final[dict[type[PenstockError], str]] = {
    Unavailable: "the lake's {part} cannot be used at the moment",
    StorageFull: "the lake's {part} has no room left; the server's administrator must free space there",
    OutcomeUnknown: "the lake's store did not say whether this was applied",
    StorageRefused: (
        "the lake's {part} refuses access to the server, and does so again if the request is repeated; the "
        "server's administrator must check its keys and permissions"
    ),
    Denied: "the server has no access to the lake's store; the server's administrator must fix that",
    Damaged: "the lake is damaged; the server's administrator must fix that",
    UnsupportedFormat: "the server's version cannot read the lake; the server's administrator must fix that",
    LakeNotFound: "the lake is not where the server expects it; the server's administrator must fix that",
    LakeExists: "there is a lake already",
    LakeMoved: "the lake is being moved, or has moved, to another location; this one is read-only",
}
"""What can only come from the store, or tells where it is."""

_OF_STORES: Final = tuple(_GENERAL)

_PARTS: Final = {"database": "database", "storage": "storage of tables"}
"""Parts of a lake, as errors tell them (``details["part"]``)."""

_TOLD: Final = ("key", "name", "id", "object", "objects", "part", "right")
"""Details that are about what was asked."""


class Discreet:
    """A catalogue whose errors do not tell where the lake is."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.page_max = catalogue.page_max

    def do(self, call: Call[R], progress: Progress = silent) -> R:
        try:
            return self._catalogue.do(call, progress)
        except _OF_STORES as error:
            raise in_general(error) from error

    def close(self) -> None:
        """The lake stays open: others use it too."""


def in_general(error: PenstockError) -> PenstockError:
    """An error of the same kind, in words for everybody."""
    kind = next(kind for kind in type(error).__mro__ if kind in _GENERAL)
    details: dict[str, Any] = {name: error.details[name] for name in _TOLD if name in error.details}
    message = _GENERAL[kind].format(part=_PARTS.get(error.details.get("part", ""), "store"))
    if isinstance(error, OutcomeUnknown):
        key = details.get("key")
        again = f"; repeating it with idempotency key {key} is safe, and returns the outcome"
        message += again if key else "; look for it"
    return type(error)(message, **details)


def whole_message(error: PenstockError) -> str:
    """What an error says to those who run the server."""
    cause = error.__cause__
    return cause.message if isinstance(cause, PenstockError) else error.message
