"""What a driver is told to do, and what it answers."""

from __future__ import annotations

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers to be written to a table."""

    key: str = "orders"
    mode: str = "append"
    format: str | None = None
    """Of a table of files; without one it is a table of rows."""
    is_plain: bool = False
    """Whether the files are written as by code that knows Spark only, to the lake of the driver's session."""
    branch: str | None = None
    job_branch: bool = False
    """Whether the job works on a branch of its own."""
    is_shuffled: bool = False
    """Whether the rows come from another stage; the tasks then have no points within their rows."""
    idempotency_key: str | None = None
    first: int = 0
    tasks: int = 6
    rows: int = 50
    """In each task."""
    kind: int = 0
    """The value of a second column."""
    faults: tuple[str, ...] = ()
    """See ``Faults.java``."""
    is_impatient: bool = False
    """Whether its driver soon gives up waiting for an answer of the lake: where none comes."""

    @property
    def ids(self) -> range:
        return range(self.first, self.first + self.tasks * self.rows)


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a job: the commit, or the error's class."""

    commit: str = ""
    error: str = ""
    message: str = ""
