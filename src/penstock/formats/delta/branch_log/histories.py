"""Histories: whether a line still has the version that a writer read, and not another of the same number."""

from __future__ import annotations

from penstock.errors import InvalidRequest, TableConflict
from penstock.formats.delta.branch_log.intents import CommitIntent
from penstock.formats.delta.branch_log.line import Line
from penstock.kernel.format import Table
from penstock.model.conflicts import Conflict, ConflictKind


def check_history(table: Table, line: Line, intent: CommitIntent) -> None:
    """``TableConflict`` if a commit tells which version it read, and the line does not have it any more.

    What landed since cannot be told then: the versions after that number came after other ones. So no winners
    are named. ``InvalidRequest`` if what it tells is of an earlier version than the one that it read.
    """
    tip = intent.read_tip
    if tip is None:
        return
    read = intent.read_version
    if read is None and intent.version is not None:
        read = intent.version - 1
    if read is not None and tip.version < read:
        raise InvalidRequest(
            f"the commit to '{table.key}' read version {read}, but has the tip of version {tip.version}"
        )
    if not tip.is_on(line, table.read):
        raise _other_history(table, line, tip.version if read is None else read)


def _other_history(table: Table, line: Line, read: int) -> TableConflict:
    why = f"has another history on '{table.branch}' by now"
    expected, actual = f"the version {read} that was read", f"version {line.latest} of another history"
    return TableConflict(
        [Conflict(ConflictKind.FORMAT, table.key, expected=expected, found=actual, why=why)],
        "\n".join(
            (
                f"'{table.key}' {why}",
                f"  you read    version {read}, which is not part of it any more",
                f"  now at      version {line.latest}",
                "  why         the branch was created anew, set to another commit, or merged into",
                "  what to do  read the table again, and run the job again",
            )
        ),
        winners={str(table.key): {"latest_version": line.latest, "commits": []}},
    )
