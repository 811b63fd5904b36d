"""The first version of a table that is the lake's from the beginning: what it is, and the files that it has.

Whoever creates a table may give its first files, which lie at its place already. All of it is one commit, so
that nobody ever sees the table without them.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from penstock.formats.delta.branch_log.composed_commit import METRICS, operation_metrics
from penstock.formats.delta.branch_log.intents import CommitIntent
from penstock.formats.delta.branch_log.ownership import NewTable, OwnerIdentity, first_commit
from penstock.formats.delta.branch_log.proposal import DeltaProposal, refusal_error
from penstock.formats.delta.branch_log.replacements import OWNERS
from penstock.formats.delta.branch_log.row_ids import number_lines
from penstock.formats.delta.protocol.actions import (
    ACTION_NAMES,
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    Txn,
    write_commit,
)
from penstock.formats.delta.protocol.clustering import DOMAIN
from penstock.formats.delta.protocol.lint import WHOLE_COMMIT, LintProblem, LintRules, LintState, check_commit
from penstock.formats.delta.protocol.lint_files import Numbered
from penstock.formats.delta.protocol.row_ids import (
    NO_ROW_ID,
    RowIdCounter,
    assigns_row_ids,
    collect_row_ids,
)
from penstock.model.keys import Key
from penstock.storage.places import Places

WITH_FILES: Final = CommitInfo({"operation": "CREATE TABLE AS SELECT"})
"""What a writer is taken to have done that gives files and does not say."""


_ALONE: Final = "a table is created with files, batches and clustering columns alone"


class FirstVersionBuilder:
    """Makes the first versions of the tables of a lake."""

    def __init__(self, places: Places, identity: OwnerIdentity) -> None:
        self._places, self._identity = places, identity

    def encode_commit(
        self, key: Key, new: NewTable, table_id: UUID, location: str, uuid: UUID, now_ms: int
    ) -> bytes:
        """The commit, whole. ``InvalidContent`` with everything that is wrong with what the writer gave,
        ``InvalidRequest`` if that is to be in a file and is not there."""
        if new.actions is None:
            return write_commit(first_commit(new, self._identity, table_id, uuid, now_ms))
        proposal = DeltaProposal(key, CommitIntent(actions=new.actions, uuid=uuid), self._places, location)
        first = first_commit(new, self._identity, table_id, uuid, now_ms, _strip_owner_fields(proposal))
        info, protocol, metadata = first
        about: list[Numbered] = [(1, info), (WHOLE_COMMIT, protocol), (WHOLE_COMMIT, metadata)]
        rules = LintRules(now_ms=now_ms)
        problems = (
            *proposal.problems,
            *_find_unexpected_lines(proposal),
            *check_commit([*about, *proposal.actions], LintState(), rules),
        )
        if problems:
            raise refusal_error(key, sorted(problems))
        if not assigns_row_ids(protocol, metadata):
            return write_commit(first) + proposal.lines
        if not new.sources:
            return write_commit(first) + number_lines(proposal, {}, RowIdCounter(0, NO_ROW_ID)).lines
        counter = RowIdCounter(0, new.highest_row_id)
        return (
            write_commit(first)
            + number_lines(proposal, collect_row_ids(proposal.plain_actions), counter).lines
        )


def _is_clustering(action: Action) -> bool:
    return isinstance(action, DomainMetadata) and action.domain == DOMAIN


def _strip_owner_fields(proposal: DeltaProposal) -> CommitInfo:
    """The writer's ``commitInfo`` without fields that only the owner may set."""
    info = proposal.info if proposal.info is not None else WITH_FILES
    fields = {name: value for name, value in info.fields.items() if name not in OWNERS}
    if METRICS not in fields and (figures := operation_metrics(info.operation, proposal.plain_actions)):
        fields[METRICS] = figures
    return CommitInfo(fields)


def _find_unexpected_lines(proposal: DeltaProposal) -> list[LintProblem]:
    """Lines that have no place in a first version, or that the owner writes itself."""
    return [
        LintProblem(
            number,
            ACTION_NAMES[type(action)],
            _ALONE,
        )
        for number, action in proposal.actions
        if not isinstance(action, Add | Txn) and not _is_clustering(action)
    ]
