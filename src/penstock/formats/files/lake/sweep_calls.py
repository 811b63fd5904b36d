"""The call that sweeps the pool of tables of files."""

from __future__ import annotations

from typing import Any, Final

from penstock.lake.answers import SweptFiles
from penstock.lake.call import Call, RetrySafety


class SweepFiles(Call[SweptFiles], frozen=True, kw_only=True):
    """Remove files of tables of files that nothing needs, and what jobs left that are over.

    Files that no kept commit names go when they are older than the data grace time, or an hour after their
    job was aborted. They are only counted unless it is asked to remove them. Jobs that ended long ago are
    forgotten, and branches of jobs that are over are dropped, unless it is a dry run.
    """

    method = "POST"
    path = "/sweep/files"
    answer = SweptFiles
    retry = RetrySafety.ONCE  # it answers what it removed
    makes_lake = False
    is_long = True
    goes_on = True

    remove_data: bool = False
    """Remove files."""
    dry_run: bool = False
    """Change nothing at all, and only count."""


CALLS: Final[tuple[type[Call[Any]], ...]] = (SweepFiles,)
"""All of them."""
