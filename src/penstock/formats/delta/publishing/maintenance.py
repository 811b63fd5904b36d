"""Maintenance: checkpoints of tables, in the background, as their versions are published.

A table gets one when enough versions were published since the last, and none while one is made: what was
published in the meantime is in the next. Making checkpoints never takes more than about a tenth of the time,
however large a table is and however often it changes. Nobody waits for one, and nobody is told that one
failed but the log: readers of a table without checkpoints only read more commits. With a checkpoint goes what
interrupted writes left on a disk.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from penstock.errors import PenstockError
from penstock.formats.delta.branch_log.branch_log import Read, decode_branch_log, read_table_definition
from penstock.formats.delta.log.checksum import write_checksum
from penstock.formats.delta.log.cleanup import GRACE_MS
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.segments import find_segment
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import Metadata, parse_action
from penstock.model.clock import Clock, elapsed_s, now_us
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Place, Places

if TYPE_CHECKING:
    from penstock.formats.delta.log.checkpoint_writer import WrittenCheckpoint

INTERVAL: Final = "delta.checkpointInterval"
INTERVAL_DEFAULT: Final = 10
REST: Final = 10
"""So many times as long as a checkpoint took, its table rests."""
REST_AFTER_FAILURE_S: Final = 60.0
TABLES_MAX: Final = 10_000
"""Of how many tables is remembered when they had a checkpoint."""

logger = logging.getLogger("penstock")


def make_checkpoint(place: Place, version: int, now_ms: int) -> WrittenCheckpoint | None:
    """Make a checkpoint, and a checksum, of a published version; ``None`` if there is one already.

    Raises as ``load_snapshot`` and ``write_checkpoint``.
    """
    # Here, since it loads the library for Parquet, which takes a while and much memory.
    from penstock.formats.delta.log.checkpoint_writer import write_checkpoint

    snapshot = load_snapshot(PlaceFiles(place), version)
    made = write_checkpoint(place, snapshot, now_ms)
    if made is not None:
        write_checksum(place, snapshot, made.totals)
    return made


def checkpoint_interval(properties: Mapping[str, str]) -> int:
    """After how many versions a table wants a checkpoint."""
    try:
        interval = int(properties.get(INTERVAL, INTERVAL_DEFAULT))
    except ValueError:
        return INTERVAL_DEFAULT
    return interval if interval > 0 else INTERVAL_DEFAULT


class CheckpointMaintenance:
    """Makes checkpoints of tables that were published, in one thread. May be told by many.

    ``read`` reads kernel objects.
    """

    def __init__(
        self, places: Places, read: Read, *, clock: Clock = now_us, elapsed: Callable[[], float] = elapsed_s
    ) -> None:
        self._places, self._read, self._clock, self._elapsed = places, read, clock, elapsed
        self._wishes: dict[UUID, _LatestPublished] = {}
        self._tables: OrderedDict[UUID, _TableUpkeep] = OrderedDict()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._under_way: dict[UUID, _LatestPublished] = {}
        """At most one, the one that is being looked after."""
        self._urgent: set[UUID] = set()
        """Those that somebody waits for."""
        self._is_closing = self._is_closed = False

    def schedule_maintenance(self, key: Key, content: DeltaTable, published: int) -> None:
        """A table's log is published up to a version now. Quick: what follows happens in the background."""
        if content.id is None:
            return
        with self._changed:
            if self._is_closing:
                return
            self._wishes[content.id] = _LatestPublished(key, content, published)
            if self._thread is None:
                self._thread = Thread(target=self._run_until_closed, name="penstock-maintenance", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, timeout_s: float) -> frozenset[Key]:
        """Until all that was told is looked after, for at most so long; returns the tables that are left.

        None of them rests before that. One that fails is not tried again: readers need no checkpoint.
        """
        with self._changed:
            identities = self._wishes.keys() | self._under_way.keys()
            self._urgent |= identities
            self._changed.notify_all()

            def unfinished_keys() -> frozenset[Key]:
                tasks = (*self._under_way.items(), *self._wishes.items())
                return frozenset(wish.key for table_id, wish in tasks if table_id in identities)

            self._changed.wait_for(lambda: not unfinished_keys() or self._is_closing, timeout_s)
            self._urgent -= identities
            return unfinished_keys()

    def close(self, timeout_s: float) -> None:
        """Finish what is under way or waiting for its turn, for at most so long; take on nothing more.

        A thread that does not end in time reports nothing any more: the lake's store is closed then.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        self._is_closed = True

    def _run_until_closed(self) -> None:
        while (identities := self._take_next_table()) is not None:
            table_id, wish, table = identities
            begun_s = self._elapsed()
            rest_s = 0.0
            try:
                self._maintain_table(wish, table)
            except PenstockError as problem:
                rest_s = REST_AFTER_FAILURE_S
                level = logging.DEBUG if self._is_closed else logging.WARNING
                logger.log(level, "no checkpoint of '%s' could be made: %s", wish.key, problem)
            except Exception as problem:
                rest_s = REST_AFTER_FAILURE_S
                level = logging.DEBUG if self._is_closed else logging.ERROR
                logger.log(level, "no checkpoint of '%s' could be made", wish.key, exc_info=problem)
            ended_s = self._elapsed()
            table.rests_until_s = ended_s + max(rest_s, REST * (ended_s - begun_s))
            self._remember_table(table_id, table)

    def _take_next_table(self) -> tuple[UUID, _LatestPublished, _TableUpkeep] | None:
        """The next table to look after, as soon as there is one; ``None`` when all is over."""
        with self._changed:
            while True:
                now_s = self._elapsed()
                wait_s = None
                for table_id, wish in self._wishes.items():
                    table = self._tables.get(table_id) or _TableUpkeep()
                    if table.rests_until_s <= now_s or table_id in self._urgent:
                        del self._wishes[table_id]
                        self._under_way[table_id] = wish
                        return table_id, wish, table
                    left_s = table.rests_until_s - now_s
                    wait_s = left_s if wait_s is None else min(wait_s, left_s)
                if self._is_closing:
                    return None
                self._changed.wait(wait_s)

    def _maintain_table(self, wish: _LatestPublished, table: _TableUpkeep) -> None:
        declared = read_table_definition(decode_branch_log(wish.content), self._read)
        metadata = parse_action(declared.metadata)
        interval = checkpoint_interval(metadata.configuration if isinstance(metadata, Metadata) else {})
        if wish.published - table.checkpoint < interval:
            return
        place = self._places.open_place(wish.content.location)
        # Another process, or another engine, may have made one since.
        found_checkpoint = find_segment(PlaceFiles(place)).checkpoint
        table.checkpoint = -1 if found_checkpoint is None else found_checkpoint.version
        if wish.published - table.checkpoint >= interval:
            make_checkpoint(place, wish.published, self._clock() // 1000)
            table.checkpoint = wish.published
            place.tidy(self._clock() - GRACE_MS * 1000)

    def _remember_table(self, table_id: UUID, table: _TableUpkeep) -> None:
        with self._changed:
            self._under_way.clear()
            self._changed.notify_all()
            self._tables[table_id] = table
            self._tables.move_to_end(table_id)
            if len(self._tables) > TABLES_MAX:
                self._tables.popitem(last=False)


class _LatestPublished(msgspec.Struct, frozen=True):
    """What was told last of a table."""

    key: Key
    content: DeltaTable
    published: int


class _TableUpkeep(msgspec.Struct):
    """What is known of a table."""

    checkpoint: int = -1
    """The version of the last checkpoint, as far as is known."""
    rests_until_s: float = 0.0
