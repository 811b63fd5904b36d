"""Formats of a lake that are loaded when the lake first has to do with a table of theirs.

Most commands of the command line have not, and a lake may have no such table at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.kernel.format import AppliedChange, Format, LaterCommitLookup, Table
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import ChangeSummary
from penstock.model.operations import Change


class LazyFormat(Format):
    """Stands for a format until it is needed. Which tables are its own is known without it."""

    def __init__(
        self,
        name: str,
        content: type[ManagedTable],
        real: Callable[[], Format],
        *,
        takes_any_base: bool = False,
        repeats_states: bool = False,
        may_lose_files: bool = False,
    ) -> None:
        self.name, self.content_type, self._load = name, content, real
        self.takes_any_base, self.repeats_states = takes_any_base, repeats_states
        self.may_lose_files = may_lose_files

    def _load_format(self) -> Format:
        real = self._load()
        real.find_horizon = self.find_horizon
        return real

    def prepare(self, table: Table, change: Change) -> Any:
        return self._load_format().prepare(table, change)

    def apply(self, table: Table, change: Change, prepared: Any) -> AppliedChange:
        return self._load_format().apply(table, change, prepared)

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,
    ) -> AppliedChange:
        return self._load_format().merge(table, base, source, intents)

    def check_read(self, table: Table, before: AnyContent, parts: Sequence[str] | None) -> None:
        self._load_format().check_read(table, before, parts)

    def describe_state(self, content: AnyContent) -> str:
        return self._load_format().describe_state(content)

    def is_beyond_difference(self, intents: Sequence[bytes] | None) -> bool:
        return self._load_format().is_beyond_difference(intents)

    def restore(self, table: Table, after: AnyContent | None) -> AppliedChange:
        return self._load_format().restore(table, after)

    def restore_version(self, table: Table, version: int) -> AppliedChange:
        return self._load_format().restore_version(table, version)

    def summarize_change(
        self, table: Table, before: AnyContent | None, after: AnyContent | None
    ) -> ChangeSummary | None:
        return self._load_format().summarize_change(table, before, after)

    def missing_files(self, table: Table, before: AnyContent | None, after: AnyContent) -> Sequence[str]:
        return self._load_format().missing_files(table, before, after)

    def revert(
        self,
        table: Table,
        committed: AnyContent | None,
        previous: AnyContent | None,
        since: LaterCommitLookup,
    ) -> AppliedChange | None:
        return self._load_format().revert(table, committed, previous, since)

    def check_direct_change(self, table: Table, content: AnyContent | None) -> None:
        self._load_format().check_direct_change(table, content)

    def after_commit(
        self, key: Key, content: AnyContent | None, commit: ObjectId, *, branch: str, is_default: bool
    ) -> None:
        self._load_format().after_commit(key, content, commit, branch=branch, is_default=is_default)

    def lacks_version(self, content: AnyContent, first: int, *, keeps_younger: bool = False) -> bool:
        return self._load_format().lacks_version(content, first, keeps_younger=keeps_younger)

    def cut_content(self, content: AnyContent, first: int) -> AnyContent:
        return self._load_format().cut_content(content, first)

    def explain_forbidden_move(self, before: AnyContent | None, after: AnyContent | None) -> str | None:
        return self._load_format().explain_forbidden_move(before, after)
