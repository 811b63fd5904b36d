"""Committing: fragments that tasks wrote become a version of a Lance table, in one commit of the lake.

Lance makes the version, on top of whatever others committed since the job began if that goes together, and
asks the job's own namespace to ratify it. That is the lake's, but its commits are the job's: they say what
the job is, and under the job's id only one is ever made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import CommitConflict, OutcomeUnknown, PenstockError, Unavailable, VersionTaken
from penstock.lake.answers import Landing
from penstock.lake.call import Said
from penstock.lake.calls import GetOutcome
from penstock.lake.lance.answers import LanceCommitted
from penstock.lake.lance.calls import CommitLance, GetLanceTable, LanceOperation
from penstock.lake.lance.namespace import PenstockNamespace
from penstock.model.commits import Commit
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.spark.lance.output import Output


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What a job wants to commit."""

    key: Key
    branch: str
    job: str
    said: Said
    output: Any
    """The fragments."""
    schema: Any
    """That the table is to have from then on; nothing if it keeps its own, and its rows."""
    properties: dict[str, str]
    """Of Lance's own transaction."""
    tries_max: int = 20
    """How often Lance tries to make a version on top of others'."""


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    version: int
    commit: Commit | None


def commit(lake: Lake, base: Any, proposal: Proposal) -> Committed:
    """Commit fragments to a table, as it was opened, or to the folder of one that has no version.

    ``CommitConflict`` if that does not go together with what others committed meanwhile,
    ``IdempotencyKeyReused`` if another attempt of the job has landed, ``OutcomeUnknown`` if it cannot be
    known whether this one has; ``Unavailable`` if storage did not take the version.
    """
    import lance

    namespace = _JobNamespace(lake, proposal)
    read_version = 0 if isinstance(base, str) else base.version
    told = lance.Transaction(
        read_version=read_version,
        operation=_operation(proposal),
        transaction_properties=proposal.properties,
    )
    try:
        done = lance.LanceDataset.commit(
            base,
            told,
            max_retries=proposal.tries_max,
            namespace_client=namespace,
            table_id=[*proposal.key],
            namespace_client_managed_versioning=True,
        )
    except Exception as problem:  # noqa: BLE001 - Lance raises errors of many classes, and hides ours
        landing = namespace.landing()
        if landing is None:
            raise namespace.refused(problem) from None
        about = lake.do(GetLanceTable(key=proposal.key, at=landing.head, via=proposal.branch))
        return Committed(version=about.version or 0, commit=landing.commit)
    return Committed(version=done.version, commit=namespace.commit())


def _operation(proposal: Proposal) -> Any:
    from lance import LanceOperation as Lance
    from lance.fragment import FragmentMetadata

    output: Output = proposal.output
    fragments = [FragmentMetadata.from_json(json.dumps(one)) for one in output.fragments]
    if proposal.schema is None:
        return Lance.Append(fragments)
    return Lance.Overwrite(proposal.schema, fragments)


class _JobNamespace(PenstockNamespace):
    """Asks a lake on behalf of a job, and remembers what it was told: Lance hands on neither answers nor
    errors."""

    def __init__(self, lake: Lake, proposal: Proposal) -> None:
        super().__init__(lake, proposal.branch)
        self._proposal = proposal
        self._is_sent = False
        self._problem: PenstockError | None = None
        self._answer: LanceCommitted | None = None

    def change(
        self,
        operations: Sequence[LanceOperation],
        context: dict[str, str] | None = None,  # noqa: ARG002 - the job's key counts
        key: str | None = None,  # noqa: ARG002
    ) -> LanceCommitted:
        if self._problem is not None and not isinstance(self._problem, VersionTaken):
            raise self._problem  # Lance tries again whatever it was
        self._is_sent = True
        call = CommitLance(
            branch=self.writable(),
            operations=tuple(operations),
            create=False,
            said=self._proposal.said,
            idempotency_key=self._proposal.job,
            who=self.lake.author,
        )
        try:
            self._answer = self.do(call)
        except PenstockError as problem:
            self._problem = problem
            raise
        return self._answer

    def commit(self) -> Commit | None:
        """The commit that was made, if the lake's answer arrived or can be had again."""
        if self._answer is not None:
            return self._answer.commit
        landing = self.landing()
        return None if landing is None else landing.commit

    def landing(self) -> Landing | None:
        """What became of what was sent. ``OutcomeUnknown`` if the lake cannot be asked."""
        if not self._is_sent:
            return None
        job, branch = self._proposal.job, self._proposal.branch
        try:
            found = self.do(GetOutcome(key=job, branch=branch))
        except PenstockError as problem:
            raise OutcomeUnknown(
                f"whether '{self._proposal.key}' was written is not known: {problem.message}\n"
                f"  The same write again with job_id='{job}' tells, and does nothing twice.",
                key=job,
            ) from None
        is_ours = self._problem is None or isinstance(
            self._problem, VersionTaken | OutcomeUnknown | Unavailable
        )
        return found if found is not None and found.commits and is_ours else None

    def refused(self, problem: Exception) -> PenstockError:
        """What to tell of a commit that was not made."""
        key, known = self._proposal.key, self._problem
        if known is not None and not isinstance(known, VersionTaken):
            return known
        told = str(problem).partition("\n")[0]
        if isinstance(known, VersionTaken) or "onflict" in type(problem).__name__ + told:
            why = f"was changed meanwhile in a way that the rows do not go together with: {told}"
            return CommitConflict([Conflict(ConflictKind.FORMAT, key, why=why)])
        return Unavailable(f"no version of '{key}' could be written: {told}")
