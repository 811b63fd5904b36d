"""Jobs that write data files first and commit them later: how long they may take, and what becomes of their
files.

A sweep removes files that nobody has committed for the lake's grace time. It rests on jobs that commit within
half of that, or not at all, whoever runs them. Only a refusal lets a job remove its own files: after
anything else somebody may have committed them, or may be about to.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import msgspec

from penstock.errors import ConflictError, InvalidRequest, PenstockError, RequestError, TransactionOver
from penstock.lake.call import AFTER_DOUBT
from penstock.model.transactions import TransactionState

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.storage.places import Place

DAY_S: Final = 24 * 3600.0
ASKED_EVERY_S: Final = 600.0
"""How long a lake's word on its grace time holds. A server may be started anew with another."""


class JobStart(msgspec.Struct, frozen=True):
    """When a job began, by two clocks: one stops while a machine sleeps, the other may be set back."""

    monotonic_s: float
    time_s: float
    grace_s: float
    """How long files stay that nobody has committed."""

    @classmethod
    def at_lake_time(cls, lake: Lake) -> JobStart:
        """A job that is about to begin. Its files are younger than it."""
        return cls(time.monotonic(), time.time(), _cached_grace_s(lake))

    @classmethod
    def at_time(cls, lake: Lake, time_us: int) -> JobStart:
        """A job that began in another process."""
        time_s = time_us / 1_000_000
        return cls(time.monotonic() - max(0.0, time.time() - time_s), time_s, _cached_grace_s(lake))

    def check_in_time(self) -> None:
        """``InvalidRequest`` if the job took so long that a sweep may soon take its files for leftovers."""
        ago_s = max(time.monotonic() - self.monotonic_s, time.time() - self.time_s)
        if ago_s > self.grace_s / 2:
            raise InvalidRequest(
                f"the job took {ago_s / DAY_S:.1f} days, but uncommitted files may be swept after "
                f"{self.grace_s / DAY_S:g}; nothing was committed. The setting 'data_grace_days' must be "
                "more than twice as long as any job"
            )


class _KnownGrace(msgspec.Struct, frozen=True):
    """What a lake said of its grace time, and when."""

    grace_s: float
    monotonic_s: float


_TOLD: Final[WeakKeyDictionary[Lake, _KnownGrace]] = WeakKeyDictionary()


def _cached_grace_s(lake: Lake) -> float:
    """A lake's grace time, asked once in a while: it stays as it is for as long as a process serves the lake,
    and to ask before every append would be a round trip each."""
    now_s = time.monotonic()
    files = _TOLD.get(lake)
    if files is None or now_s - files.monotonic_s > ASKED_EVERY_S:
        files = _TOLD[lake] = _KnownGrace(lake.about.data_grace_days * DAY_S, now_s)
    return files.grace_s


def is_refusal(error: BaseException) -> bool:
    """Whether a commit that raised this was not carried out, and never will be.

    Whatever else it raises, it may have been done, or may be done yet if somebody sends it again. A refusal
    that came after a lost answer is not trusted with files: what is asked of a branch tells nothing of one
    that had its name before, on which the first try may have landed. And who is told that a transaction is
    over because it is being committed has only lost it to somebody else, who may land it.
    """
    if isinstance(error, TransactionOver) and error.details.get("state") == TransactionState.COMMITTING:
        return False
    return isinstance(error, RequestError | ConflictError) and AFTER_DOUBT not in error.details


def remove_files(place: Place, names: Iterable[str]) -> None:
    """Remove files of a table that no commit can name, as far as possible. What stays is swept later."""
    unwanted = list(names)
    if unwanted:
        with suppress(PenstockError):
            place.delete(unwanted)
