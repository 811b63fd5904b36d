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
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from penstock.errors import HistoryExpired
from penstock.kernel.description import HORIZONS_VERSION, raise_version, require_unmoved
from penstock.kernel.ledger import LEDGER, read_dropped_content
from penstock.kernel.records import KeepRow, RecordType, ReplaceRow, RowSubject, list_rows_of_kind
from penstock.kernel.settings import Settings
from penstock.model.clock import to_utc_datetime
from penstock.model.content import encode_checked_content
from penstock.model.encoding import ObjectId, encode, hash_parts, make_decoder
from penstock.model.references import Kind
from penstock.stores.port import Row, Store

if TYPE_CHECKING:
    from penstock.kernel.format import Format, Formats
    from penstock.model.content import AnyContent, Content

PREFIX: Final = "@horizon/"
"""No branch or tag has a name that begins so."""
GONE: Final = 2**62
"""The first version of a table of which nothing exists any more: no state has it."""


SPARED_BYTES: Final = 16


def hash_state(content: Content) -> bytes:
    """By which a state of a table is known again."""
    return hash_parts("state", encode_checked_content(content))[:SPARED_BYTES]


@lru_cache(maxsize=16)
def _split_hashes(spared: bytes) -> frozenset[bytes]:
    return frozenset(spared[start : start + SPARED_BYTES] for start in range(0, len(spared), SPARED_BYTES))


class ErasedTotals(msgspec.Struct, frozen=True, array_like=True):
    """How much an erase has removed, over all of its runs."""

    rewritten_files: int = 0
    log_files: int = 0
    data_files: int = 0
    data_bytes: int = 0
    objects: int = 0

    def __add__(self, other: ErasedTotals) -> ErasedTotals:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return ErasedTotals(*(first + more for first, more in pairs))


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
    moment_us: int | None = None
    """The moment from which on history was to stay; ``None``: that of the erase itself."""
    set_us: int = 0
    """When the last erase said which version is the first."""
    spared: bytes = b""
    """Hashes of states from before the first version that exist all the same, of a format whose states have
    no versions: those of the table from the moment on."""
    state: bytes = b""
    """The hash of the table as the last erase left it, if no deleted rows are in it: as long as the table is
    so, there is nothing more to erase."""
    removed: ErasedTotals = ErasedTotals()
    """By the last erase."""

    @property
    def keeps_younger(self) -> bool:
        """Whether history from a moment on was to stay, which is older than the erase."""
        return self.moment_us is not None

    @property
    def is_under_way(self) -> bool:
        """Whether the last erase has not said yet which version is the first."""
        return not self.is_set

    @property
    def is_given_up(self) -> bool:
        """Whether the last erase has ended without saying which version is the first."""
        return self.is_set and self.set_us == 0 and self.ended_us is not None

    def drop_erased(self, managing: Format, content: AnyContent) -> AnyContent | None:
        """What is retained of the table as a content has it; ``None`` if that is from before."""
        if self.first < 0:
            return content
        lacks_version = managing.lacks_version(content, self.first, keeps_younger=self.keeps_younger)
        if lacks_version and not self._is_within_horizon(content):
            return None
        return managing.cut_content(content, self.first)

    def _is_within_horizon(self, content: AnyContent) -> bool:
        return self.spared != b"" and hash_state(content) in _split_hashes(self.spared)

    @property
    def start_as_text(self) -> str:
        """From when on history exists, as text."""
        since_us = self.begun_us if self.moment_us is None else self.moment_us
        return to_utc_datetime(since_us).strftime("%Y-%m-%d %H:%M UTC")

    def expired_error(self) -> HistoryExpired:
        """The error for what lies behind it."""
        since = self.start_as_text
        by = f" by {self.who}" if self.who else ""
        return HistoryExpired(
            f"the history of '{self.key}' before {since} was erased{by}\n  Erased history cannot be "
            "restored.",
            key=self.key,
            version=-1 if self.first >= GONE else self.first,
            erased=since,
            who=self.who,
        )


def _horizon_subject(id: str) -> RowSubject:  # noqa: A002
    table = str(UUID(hex=id))
    advice = "Repeating the erase is safe: it continues where it stopped."
    return RowSubject(f"the horizon of table {table}", advice, {"table": table})


HORIZONS: Final[RecordType[TableHorizon]] = RecordType(
    PREFIX,
    lambda _: Kind.HORIZON.value,
    encode,
    make_decoder(TableHorizon).decode,
    _horizon_subject,
    lambda horizon: horizon.table.hex,
)


class TableHorizons(Mapping[UUID, TableHorizon]):
    """The horizons of all tables that were erased, as they were when they were read."""

    def __init__(self, formats: Formats, horizons: Mapping[UUID, TableHorizon]) -> None:
        self._formats, self._horizons = formats, horizons

    @classmethod
    def read_horizons(cls, store: Store, formats: Formats) -> TableHorizons:
        return cls(formats, {horizon.table: horizon for horizon in read_all_horizons(store)})

    def __getitem__(self, table: UUID) -> TableHorizon:
        return self._horizons[table]

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._horizons)

    def __len__(self) -> int:
        return len(self._horizons)

    def is_behind(self, content: AnyContent | None) -> bool:
        """Whether a content is a table as it was before its horizon."""
        return content is not None and self.drop_erased(content) is None

    def drop_erased(self, content: AnyContent) -> AnyContent | None:
        """What is retained of a content: the table without what lies behind its horizon, and nothing of a
        table as it was before that."""
        horizon = None if content.id is None else self._horizons.get(content.id)
        managing = None if horizon is None else self._formats.find_managing_format(content)
        if horizon is None or managing is None:
            return content
        return horizon.drop_erased(managing, content)

    def list_retained_objects(self, content: AnyContent) -> tuple[ObjectId, ...]:
        """The objects that are retained of a content, also of a dropped table that the ledger remembers."""
        if content.id not in self._horizons:
            return content.objects
        try:
            dropped = read_dropped_content(LEDGER, content)
        except (msgspec.MsgspecError, ValueError):
            dropped = None  # the entry of a place, which two tables have had, and no table's
        retained = self.drop_erased(content if dropped is None else dropped)
        return () if retained is None else retained.objects

    def explain_refusal(self, *contents: AnyContent | None, version: int | None = None) -> str | None:
        """Why none of these states of a table may be brought back; ``None`` if all may.

        With a ``version``, that is what is to be brought back, and not the newest one. The reason continues a
        sentence that begins with the table's name.
        """
        for content in contents:
            horizon = None if content is None or content.id is None else self._horizons.get(content.id)
            is_earlier = horizon is not None and version is not None and version < horizon.first
            if horizon is not None and (is_earlier or self.is_behind(content)):
                if horizon.moment_us is not None:
                    return f"was erased up to {horizon.start_as_text}: nothing older can be restored"
                return f"was erased on {horizon.start_as_text}: nothing older can be restored"
            table_horizon = None if content is None or content.id is None else self._horizons.get(content.id)
            if table_horizon is not None and table_horizon.is_under_way:
                return "is being erased: nothing can be restored until the erase has begun; try again"
        return None


def find_horizon(store: Store, table: UUID) -> TableHorizon | None:
    """The horizon of a table, if it was ever erased."""
    return HORIZONS.find_record(store, table.hex)


def read_all_horizons(store: Store) -> Iterator[TableHorizon]:
    return map(HORIZONS.decode_row, read_horizon_rows(store))


def read_horizon_rows(store: Store) -> Iterator[Row]:
    return list_rows_of_kind(store, Kind.HORIZON)


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
    raise_version(store, settings, HORIZONS_VERSION)

    def decide_change(horizon: TableHorizon | None) -> ReplaceRow[TableHorizon] | KeepRow[TableHorizon]:
        require_unmoved(store)
        after = change(horizon)
        return KeepRow(after) if after == horizon else ReplaceRow(after)

    return HORIZONS.update_record(store, settings, table.hex, decide_change)
