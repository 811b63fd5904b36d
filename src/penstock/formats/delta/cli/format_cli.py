"""Delta tables in the words of the command line, and what the doctor looks at."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

from penstock.cli.format_cli import DoctorCheck, DoctorFinding, FormatCli
from penstock.cli.rendering.screen import escape_controls
from penstock.cli.rendering.times import format_count
from penstock.errors import PenstockError
from penstock.formats.delta.branch_log.branch_log import BranchLog, decode_branch_log
from penstock.formats.delta.cli.demo import show_rows_demo
from penstock.formats.delta.lake.calls import GetTableStatus
from penstock.formats.delta.lake.snapshot import list_commit_files
from penstock.formats.delta.protocol.actions import Action, parse_commit
from penstock.formats.delta.protocol.commit_summary import FileCounts, describe_commit
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.content import AnyContent
from penstock.model.nessie import DeltaTable

if TYPE_CHECKING:
    from penstock.cli.commands.demo import DemoStory

REPAIRS_MAX_S: Final = 10.0
"""How long logs are read to find tables to repair."""
REPAIRS_NAMED_MAX: Final = 3


class DeltaCli(FormatCli):
    """A Delta table is told by its latest version; what was done to it, by its log."""

    def describe_fields(self, content: DeltaTable) -> list[tuple[str, str]]:
        line = decode_branch_log(content)
        return [
            ("id", str(content.id)),
            ("location", escape_controls(content.location)),
            ("version", str(line.latest)),
            ("published", f"version {line.published} or later" if line.published >= 0 else ""),
            ("phase", "" if line.phase == "owned" else line.phase),
        ]

    def describe_commit(self, table: Table, before: AnyContent | None, after: DeltaTable) -> str:
        commits = _read_commits(table, before, after)
        version = self.describe_version(after)
        return (
            f"{version} {describe_commit([action for commit in commits for action in commit])}"
            if commits
            else version
        )

    def describe_merge(self, table: Table, before: AnyContent | None, after: DeltaTable) -> str:
        commits = _read_commits(table, before, after)
        return str(FileCounts.from_commits(commits)) if commits else ""

    def doctor_checks(self, lake: Lake) -> list[DoctorCheck]:
        if not _has_tables(lake):
            return []
        repairs: list[DoctorCheck] = [("Delta repairs", check_repairs)] if lake.is_embedded else []
        return [("Delta tables", check_publishing), *repairs]

    def show_demo(self, story: DemoStory) -> str:
        return "delta log shop.orders" if show_rows_demo(story) else ""


def _read_commits(table: Table, before: AnyContent | None, after: DeltaTable) -> list[Sequence[Action]]:
    """The commits of a table that led from one of its states to another; none if they cannot be told."""
    first, last = _new_versions(before, after)
    if last < first:
        return []
    log = table.get_commits(first, last)
    files = list(list_commit_files(log, table.lake.places.open_place(log.location), range(first, last + 1)))
    if any(file.data is None for file in files):
        return []
    return [[line.action for line in parse_commit(file.data or b"")] for file in files]


def _new_versions(before: AnyContent | None, after: DeltaTable) -> tuple[int, int]:
    """The first and the last version that one state of a table has and another has not.

    None where the later one does not go on from the earlier one, as after a merge that put a branch on top of
    another line.
    """
    line = decode_branch_log(after)
    if not isinstance(before, DeltaTable) or not before.is_managed or before.id != after.id:
        return 0, line.latest
    old_line = decode_branch_log(before)
    return (old_line.latest + 1, line.latest) if _has_latest_of(old_line, line) else (0, -1)


def _has_latest_of(earlier_line: BranchLog, line: BranchLog) -> bool:
    """Whether a line has another's latest version, as far as its newest entries tell."""
    if earlier_line.tail is None:
        return earlier_line.latest <= line.fork_version
    back = line.latest - earlier_line.latest
    return 0 <= back < len(line.entries) and line.entries[-1 - back].uuid == earlier_line.entries[-1].uuid


def _has_tables(lake: Lake) -> bool:
    """Whether there is a Delta table to look at."""
    try:
        return bool(lake.do(GetTableStatus(limit=1)))
    except PenstockError:
        return False  # as without a default branch, of which another check tells


def check_publishing(lake: Lake) -> DoctorFinding:
    """How far the lake's Delta tables are published."""
    tables = lake.delta.status()
    alarms = [f"{table.key}: {table.alarm.partition(chr(10))[0]}" for table in tables if table.alarm]
    if alarms:
        return DoctorFinding("failed", alarms[0], "'penstock delta status' shows details")
    count = format_count(len(tables), "table")
    if behind := sum(table.backlog for table in tables):
        oldest_s = max(table.oldest_s or 0.0 for table in tables)
        waiting = format_count(behind, "version is", "versions are")
        return DoctorFinding(
            "warning",
            f"{count}, {waiting} not published yet, the oldest for {oldest_s:.0f} s",
            "a server publishes them automatically; 'penstock delta publish' does so now",
        )
    if others := [table.owner for table in tables if table.owner]:
        lakes = f"lake {others[0]}" if len({*others}) == 1 else f"{len({*others})} other lakes"
        owners = f"{format_count(len(others), 'is', 'are')} owned by {lakes}, and read-only here"
        return DoctorFinding("ok", f"{count}: {owners}")
    return DoctorFinding("ok", f"{count}, all published")


def check_repairs(lake: Lake) -> DoctorFinding:
    """Which Delta tables of the default branch hold what other engines stumble over."""
    until = monotonic() + REPAIRS_MAX_S
    tables = [table for table in lake.delta.status() if not table.owner]
    looked_at, wanting = 0, []
    for table in tables:
        if monotonic() > until:
            break
        looked_at += 1
        if lake.delta.needs_repair(table.key):
            wanting.append(str(table.key))
    read = format_count(looked_at, "table") + (f" of {len(tables)}" if looked_at < len(tables) else "")
    if not wanting:
        return DoctorFinding("ok", f"none needed by {read}")
    names = ", ".join(wanting[:REPAIRS_NAMED_MAX]) + (", …" if len(wanting) > REPAIRS_NAMED_MAX else "")
    return DoctorFinding(
        "warning",
        f"other engines misread what Penstock 0.1 wrote to {len(wanting)} of {read}: {names}",
        f"'penstock delta repair {shlex.quote(wanting[0])}' adds a version that they read, without rows",
    )
