"""Ids of rows on the line of a table: a commit gets them when it becomes a version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.formats.delta.branch_log.branch_log import BranchLog, BranchLogTip
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.proposal import DeltaProposal
from penstock.formats.delta.protocol.actions import Add, Remove, write_commit
from penstock.formats.delta.protocol.row_ids import (
    NO_ROW_ID,
    PROVISIONAL,
    FileRowIds,
    RowIdCounter,
    get_row_ids,
    highest_row_id,
    write_row_ids,
)
from penstock.kernel.format import Table
from penstock.model.nessie import DeltaTable


class NumberedCommitLines(NamedTuple):
    """The lines of a commit with ids of rows, and the highest id that was given by then."""

    lines: bytes
    highest_row_id: int


def begin_counter(table: Table, commits: CommitReader, content: DeltaTable, line: BranchLog) -> RowIdCounter:
    """What gives ids to the next version of a line. ``PrepareAgain`` if the log has to be asked first.

    Those of a branch are far above all that the default branch ever gives: a row that landed may be known to
    a branch by the id that it got there, beside rows with ids of the branch.
    """
    highest = _highest_row_id(table, commits, content, line)
    return RowIdCounter(line.latest + 1, highest if table.is_default else max(highest, PROVISIONAL - 1))


def _highest_row_id(table: Table, commits: CommitReader, content: DeltaTable, line: BranchLog) -> int:
    if line.highest_row_id is not None or line.latest < 0:
        return NO_ROW_ID if line.highest_row_id is None else line.highest_row_id

    def read_highest_row_id() -> int:
        return highest_row_id(commits.read_snapshot(content, table.read, line.latest).domains)

    return table.read_once(
        ("delta row ids", content.location, BranchLogTip.from_line(line)), read_highest_row_id
    )


def number_lines(
    proposal: DeltaProposal, present: Mapping[str, FileRowIds], counter: RowIdCounter, more: bytes = b""
) -> NumberedCommitLines:
    """The lines of a proposal, then others, with ids: files that are ``present`` keep theirs, others get new
    ones. What the writer said of ids does not count."""
    lines = proposal.lines.split(b"\n")
    for at, action in proposal.row_id_lines.items():
        if not isinstance(action, Add | Remove):
            lines[at] = b""  # the owner says how far ids are given
            continue
        ids = present.get(action.key.path)
        if ids is None and isinstance(action, Add):
            ids = counter.assign_row_ids(action)
        if ids is not None and ids != get_row_ids(action):
            lines[at] = write_row_ids(lines[at], action, ids)
    data = b"".join(line + b"\n" for line in lines if line)
    return NumberedCommitLines(data + more + write_commit(counter.marks), counter.highest)
