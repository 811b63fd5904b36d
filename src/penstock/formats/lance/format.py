"""Lance tables, as the kernel asks about them: what a change makes of a table, and how two meet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from penstock.formats.lance import change_summary, merging
from penstock.formats.lance.changing import Prepared, carry_out, shortened
from penstock.formats.lance.checking import Checking
from penstock.formats.lance.intents import decode_steps
from penstock.formats.lance.reading import Manifests
from penstock.formats.lance.standing import Standing
from penstock.formats.lance.state import NAME, is_managed, state_of
from penstock.kernel.format import Applied, Format, Refused, Since, Table
from penstock.kernel.objects import Objects
from penstock.model.clock import Clock
from penstock.model.content import AnyContent, LanceTable
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import ChangeSummary
from penstock.model.operations import Change
from penstock.model.transactions import PREFIX
from penstock.storage.places import Places


class Told(Protocol):
    """Whoever puts manifests where everybody looks, once they count."""

    def told(self, key: Key, content: LanceTable, *, is_default: bool) -> None:
        """A table is so on a branch now."""


class LanceFormat(Format):
    """Lance tables whose versions the lake decides."""

    name = NAME
    takes_any_base = True

    def __init__(self, places: Places, manifests: Manifests, clock: Clock, promoter: Told) -> None:
        self._places, self._manifests, self._clock, self._promoter = places, manifests, clock, promoter
        self._checking = Checking(places, manifests)

    def manages(self, content: AnyContent) -> bool:
        return is_managed(content)

    def prepare(self, table: Table, change: Change) -> Any:
        steps = decode_steps(change.intent).steps
        if table.content is not None and is_managed(table.content):
            self.retained(table, table.content)
        return self._checking.look(table, _objects(table), steps, self._clock())

    def apply(self, table: Table, change: Change, prepared: Any) -> Applied:
        steps = decode_steps(change.intent).steps
        found: Prepared = {} if prepared is None else prepared
        applied = carry_out(
            _objects(table), table.key, table.content, Standing.of(table), steps, found, self._clock()
        )
        return applied._replace(intent=shortened(steps))

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,  # noqa: ARG002
    ) -> Applied:
        sides = _own(table.content), _own(base), _own(source)
        return merging.merge(table, self._means(table), *sides)

    def restore(self, table: Table, wanted: AnyContent | None) -> Applied:
        return merging.restore(table, self._means(table), _own(table.content), _own(wanted))

    def restore_version(self, table: Table, version: int) -> Applied:
        return merging.restore_version(table, self._means(table), _own(table.content), version)

    def summarize_change(
        self, table: Table, before: AnyContent | None, after: AnyContent | None
    ) -> ChangeSummary | None:
        was, becomes = (one if isinstance(one, LanceTable) and one.state else None for one in (before, after))
        return change_summary.summarize_change(_objects(table), self._manifests, was, becomes)

    def missing_files(self, table: Table, before: AnyContent | None, after: AnyContent) -> Sequence[str]:
        assert isinstance(after, LanceTable)
        was = before if isinstance(before, LanceTable) and before.state else None
        return change_summary.missing_files(_objects(table), self._manifests, self._places, was, after)

    def revert(
        self,
        table: Table,
        was: AnyContent | None,
        wanted: AnyContent | None,
        since: Since,
    ) -> Applied | None:
        return merging.revert(table, self._means(table), _own(table.content), _own(was), _own(wanted), since)

    def tell(self, content: AnyContent) -> str:
        if not isinstance(content, LanceTable) or not content.state:
            return ""
        newest = state_of(content).newest
        return f"version {newest}" if newest else "declared"

    def _means(self, table: Table) -> merging.Means:
        return merging.Means(self._manifests, self._places, self._clock(), partial(self.check, table))

    def check(self, table: Table, content: LanceTable) -> object:
        """Asked before anything is written for a table that is there: raises if it may not be."""

    def admit(self, table: Table, content: AnyContent | None) -> None:
        if content is not None and content != table.content:
            raise Refused("is a Lance table that the lake keeps, whose state is not put but committed")

    def is_before(self, content: AnyContent, first: int) -> bool:
        return isinstance(content, LanceTable) and is_managed(content) and state_of(content).first < first

    def may_move(self, before: AnyContent | None, after: AnyContent | None) -> str | None:
        if not isinstance(before, LanceTable) or not isinstance(after, LanceTable):
            return "would appear or vanish; merge the branch, or drop the table"
        return merging.why_not_move(before, after)

    def landed(
        self,
        key: Key,
        content: AnyContent | None,
        commit: ObjectId,  # noqa: ARG002
        *,
        branch: str,
        is_default: bool,
    ) -> None:
        if isinstance(content, LanceTable) and content.state and not branch.startswith(PREFIX):
            self._promoter.told(key, content, is_default=is_default)


def _objects(table: Table) -> Objects:
    assert table.objects is not None
    return table.objects


def _own(content: AnyContent | None) -> LanceTable | None:
    if content is None or (isinstance(content, LanceTable) and content.state):
        return content
    raise Refused("is not kept by the lake on both sides")
