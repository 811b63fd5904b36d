"""What ``--json`` prints: answers of calls as the API encodes them, and what is made of several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from penstock.lake.answers import Difference
from penstock.model.commits import Commit
from penstock.wire import json

T = TypeVar("T")


class ListPage(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A list, or a page of one."""

    items: tuple[T, ...]
    """In the order of the command."""
    next: str | None = None
    """What `--after` needs for the next page; `null` if this is the last one."""

    @classmethod
    def from_items(cls, items: Iterable[T], next_page: str | None = None) -> ListPage[T]:
        return cls(items=tuple(items), next=next_page)


class ChangedCommit(Commit, frozen=True, kw_only=True):
    """A commit with what it changed."""

    references: tuple[str, ...]
    """The branches and tags that are at it."""
    changes: tuple[Difference, ...] | None
    """What it changed, compared with its first parent; `null` if that has expired, or cannot be read."""

    @classmethod
    def from_commit(
        cls, commit: Commit, changes: Iterable[Difference] | None, references: Iterable[str]
    ) -> ChangedCommit:
        return cls(
            **msgspec.structs.asdict(commit),
            references=tuple(references),
            changes=None if changes is None else tuple(changes),
        )


def encode_answer(answer: Any, kind: Any) -> str:
    """The text that is printed for an answer of a type."""
    return msgspec.json.format(json.encode(answer, kind), indent=2).decode()
