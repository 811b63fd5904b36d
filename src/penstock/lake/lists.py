"""Lists that a lake answers with, and that notebooks show in their own way."""

from __future__ import annotations

from penstock.formats.registry import load
from penstock.lake.answers import Difference
from penstock.model.commits import Commit


class CommitLog(list[Commit]):
    """Commits, newest first."""

    def _repr_html_(self) -> str:
        shown: str = load("penstock.lake.notebook:show_log")(self)
        return shown


class Differences(list[Difference]):
    """Keys that differ, in their order."""

    def _repr_html_(self) -> str:
        shown: str = load("penstock.lake.notebook:show_differences")(self)
        return shown
