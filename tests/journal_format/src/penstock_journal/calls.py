"""Calls about journals: what a program, the command line and a server's clients ask of a lake."""

from __future__ import annotations

import msgspec

from penstock.lake.answers import LandedRequest, SweptFiles
from penstock.lake.call import Ask, Call, CommitDescription, ReadAt, RetrySafety, WriteCall
from penstock.lake.recovered_answers import landed_commit
from penstock.model.commits import Commit
from penstock.model.keys import Key


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """A journal at a commit."""

    version: int
    lines: tuple[str, ...]


class AppendLines(WriteCall[Commit], frozen=True, kw_only=True):
    """Add lines to a journal, which is made if it is not there."""

    path = "/journals/lines"
    answer = Commit
    makes_lake = True
    counted = ("lines",)
    target = "branch"
    unhashed = ("branch",)
    revisions = ()

    key: Key
    lines: tuple[str, ...]
    branch: str | None = None
    """The default branch if nothing is given."""
    read_version: int | None = None
    """If they answer what was read: the version of the journal then."""
    said: CommitDescription = CommitDescription()
    """What the commit says of itself."""

    def recover(self, ask: Ask, landing: LandedRequest) -> Commit:
        return landed_commit(ask, self, landing)


class ReadJournal(ReadAt[Journal], frozen=True, kw_only=True):
    """The lines of a journal."""

    path = "/journals"
    answer = Journal
    pinned_by = ("at",)

    key: Key


class SweepJournals(Call[SweptFiles], frozen=True, kw_only=True):
    """Remove published texts of journals that are not the newest, and are older than the data grace time."""

    method = "POST"
    path = "/sweep/journals"
    answer = SweptFiles
    retry = RetrySafety.ONCE  # it answers what it removed
    makes_lake = False
    is_long = True
    goes_on = True

    remove_data: bool = False
    """Remove files."""
    dry_run: bool = False
    """Change nothing at all, and only count."""
