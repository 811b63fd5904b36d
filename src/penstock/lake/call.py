"""What all calls share: how they travel, what they are answered with, how writes are told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from penstock.model.encoding import ObjectId

R = TypeVar("R")

PAGE_MAX: Final = 1000
"""How many items a call asks for at once, where it goes through a list page by page."""


class Call(msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all calls share: how they travel, and the type of their answer."""

    method: ClassVar[str] = "GET"
    path: ClassVar[str]
    answer: ClassVar[Any]
    is_long: ClassVar[bool] = False
    """Whether it takes as long as the lake is large, and tells how far it is."""
    makes_lake: ClassVar[bool] = False
    """Whether it brings something into the lake, so that one is made for it where there is none yet."""


class Write(Call[R], frozen=True, kw_only=True):
    """A call that changes a branch or tag, once, however often it is sent with the same key."""

    method: ClassVar[str] = "POST"
    target: ClassVar[str]
    """The field that names the reference it is about; nothing there is the default branch."""
    moves: ClassVar[bool] = False
    """Whether it moves the reference itself, and so has keys apart from what brings commits to it."""

    idempotency_key: str | None = None
    """The same request under the same key is done once. A remote client makes one if it is not given."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""
    asked: ObjectId | None = None
    """A hash of the request as it was asked, if it was put otherwise since. It does not travel."""


class Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a writer says about a commit."""

    message: str | None = None
    """If it is not given, one is made up that tells what was done."""
    authors: tuple[str, ...] | None = None
    """Who wrote it; whoever acts, if nothing is said."""
    signed_off_by: tuple[str, ...] = ()
    author_time_us: int = 0
    """As ``author_time``, in microseconds since 1970. Clients of the first release send 0 for nothing."""
    properties: dict[str, tuple[str, ...]] = {}
    author_time: datetime | None = None
    """When it was written; when it is committed, if nothing is said."""


def said(
    message: str | None,
    author: str | None = None,
    properties: Mapping[str, str | Sequence[str]] | None = None,
) -> Said:
    """What a program says about a commit, as a call carries it."""
    lists = {
        name: tuple(values) if isinstance(values, list | tuple) else (values,)
        for name, values in (properties or {}).items()
    }
    authors = None if author is None else (author,) if author else ()
    return Said(message=message, authors=authors, properties=lists)


class ReadAt(Call[R], frozen=True, kw_only=True):
    """A call that reads the lake at a commit."""

    at: str | None = None
    """A revision; the default branch's head if nothing is given."""
    via: str | None = None
    """The reference that led to the commit, where ``at`` is only its id: who may read that may read this."""
