"""What the handlers of calls share: what a commit says of itself, how a list is limited, what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from penstock.errors import InvalidRequest
from penstock.lake.call import Said
from penstock.model.clock import microseconds
from penstock.model.commits import CommitMeta

T = TypeVar("T")


def commit_meta(said: Said, who: str, message: str) -> CommitMeta:
    """What a commit says of itself: ``message``, unless its writer gave one."""
    return CommitMeta(
        message=message if said.message is None else said.message,
        authors=said.authors if said.authors is not None else ((who,) if who else ()),
        author_time_us=said.author_time_us if said.author_time is None else microseconds(said.author_time),
        signed_off_by=said.signed_off_by,
        properties=said.properties,
        committer=who,
        is_dated=said.author_time is not None,
    )


def first(items: Iterable[T], limit: int | None) -> Iterator[T]:
    if limit is not None and limit < 0:
        raise InvalidRequest(f"limit must be 0 or greater, got {limit}")
    return islice(items, limit)


def in_transaction_error(name: str) -> InvalidRequest:
    """The error for taking over what is in a transaction."""
    return InvalidRequest(
        f"'{name}' is the branch of a transaction, and cannot be read from before the transaction is "
        "committed",
        name=name,
    )
