"""Jobs: writes of rows that Lance carries out, each of which becomes one commit of the lake, once.

Lance makes the version, on top of whatever others committed since the job began if that goes together, and
asks the job's own namespace to ratify it. That is the lake's, but its commits are the job's: they say what
the job is, and under the job's id only one is ever made.

Files have new names each time, so that a job that is tried again is another request than before. Whether it
is the same job is told by its id, and by the table that was changed under it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import IdempotencyKeyReused, OutcomeUnknown, PenstockError, Unavailable, VersionTaken
from penstock.formats.lance.lake.answers import LanceCommitResult
from penstock.formats.lance.lake.calls import CommitLance, CreateLanceVersion, GetLanceTable, LanceOperation
from penstock.formats.lance.lake.failures import conflict_error, own_errors
from penstock.formats.lance.lake.namespace import PenstockNamespace
from penstock.lake.answers import LandedRequest
from penstock.lake.call import CommitDescription
from penstock.lake.calls import GetChanges, GetOutcome
from penstock.lake.transactions.answers import TransactionInfo
from penstock.lake.transactions.calls import ListTransactions
from penstock.model.commits import Commit
from penstock.model.encoding import hash_parts
from penstock.model.keys import Key

if TYPE_CHECKING:
    from lance_namespace import LanceNamespace

    from penstock.lake.lake import Lake


class LanceJob(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a table."""

    key: Key
    branch: str
    id: str
    """Under which it is done once, on its branch."""
    id_name: str
    """What its caller calls that."""
    said: CommitDescription
    follows: int | None = None
    """The only version that it may be made on top of; any one if nothing is said."""


class CommittedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job."""

    version: int
    commit: Commit | None
    head: str
    """The commit's id."""


def find_landing(lake: Lake, id: str, key: Key, branch: str) -> LandedRequest | None:  # noqa: A002
    """The result of the job with an id on a branch; ``None`` if it has not landed.

    ``IdempotencyKeyReused`` if the id is that of something else, which did not change the table.
    """
    landing = lake.do(GetOutcome(key=id, branch=branch))
    if landing is None or not landing.commits:
        return None
    require_changed(lake, id, key, branch, landing.head)
    return landing


def require_changed(lake: Lake, id: str, key: Key, branch: str, commit: str) -> None:  # noqa: A002
    """``IdempotencyKeyReused`` if the commit that was made under an id did not change a table."""
    changes = GetChanges(revision=commit, via=branch)
    if all(page.key != key for page in lake.pages(changes, None, lambda last: {"after": last.key})):
        raise IdempotencyKeyReused(
            f"'{id}' is already the id of another request to '{branch}', so '{key}' was not written: give "
            "this job another id",
            key=id,
        )


# -- attempts, each of which is a transaction --------------------------------------------------------------

NAME_DIGITS: Final = 24
NUMBERS_STEP: Final = 2**20
"""How far numbers of attempts are apart, at most: there are 4,096 of them at least."""
ATTEMPTS_AT_ONCE: Final = 10
"""How many are asked for in one call. There is seldom more than one."""


def make_attempts_prefix(*about: str) -> str:
    """What the ids of all transactions begin with by which a job is tried, by what tells it from others."""
    return hash_parts(*about).hex()[:NAME_DIGITS]


def make_attempt_id(name: str, number: int) -> str:
    """The id of a job's attempt. The first one has the number 1."""
    return f"{name}{number:08x}"


def parse_attempt_number(attempt: TransactionInfo) -> int:
    return int(attempt.id[NAME_DIGITS:], 16)


def make_next_attempt_id(name: str, before: Sequence[TransactionInfo]) -> str:
    """The id of another attempt after those of a job.

    The name is the same for everybody who gives a job the same id, and nobody sees others' transactions. So
    numbers have gaps: nobody meets others' attempts by them, or can tell the next one.
    """
    return make_attempt_id(
        name, max(map(parse_attempt_number, before), default=0) + 1 + secrets.randbelow(NUMBERS_STEP)
    )


def list_attempts(lake: Lake, name: str) -> list[TransactionInfo]:
    """The attempts of a job that the lake still knows, oldest first.

    They are listed, and not asked for one after the other: an attempt that failed is forgotten days before
    one that landed after it.
    """
    transactions, after = list[TransactionInfo](), make_attempt_id(name, 0)
    while True:
        page = lake.do(ListTransactions(all=True, after=after, limit=ATTEMPTS_AT_ONCE))
        transactions += (transaction for transaction in page if transaction.id.startswith(name))
        if not page or not page[-1].id.startswith(name):
            return transactions
        after = page[-1].id


# -- carrying one out --------------------------------------------------------------------------------------


class JobNamespace(PenstockNamespace):
    """Asks a lake on behalf of a job, and remembers what it was told: Lance hands on neither answers nor
    errors."""

    is_noted = False

    def __init__(self, lake: Lake, job: LanceJob) -> None:
        super().__init__(lake, job.branch)
        self._job = job
        self._is_sent = False
        self._problem: PenstockError | None = None
        self._answer: LanceCommitResult | None = None

    def run_lance_job(self, work: Callable[[LanceNamespace], Any]) -> CommittedJob:
        """Have Lance do the job by the namespace that it is given, and return what was committed.

        ``CommitConflict`` if that does not go together with what others committed meanwhile,
        ``IdempotencyKeyReused`` if another attempt of the job has landed, ``OutcomeUnknown`` if it cannot be
        known whether this one has; ``InvalidRequest`` for rows that Lance does not take, ``Unavailable`` if
        storage did not take them.
        """
        job = self._job
        try:
            with own_errors(self, job.key) as client:
                made = work(client)
        except PenstockError as problem:
            landing = self._find_landing()
            if landing is None:
                raise self._commit_error(problem) from None
            about = self.do(GetLanceTable(key=job.key, at=landing.head, via=job.branch))
            return CommittedJob(version=about.version or 0, commit=landing.commit, head=landing.head)
        if self._answer is not None:
            return CommittedJob(version=made.version, commit=self._answer.commit, head=self._answer.head)
        landing = self._find_landing()
        if landing is None:
            raise OutcomeUnknown(
                f"Lance says that '{job.key}' was written as version {made.version}, but the lake did "
                "not get that version: this version of Lance may write past the lake",
                key=job.id,
            )
        return CommittedJob(version=made.version, commit=landing.commit, head=landing.head)

    def change_tables(
        self,
        operations: Sequence[LanceOperation],
        context: dict[str, str] | None = None,  # noqa: ARG002 - the job's id counts
        key: str | None = None,  # noqa: ARG002
    ) -> LanceCommitResult:
        if self._problem is not None and not isinstance(self._problem, VersionTaken):
            raise self._problem  # Lance tries again whatever it was
        job = self._job
        call = CommitLance(
            branch=self.require_branch(),
            operations=tuple(operations),
            create=False,
            said=job.said,
            idempotency_key=job.id,
            who=self.lake.author,
        )
        try:
            self._check_place(operations)
            self._is_sent = True
            self._answer = self.do(call)
        except PenstockError as problem:
            self._problem = problem
            raise
        return self._answer

    def _check_place(self, operations: Sequence[LanceOperation]) -> None:
        for operation in operations:
            if isinstance(operation, CreateLanceVersion) and self._job.follows not in (
                None,
                operation.version - 1,
            ):
                raise VersionTaken(
                    f"'{operation.key}' is at version {operation.version - 1} by now, and the job began "
                    "at version "
                    f"{self._job.follows}",
                    table=str(operation.key),
                )

    def _find_landing(self) -> LandedRequest | None:
        """What became of what was sent. ``OutcomeUnknown`` if the lake cannot be asked."""
        # Of whatever else it was refused for, it is known that it was not done.
        in_doubt = (VersionTaken, OutcomeUnknown, Unavailable)
        if not self._is_sent or not (self._problem is None or isinstance(self._problem, in_doubt)):
            return None
        job = self._job
        try:
            return find_landing(self.lake, job.id, job.key, job.branch)
        except IdempotencyKeyReused:
            raise
        except PenstockError as problem:
            raise OutcomeUnknown(
                f"it is not known whether '{job.key}' was written: {problem.message}\n  Writing again with "
                f"{job.id_name}='{job.id}' is safe: it is applied once, and returns the outcome.",
                key=job.id,
            ) from None

    def _commit_error(self, problem: PenstockError) -> PenstockError:
        """The error to raise for a commit that was refused."""
        penstock_error = self._problem
        if penstock_error is not None and not isinstance(penstock_error, VersionTaken):
            return penstock_error
        return (
            conflict_error(self._job.key, problem.message) if isinstance(problem, VersionTaken) else problem
        )
