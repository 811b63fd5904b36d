"""Horizons of tables: from where on the history of a table exists that was erased.

An erase makes deleted rows of one table unrecoverable, while the history of all other tables stays. So the
lake keeps a row for each table that was erased: since when, by whom, and the first version of it that there
is. What commits hold of the table from before is not retained: sweeps do not count it as needed, and nobody
reads it, reverts to it or restores it.

A row is made before anything is removed. While an erase is under way and has not said yet which version is
the first, nothing that a merge, a revert or a restore brings back of that table is let in: it may be what is
about to go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from penstock.errors import Damaged, HistoryExpired, OutcomeUnknown
from penstock.kernel.description import (
    HORIZONS_VERSION,
    change_description,
    find_description,
    require_unmoved,
    with_version,
)
from penstock.kernel.ledger import LEDGER, dropped_content
from penstock.kernel.retry import until_moved
from penstock.kernel.settings import Settings
from penstock.model.clock import utc
from penstock.model.encoding import decoder, encode
from penstock.model.references import Kind
from penstock.stores.port import Row, Store, Turn

if TYPE_CHECKING:
    from penstock.kernel.format import Formats
    from penstock.model.content import AnyContent

PREFIX: Final = "@horizon/"
"""No branch or tag has a name that begins so."""
PAGE: Final = 1000
GONE: Final = 2**62
"""The first version of a table of which nothing exists any more: no state has it."""


class TableHorizon(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """From where on the history of a table exists, and the erase that made it so."""

    table: UUID
    key: str
    """Where the table was when it was erased."""
    erase: str
    """The id of the last erase."""
    who: str
    begun_us: int
    first: int = -1
    """The first version that exists, as the format counts them; -1 if there is no horizon yet."""
    is_set: bool = False
    """Whether the last erase has said which version is the first."""
    ended_us: int | None = None
    """When the last erase removed the last of it; ``None`` while something is left."""

    @property
    def is_under_way(self) -> bool:
        """Whether the last erase has not said yet which version is the first."""
        return not self.is_set

    def expired(self) -> HistoryExpired:
        """The error for what lies behind it."""
        since = utc(self.begun_us).strftime("%Y-%m-%d %H:%M UTC")
        by = f" by {self.who}" if self.who else ""
        return HistoryExpired(
            f"the history of '{self.key}' from before {since} was erased{by}\n"
            "  What was erased cannot be brought back.",
            key=self.key,
            version=-1 if self.first >= GONE else self.first,
            erased=since,
            who=self.who,
        )


class TableHorizons(Mapping[UUID, TableHorizon]):
    """The horizons of all tables that were erased, as they were when they were read."""

    def __init__(self, formats: Formats, horizons: Mapping[UUID, TableHorizon]) -> None:
        self._formats, self._horizons = formats, horizons

    @classmethod
    def read(cls, store: Store, formats: Formats) -> TableHorizons:
        return cls(formats, {one.table: one for one in all_horizons(store)})

    def __getitem__(self, table: UUID) -> TableHorizon:
        return self._horizons[table]

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._horizons)

    def __len__(self) -> int:
        return len(self._horizons)

    def is_behind(self, content: AnyContent | None) -> bool:
        """Whether a content is a table as it was before its horizon."""
        horizon = None if content is None or content.id is None else self._horizons.get(content.id)
        if horizon is None or horizon.first < 0 or content is None:
            return False
        managing = self._formats.managing(content)
        return managing is not None and managing.is_before(content, horizon.first)

    def is_erased(self, content: AnyContent) -> bool:
        """The same, also for what the ledger remembers of a table that was dropped."""
        if content.id not in self._horizons:
            return False
        try:
            dropped = dropped_content(LEDGER, content)
        except (msgspec.MsgspecError, ValueError):
            dropped = None  # the entry of a place, which two tables have had, and no table's
        return self.is_behind(content) or self.is_behind(dropped)

    def refusal(self, *contents: AnyContent | None, version: int | None = None) -> str | None:
        """Why none of these states of a table may be brought back; ``None`` if all may.

        With a ``version``, that is what is to be brought back, and not the newest one. The reason continues a
        sentence that begins with the table's name.
        """
        for content in contents:
            horizon = None if content is None or content.id is None else self._horizons.get(content.id)
            is_earlier = horizon is not None and version is not None and version < horizon.first
            if horizon is not None and (is_earlier or self.is_behind(content)):
                since = utc(horizon.begun_us).strftime("%Y-%m-%d %H:%M UTC")
                return f"was erased on {since}: nothing from before that can be brought back"
            known = None if content is None or content.id is None else self._horizons.get(content.id)
            if known is not None and known.is_under_way:
                return "is being erased: nothing is brought back until that has begun; try again"
        return None


def find_horizon(store: Store, table: UUID) -> TableHorizon | None:
    """The horizon of a table, if it was ever erased."""
    row = store.reference(PREFIX + table.hex)
    return None if row is None else decoded_horizon(row)


def all_horizons(store: Store) -> Iterator[TableHorizon]:
    return map(decoded_horizon, horizon_rows(store))


def horizon_rows(store: Store) -> Iterator[Row]:
    after = ""
    while page := store.references(Kind.HORIZON.value, after=after, limit=PAGE):
        yield from page
        after = page[-1].name


def change_horizon(
    store: Store,
    settings: Settings,
    table: UUID,
    change: Callable[[TableHorizon | None], TableHorizon],
) -> TableHorizon:
    """Move the horizon of a table; a change that comes to the same may be made twice.

    ``LakeMoved`` if the lake is moving. The first horizon of a lake raises its format version: a Penstock
    that does not know horizons would take what is gone for damage.
    """
    lake = find_description(store)
    if lake is not None and lake.format_version < HORIZONS_VERSION:
        change_description(store, settings, lambda found: with_version(found, HORIZONS_VERSION))

    def move(_in_doubt: bool) -> tuple[TableHorizon] | None:
        with store.turn(PREFIX + table.hex) as turn:
            require_unmoved(store)
            return _moved(turn, change)

    return until_moved(
        settings,
        move,
        f"another process changed the horizon of table {table}",
        lambda reason: OutcomeUnknown(
            f"it is not known whether the horizon of table {table} was set: {reason}\n"
            "  Repeating the erase is safe: it goes on where it was.",
            table=str(table),
        ),
    )


def _moved(turn: Turn, change: Callable[[TableHorizon | None], TableHorizon]) -> tuple[TableHorizon] | None:
    before = None if turn.row is None else decoded_horizon(turn.row)
    after = change(before)
    if after == before:
        return (after,)
    row = Row(PREFIX + after.table.hex, Kind.HORIZON.value, encode(after))
    return (after,) if turn.advance({}, row).swapped else None


def decoded_horizon(row: Row) -> TableHorizon:
    """The horizon in a row; ``Damaged`` if there is none."""
    try:
        found: TableHorizon = _decode(row.data)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(f"the row of '{row.name}' cannot be read: {problem}", name=row.name) from None
    if (PREFIX + found.table.hex, Kind.HORIZON) != (row.name, row.kind):
        raise Damaged(f"the row of '{row.name}' holds the horizon of table {found.table}", name=row.name)
    return found


_decode = decoder(TableHorizon).decode
