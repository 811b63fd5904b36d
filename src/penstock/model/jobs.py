"""Jobs: writes that take their time, known to the lake from their beginning to their end."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.model.encoding import NO_COMMIT, ObjectId, encode, make_decoder
from penstock.model.references import Reference

ID: Final = re.compile(r"[0-9a-f]{32}")
TEXT_MAX_CHARS: Final = 500
EARLIER_MAX: Final = 16
"""So many fences of earlier attempts are remembered, to tell their late messages from a new attempt."""
ABANDONED_AFTER_US: Final = 2 * 3600 * 1_000_000
"""So long after its time was over, others may take a job for abandoned; more than clocks are apart."""
OWN_BRANCH: Final = "jobs/"
"""How the name of a job's own branch begins."""
_OWN: Final = re.compile(rf"{OWN_BRANCH}(?P<job>{ID.pattern})(?:-(?P<attempt>[1-9][0-9]*))?")
_OWN_NOTE: Final = b"attempt "


class JobState(StrEnum):
    """How far a job is."""

    RUNNING = "running"
    COMMITTING = "committing"
    """It may have sent its commit. Nobody can call that off by the job's row alone: the branch tells what
    came of it, and there it is called off, if it has to be."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    """It never lands."""


class Job(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A job and its newest attempt. It moves by swaps of its row."""

    id: str
    """32 hexadecimal digits. At most one attempt of a job ever lands."""
    fence: str
    """Of the newest attempt, which alone may commit."""
    state: JobState
    key: str
    """Of the table that it writes."""
    branch: str
    """That it commits to."""
    incarnation: bytes
    """Of that branch, when the job began."""
    base: ObjectId = NO_COMMIT
    """The branch's head then."""
    own_branch: str = ""
    """The branch that this attempt works on, if it has one."""
    what: str = ""
    """For people: what it does."""
    application: str = ""
    """Who runs it, such as Spark's id of the application."""
    who: str = ""
    began_us: int
    expires_us: int
    """Its deadline: after it, the job can no longer commit."""
    changed_us: int
    commit: ObjectId = NO_COMMIT
    """That it came to."""
    why: str = ""
    """It was aborted."""
    attempt: int = 1
    """How many attempts there have been, with this one."""
    earlier: tuple[str, ...] = ()
    """Fences of the attempts before, newest first, as far as they are remembered."""
    sends: int = 0
    """How often this attempt has sent its commit."""
    position: int = 0
    """Of the branch's log, when it was first sent."""
    spent: int = 0
    """How many attempts have sent a commit that came to nothing, and will never land."""

    @property
    def commit_key(self) -> str:
        """The idempotency key of its commit: the job's id, or another one if that was used in vain."""
        return f"{self.id}.{self.spent}" if self.spent else self.id

    def mark_landed(self, commit: ObjectId, now_us: int) -> Job:
        return msgspec.structs.replace(self, state=JobState.COMMITTED, commit=commit, changed_us=now_us)

    def mark_aborted(self, why: str, now_us: int) -> Job:
        """If it was committing, nothing lands under its key any more, and the next attempt has another."""
        spent = self.spent + (self.state is JobState.COMMITTING)
        why = why[:TEXT_MAX_CHARS]
        return msgspec.structs.replace(self, state=JobState.ABORTED, why=why, changed_us=now_us, spent=spent)

    @property
    def has_ended(self) -> bool:
        return self.state in (JobState.COMMITTED, JobState.ABORTED)

    def is_over(self, now_us: int) -> bool:
        """Whether nothing can come of it any more, or something has."""
        return self.has_ended or (self.state is JobState.RUNNING and now_us > self.expires_us)

    def is_abandoned(self, now_us: int) -> bool:
        """Whether it has not ended, and by any clock nobody is at it any more."""
        return not self.has_ended and now_us > max(self.expires_us, self.changed_us) + ABANDONED_AFTER_US

    def is_old(self, now_us: int, kept_us: int) -> bool:
        """Whether it has been over for so long that it may be forgotten."""
        return self.is_over(now_us) and max(self.changed_us, self.expires_us) < now_us - kept_us

    def list_own_branches(self) -> list[str]:
        """The branches that its attempts worked on, the newest first, if they have some."""
        if not self.own_branch:
            return []
        return [name_own_branch(self.id, number) for number in range(self.attempt, 0, -1)]


def name_own_branch(id: str, attempt: int) -> str:  # noqa: A002
    """The branch of one attempt: none meets what another one has left behind."""
    return OWN_BRANCH + (id if attempt == 1 else f"{id}-{attempt}")


def parse_attempt(branch: Reference) -> tuple[str, int] | None:
    """The job and the number of the attempt that a branch was made for; ``None`` if people made it.

    Its name alone does not tell: anybody may have a branch of that name.
    """
    own = _OWN.fullmatch(branch.name) if branch.note.startswith(_OWN_NOTE) else None
    return (own["job"], int(own["attempt"] or 1)) if own is not None else None


def make_own_branch_note(fence: str) -> bytes:
    """The note on the branch that an attempt has made for itself."""
    return _OWN_NOTE + fence.encode()


encode_job = encode
decode_job = make_decoder(Job).decode


def check_job_id(text: str, subject: str = "job id") -> str:
    """``InvalidRequest`` if it is none."""
    if not ID.fullmatch(text):
        raise InvalidRequest(f"{text!r} is not a valid {subject}: it must have 32 hexadecimal digits")
    return text
