"""What a writer is told whose version, or whose reading, was overtaken: the commits that came first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.errors import CommitConflict, MergeConflict, PenstockError, TableConflict
from penstock.formats.delta.branch_log.branch_log import BranchLog, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.intents import CommitIntent, decode_intent
from penstock.formats.delta.ownership.tables import DeltaTableStore
from penstock.model.clock import TIME_MAX_US, TIME_MIN_US, to_utc_datetime
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.operations import Change

WINNERS_MAX: Final = 100
"""How many commits of a table are told; the newest ones are left out, and can be asked for."""
WINNERS_MAX_BYTES: Final = 256 * 1024
"""How many bytes of actions are told, of all tables together. Beyond it, commits come without theirs."""


class WinnerLookup:
    """Finds the commits that a conflict is about."""

    def __init__(self, tables: DeltaTableStore, commits: CommitReader, branch: str) -> None:
        self._tables, self._commits, self._branch = tables, commits, branch
        self._room = WINNERS_MAX_BYTES

    def add_winners(self, changes: Sequence[Change], conflict: CommitConflict) -> CommitConflict:
        """Add the commits that won to a conflict, where a newer version is the reason.

        Reading them needs no luck: a table that cannot be read is told with its latest version alone.
        """
        if isinstance(conflict, MergeConflict | TableConflict):
            return conflict
        overtaken = dict(self._find_overtaken(changes, {conflict.key for conflict in conflict.conflicts}))
        if not overtaken:
            return conflict
        winners = {
            str(key): {
                "latest_version": decode_branch_log(content).latest,
                "commits": list(self._list_winners_since(key, content, read)),
            }
            for key, (content, read) in overtaken.items()
        }
        return TableConflict(conflict.conflicts, _format_message(overtaken, conflict), winners=winners)

    def _find_overtaken(
        self, changes: Sequence[Change], keys: set[Key]
    ) -> Iterator[tuple[Key, tuple[DeltaTable, int]]]:
        """The tables that have newer versions than their writer read, with the version that it read."""
        head = self._tables.find_head(self._branch)
        for change in changes:
            intent = decode_intent(change.intent)
            content = self._tables.find_content(head, change.key)
            if change.key not in keys or not isinstance(content, DeltaTable) or not content.state:
                continue
            if not isinstance(intent, CommitIntent):
                continue
            read = intent.version - 1 if intent.version is not None else intent.read_version
            if read is not None and read < decode_branch_log(content).latest:
                yield change.key, (content, read)

    def _list_winners_since(self, key: Key, content: DeltaTable, read: int) -> Iterator[dict[str, Any]]:
        line = decode_branch_log(content)
        first = max(read, -1) + 1
        for version in range(first, min(line.latest, first + WINNERS_MAX - 1) + 1):
            yield self._describe_winner(key, content, line, version)

    def _describe_winner(
        self, key: Key, content: DeltaTable, line: BranchLog, version: int
    ) -> dict[str, Any]:
        entry = line.find_entry(version, self._tables.read_object)
        winner_fields: dict[str, Any] = {"version": version}
        if entry is not None:
            winner_fields["timestamp_ms"] = entry.timestamp_ms
        if self._room <= 0 or (entry is not None and entry.size > self._room):
            return winner_fields
        try:
            table = self._tables.as_format_table(key, content, self._branch)
            data = self._commits.read_commit_bytes(table, content.location, version, entry)
        except PenstockError:
            return winner_fields
        if len(data) <= self._room:
            self._room -= len(data)
            winner_fields["actions"] = data.decode("utf-8", "replace")
        return winner_fields


def _format_message(overtaken: Mapping[Key, tuple[DeltaTable, int]], conflict: CommitConflict) -> str:
    lines: list[str] = []
    for key, (content, read) in overtaken.items():
        line = decode_branch_log(content)
        why = next(
            (conflict.why for conflict in conflict.conflicts if conflict.key == key and conflict.why), ""
        )
        at = _time_of_day(line.timestamp_ms)
        lines += [
            f"'{key}' changed while you were writing",
            f"  you read    version {read}",
            f"  now at      version {line.latest} ({at})",
            *([f"  why         {why}"] if why else []),
            (
                f"  what to do  read version {line.latest} and repeat the work, or rebase it onto the newer "
                "versions"
            ),
        ]
    others = [str(conflict) for conflict in conflict.conflicts if conflict.key not in overtaken]
    return "\n".join((*lines, *(f"  also        {other}" for other in others)))


def _time_of_day(timestamp_ms: int) -> str:
    """For people; a time that no calendar has is told as the number that it is."""
    if not TIME_MIN_US <= timestamp_ms * 1000 <= TIME_MAX_US:
        return f"{timestamp_ms} ms"
    return to_utc_datetime(timestamp_ms * 1000).strftime("%H:%M:%S")
