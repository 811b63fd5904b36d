"""What a write to Delta tables came to, told from the lake's commit that it made.

A commit of the lake holds the tables as it left them, so the answer to a repeated request, or to one whose
first answer was lost, is read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.lake.answers import Landing
from penstock.lake.call import Call
from penstock.lake.calls import GetChanges, GetCommit
from penstock.lake.delta_answers import Ratified, RatifiedTable, TableMade, TableVersions
from penstock.lake.delta_calls import GetTableVersions, TableCommit
from penstock.model.commits import Commit
from penstock.model.content import DeltaTable
from penstock.model.keys import Key

Ask = Callable[[Call[Any]], Any]


def ratified(ask: Ask, tables: Sequence[TableCommit], landing: Landing, branch: str) -> Ratified:
    """The answer of a commit to tables that is known to have landed."""
    commit: Commit = landing.commit or ask(GetCommit(revision=landing.head, via=branch))
    return Ratified(commit=commit, tables=tuple(_table(ask, one, landing, branch) for one in tables))


def made(ask: Ask, key: Key | None, landing: Landing, branch: str) -> TableMade:
    """The answer of a creation, adoption or release that is known to have landed."""
    if key is None:
        changes = ask(GetChanges(revision=landing.commits[0], via=branch))
        key = next(one.key for one in changes if isinstance(one.after, DeltaTable))
    found = _versions(ask, key, landing.commits[0] if landing.commits else landing.head, branch)
    return TableMade(
        key=key,
        id=found.id,
        location=found.location,
        version=found.latest_version,
        commit=landing.head,
    )


def _versions(ask: Ask, key: Key, commit: str, branch: str, start: int | None = None) -> TableVersions:
    found: TableVersions = ask(GetTableVersions(key=key, at=commit, via=branch, start=start))
    return found


def _table(ask: Ask, one: TableCommit, landing: Landing, branch: str) -> RatifiedTable:
    """A table as the commit left it: at the version that it got, or already had."""
    found = _versions(ask, one.key, landing.head, branch, one.version)
    version = found.latest_version if one.version is None else one.version
    entry = next((each for each in found.commits if each.version == version), None)
    return RatifiedTable(
        key=one.key,
        version=version,
        name=entry.name if entry is not None else "",
        timestamp_ms=entry.timestamp_ms if entry is not None else 0,
        repeated=True,
    )
