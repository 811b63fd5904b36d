"""The lake's description of itself: one row of the store, made when the lake is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Final
from uuid import uuid4

import msgspec

from penstock.errors import Damaged, InvalidRequest, LakeExists, LakeNotFound, UnsupportedFormat
from penstock.kernel.retry import Tries
from penstock.kernel.settings import Settings
from penstock.model.encoding import ObjectId, decoder, encode
from penstock.model.names import NAME_MAX_CHARS
from penstock.model.references import Kind
from penstock.stores.port import Row, Store

FORMAT_VERSION: Final = 1
"""Of what is stored. A lake with a higher one is refused."""

COMMITS_MAX: Final = 2**40
DAYS_MAX: Final = 100_000

ROW_NAME: Final = "@lake"
"""No branch or tag can have this name."""


class HistoryRule(msgspec.Struct, frozen=True, array_like=True):
    """How much history references keep whose names match a pattern: so many commits, and all younger ones.

    The horizon is the lake's, not a process's: whoever writes must know what the sweep may remove.
    """

    pattern: str
    max_commits: int | None
    max_days: float | None
    since_us: int
    """The sweep heeds it a grace period later, when every writer has seen it."""
    ended_us: int | None = None
    """Writers heed it for a grace period longer, because a sweep that began before may."""


class Description(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a lake is: its id, its default branch, where its tables are, what the sweep has removed."""

    format_version: int = FORMAT_VERSION
    id: str
    created_us: int
    default_branch: str = "main"
    warehouse: str = ""
    """Where tables without a location of their own are."""
    roots: tuple[str, ...] = ()
    """Further places where tables may be."""
    expired: tuple[ObjectId, ...] = ()
    """Commits behind the history horizon that kept ones name as their parents."""
    history: tuple[HistoryRule, ...] = ()
    """Of several that match a name, the one set last holds. Without one, all history is kept."""

    def _matching(self, name: str) -> Iterator[HistoryRule]:
        """The rules for a reference, the one set last first."""
        return (rule for rule in reversed(self.history) if fnmatchcase(name, rule.pattern))

    def rule_for(self, name: str) -> HistoryRule | None:
        """The rule that holds for a reference."""
        return next((rule for rule in self._matching(name) if rule.ended_us is None), None)

    def rules_since(self, name: str, oldest_us: int) -> list[HistoryRule]:
        """The rules that held for a reference at any moment since a time."""
        rules: list[HistoryRule] = []
        for rule in self._matching(name):
            if rule.ended_us is None or rule.ended_us > oldest_us:
                rules.append(rule)
                if rule.ended_us is None and rule.since_us <= oldest_us:
                    break
        return rules


_decode = decoder(Description).decode


def checked_rule(
    pattern: str, max_commits: int | None, max_days: float | None, now_us: int
) -> HistoryRule | None:
    """A new rule, ``None`` without limits; ``InvalidRequest`` if it cannot be."""
    if not isinstance(pattern, str) or not pattern.isprintable() or not 0 < len(pattern) <= NAME_MAX_CHARS:
        raise InvalidRequest(f"{pattern!a} is not a pattern of reference names")
    if max_commits is None and max_days is None:
        return None
    if max_commits is not None and not (type(max_commits) is int and 1 <= max_commits <= COMMITS_MAX):
        raise InvalidRequest(f"a history keeps 1 to {COMMITS_MAX} commits, not {max_commits!r}")
    if max_days is not None and not (type(max_days) in (int, float) and 0 <= max_days <= DAYS_MAX):
        raise InvalidRequest(f"a history keeps 0 to {DAYS_MAX} days, not {max_days!r}")
    return HistoryRule(pattern, max_commits, max_days, now_us)


def new_description(
    created_us: int, default_branch: str, warehouse: str, roots: tuple[str, ...]
) -> Description:
    return Description(
        id=str(uuid4()),
        created_us=created_us,
        default_branch=default_branch,
        warehouse=warehouse,
        roots=roots,
    )


def find_description(store: Store) -> Description | None:
    """What the lake says of itself, if there is one; ``UnsupportedFormat`` if it is too new."""
    row = store.reference(ROW_NAME)
    return _checked(row, store) if row is not None else None


def read_description(store: Store) -> Description:
    """What the lake says of itself; ``LakeNotFound`` if there is none."""
    found = find_description(store)
    if found is None:
        raise LakeNotFound(f"there is no lake at {store.url}", url=store.url)
    return found


def _checked(row: Row, store: Store) -> Description:
    try:
        (version, *_) = msgspec.msgpack.decode(row.data)
        found: Description | None = _decode(row.data) if version <= FORMAT_VERSION else None
    except (msgspec.MsgspecError, ValueError, TypeError) as problem:
        raise Damaged(f"the lake's description at {store.url} cannot be read: {problem}") from None
    if found is None or version > FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the lake at {store.url} has format version {version}; "
            f"this Penstock knows up to {FORMAT_VERSION}. Use a newer one.",
            found=version,
            known=FORMAT_VERSION,
        )
    return found


def write_description(store: Store, description: Description) -> None:
    """Make a lake, once: ``LakeExists`` if there is one."""
    with store.turn(ROW_NAME) as turn:
        if turn.row is not None or not turn.advance({}, _row(description)).swapped:
            raise LakeExists(f"there is a lake at {store.url} already", url=store.url)


def change_description(
    store: Store, settings: Settings, change: Callable[[Description], Description]
) -> Description:
    """Replace the description by what ``change`` makes of it."""
    tries = Tries(settings)
    while True:
        with store.turn(ROW_NAME) as turn:
            if turn.row is None:
                raise LakeNotFound(f"there is no lake at {store.url}", url=store.url)
            changed = change(_checked(turn.row, store))
            if turn.advance({}, _row(changed)).swapped:
                return changed
        tries.again("another process changed the lake's description")


def _row(description: Description) -> Row:
    return Row(ROW_NAME, Kind.LAKE.value, encode(description))
