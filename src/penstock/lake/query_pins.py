"""The commits that a query reads: all that it reads of a branch is of one commit."""

from __future__ import annotations

import msgspec


class PinnedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that a query reads at a revision."""

    commit: str
    via: str | None = None
    """The reference that led to it."""
