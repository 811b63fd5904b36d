"""The first version of a table that is the lake's from the beginning: what it is, and the files that it has.

Whoever creates a table may give its first files, which lie at its place already. All of it is one commit, so
that nobody ever sees the table without them.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from penstock.formats.delta.branch_log.intents import CommitIntent
from penstock.formats.delta.branch_log.ownership import NewTable, OwnerIdentity, first_commit
from penstock.formats.delta.branch_log.proposal import DeltaProposal, refused
from penstock.formats.delta.branch_log.replacements import OWNERS
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
from penstock.formats.delta.protocol.lint import WHOLE_COMMIT, LintRules, LintState, Problem, check_commit
from penstock.formats.delta.protocol.lint_files import Numbered
from penstock.model.keys import Key
from penstock.storage.places import Places

WITH_FILES: Final = CommitInfo({"operation": "CREATE TABLE AS SELECT"})
"""What a writer is taken to have done that gives files and does not say."""


_ALONE: Final = "a table is created with files, batches and clustering columns alone"


class FirstVersion:
    """Makes the first versions of the tables of a lake."""

    def __init__(self, places: Places, identity: OwnerIdentity) -> None:
        self._places, self._identity = places, identity

    def of(self, key: Key, new: NewTable, table_id: UUID, location: str, uuid: UUID, now_ms: int) -> bytes:
        """The commit, whole. ``InvalidContent`` with everything that is wrong with what the writer gave,
        ``InvalidRequest`` if that is to be in a file and is not there."""
        if new.actions is None:
            return write_commit(first_commit(new, self._identity, table_id, uuid, now_ms))
        given = DeltaProposal(key, CommitIntent(actions=new.actions, uuid=uuid), self._places, location)
        first = first_commit(new, self._identity, table_id, uuid, now_ms, _told(given))
        info, protocol, metadata = first
        about: list[Numbered] = [(1, info), (WHOLE_COMMIT, protocol), (WHOLE_COMMIT, metadata)]
        rules = LintRules(now_ms=now_ms)
        problems = (
            *given.problems,
            *_strange(given),
            *check_commit([*about, *given.actions], LintState(), rules),
        )
        if problems:
            raise refused(key, sorted(problems))
        return write_commit(first) + given.lines


def _is_clustering(action: Action) -> bool:
    return isinstance(action, DomainMetadata) and action.domain == DOMAIN


def _told(given: DeltaProposal) -> CommitInfo:
    """What the writer says of the commit, without what is the owner's to say."""
    info = given.info if given.info is not None else WITH_FILES
    return CommitInfo({name: value for name, value in info.fields.items() if name not in OWNERS})


def _strange(given: DeltaProposal) -> list[Problem]:
    """Lines that have no place in a first version, or that the owner writes itself."""
    return [
        Problem(
            number,
            ACTION_NAMES[type(action)],
            _ALONE,
        )
        for number, action in given.actions
        if not isinstance(action, Add | Txn) and not _is_clustering(action)
    ]
