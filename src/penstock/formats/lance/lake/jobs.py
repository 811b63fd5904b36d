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
from penstock.formats.lance.lake.answers import LanceCommitted
from penstock.formats.lance.lake.calls import CommitLance, CreateLanceVersion, GetLanceTable, LanceOperation
from penstock.formats.lance.lake.failures import conflict, told
from penstock.formats.lance.lake.namespace import PenstockNamespace
from penstock.lake.answers import Landing
from penstock.lake.call import Said
from penstock.lake.calls import GetChanges, GetOutcome
from penstock.lake.transactions.answers import TransactionInfo
from penstock.lake.transactions.calls import ListTransactions
from penstock.model.commits import Commit
from penstock.model.encoding import digest
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
    said: Said
    follows: int | None = None
    """The only version that it may be made on top of; any one if nothing is said."""


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    version: int
    commit: Commit | None
    head: str
    """The commit's id."""


def landed(lake: Lake, id: str, key: Key, branch: str) -> Landing | None:  # noqa: A002
    """What the job with an id came to on a branch; ``None`` if it was not done.

    ``IdempotencyKeyReused`` if the id is that of something else, which did not change the table.
    """
    found = lake.do(GetOutcome(key=id, branch=branch))
    if found is None or not found.commits:
        return None
    require_changed(lake, id, key, branch, found.head)
    return found


def require_changed(lake: Lake, id: str, key: Key, branch: str, commit: str) -> None:  # noqa: A002
    """``IdempotencyKeyReused`` if the commit that was made under an id did not change a table."""
    changes = GetChanges(revision=commit, via=branch)
    if all(one.key != key for one in lake.pages(changes, None, lambda last: {"after": last.key})):
        raise IdempotencyKeyReused(
            f"'{id}' is the id of something else that was done on '{branch}', and '{key}' was not written: "
            "give this job another",
            key=id,
        )


# -- attempts, each of which is a transaction --------------------------------------------------------------

NAME_DIGITS: Final = 24
NUMBERS_STEP: Final = 2**20
"""How far numbers of attempts are apart, at most: there are 4,096 of them at least."""
ATTEMPTS_AT_ONCE: Final = 10
"""How many are asked for in one call. There is seldom more than one."""


def attempts_name(*about: str) -> str:
    """What the ids of all transactions begin with by which a job is tried, by what tells it from others."""
    return digest(*about).hex()[:NAME_DIGITS]


def attempt_id(name: str, number: int) -> str:
    """The id of a job's attempt. The first one has the number 1."""
    return f"{name}{number:08x}"


def attempt_number(attempt: TransactionInfo) -> int:
    return int(attempt.id[NAME_DIGITS:], 16)


def next_attempt_id(name: str, before: Sequence[TransactionInfo]) -> str:
    """The id of another attempt after those of a job.

    The name is the same for everybody who gives a job the same id, and nobody sees others' transactions. So
    numbers have gaps: nobody meets others' attempts by them, or can tell the next one.
    """
    return attempt_id(name, max(map(attempt_number, before), default=0) + 1 + secrets.randbelow(NUMBERS_STEP))


def attempts(lake: Lake, name: str) -> list[TransactionInfo]:
    """The attempts of a job that the lake still knows, oldest first.

    They are listed, and not asked for one after the other: an attempt that failed is forgotten days before
    one that landed after it.
    """
    found, after = list[TransactionInfo](), attempt_id(name, 0)
    while True:
        page = lake.do(ListTransactions(all=True, after=after, limit=ATTEMPTS_AT_ONCE))
        found += (one for one in page if one.id.startswith(name))
        if not page or not page[-1].id.startswith(name):
            return found
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
        self._answer: LanceCommitted | None = None

    def run(self, work: Callable[[LanceNamespace], Any]) -> Committed:
        """Have Lance do the job by the namespace that it is given, and return what was committed.

        ``CommitConflict`` if that does not go together with what others committed meanwhile,
        ``IdempotencyKeyReused`` if another attempt of the job has landed, ``OutcomeUnknown`` if it cannot be
        known whether this one has; ``InvalidRequest`` for rows that Lance does not take, ``Unavailable`` if
        storage did not take them.
        """
        job = self._job
        try:
            with told(self, job.key) as client:
                made = work(client)
        except PenstockError as problem:
            landing = self._landing()
            if landing is None:
                raise self._refused(problem) from None
            about = self.do(GetLanceTable(key=job.key, at=landing.head, via=job.branch))
            return Committed(version=about.version or 0, commit=landing.commit, head=landing.head)
        if self._answer is not None:
            return Committed(version=made.version, commit=self._answer.commit, head=self._answer.head)
        landing = self._landing()
        if landing is None:
            raise OutcomeUnknown(
                f"Lance says that '{job.key}' was written as version {made.version}, but did not ask the "
                "lake, which knows nothing of it: this version of Lance may write past the lake",
                key=job.id,
            )
        return Committed(version=made.version, commit=landing.commit, head=landing.head)

    def change(
        self,
        operations: Sequence[LanceOperation],
        context: dict[str, str] | None = None,  # noqa: ARG002 - the job's id counts
        key: str | None = None,  # noqa: ARG002
    ) -> LanceCommitted:
        if self._problem is not None and not isinstance(self._problem, VersionTaken):
            raise self._problem  # Lance tries again whatever it was
        job = self._job
        call = CommitLance(
            branch=self.writable(),
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
        for one in operations:
            if isinstance(one, CreateLanceVersion) and self._job.follows not in (None, one.version - 1):
                raise VersionTaken(f"'{one.key}' is at version {one.version - 1} by now", table=str(one.key))

    def _landing(self) -> Landing | None:
        """What became of what was sent. ``OutcomeUnknown`` if the lake cannot be asked."""
        # Of whatever else it was refused for, it is known that it was not done.
        in_doubt = (VersionTaken, OutcomeUnknown, Unavailable)
        if not self._is_sent or not (self._problem is None or isinstance(self._problem, in_doubt)):
            return None
        job = self._job
        try:
            return landed(self.lake, job.id, job.key, job.branch)
        except IdempotencyKeyReused:
            raise
        except PenstockError as problem:
            raise OutcomeUnknown(
                f"whether '{job.key}' was written is not known: {problem.message}\n"
                f"  The same write again with {job.id_name}='{job.id}' tells, and does nothing twice.",
                key=job.id,
            ) from None

    def _refused(self, problem: PenstockError) -> PenstockError:
        """What to tell of a commit that was not made."""
        known = self._problem
        if known is not None and not isinstance(known, VersionTaken):
            return known
        return conflict(self._job.key, problem.message) if isinstance(problem, VersionTaken) else problem
