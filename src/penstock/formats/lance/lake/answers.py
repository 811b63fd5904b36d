"""Answers about Lance tables."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

import msgspec

from penstock.model.commits import Commit
from penstock.model.keys import Key


class LanceAbout(msgspec.Struct, frozen=True, kw_only=True):
    """A Lance table as a branch, a transaction or a commit has it."""

    location_fields: ClassVar[tuple[str, ...]] = ("location", "folder")

    key: Key
    id: UUID
    location: str
    """The table's own folder: a path or a URL."""
    folder: str
    """Where to open it: that folder, or the one of the line that the branch has in it."""
    version: int | None = None
    """The newest one; nothing for a table that is only declared."""
    is_private: bool = False
    """Whether its versions are visible only through the lake: they are not promoted."""
    properties: dict[str, str] = {}


class LanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A Lance table of the default branch, and how far its versions are where every reader of Lance looks."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    location: str
    version: int | None = None
    """The newest one; nothing for a table that is only declared."""
    backlog: int = 0
    """How many versions are committed and not promoted."""
    oldest_s: float | None = None
    """How long the oldest of them waits."""
    alarm: str = ""
    """What stands against promoting, or against commits: that its folder has what the lake does not know."""


class LanceVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a Lance table."""

    location_fields: ClassVar[tuple[str, ...]] = ("manifest",)

    version: int
    manifest: str
    """Where its manifest is: a whole path or URL."""
    size: int
    created: datetime | None = None
    operation: str = ""
    """What made it, such as `append`; `imported` for one that was there before the lake knew the table."""
    metadata: dict[str, str] = {}


class LanceBranch(msgspec.Struct, frozen=True, kw_only=True):
    """One of Lance's own branches of a table."""

    name: str
    parent: str = ""
    """Empty for Lance's main branch."""
    version: int
    """Of the parent, where it forked."""
    created: datetime | None = None
    manifest_size: int = 0
    metadata: dict[str, str] = {}


class LanceTag(msgspec.Struct, frozen=True, kw_only=True):
    """One of Lance's own tags of a table."""

    name: str
    branch: str = ""
    version: int
    manifest_size: int = 0
    created: datetime | None = None
    updated: datetime | None = None
    metadata: dict[str, str] = {}


class LanceDone(msgspec.Struct, frozen=True, kw_only=True):
    """What one operation came to."""

    location_fields: ClassVar[tuple[str, ...]] = ("location", "folder")

    location: str = ""
    """Of the table, for what declares, registers or deregisters one."""
    folder: str = ""
    """Where to open it."""
    version: LanceVersion | None = None
    """For what creates a version, or a branch."""
    deleted: int = 0
    """How many versions, for what deletes them."""
    properties: dict[str, str] = {}
    """Of the table afterwards, or as it was when it went."""


class LanceCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit to Lance tables came to."""

    commit: Commit | None = None
    """Nothing if there was nothing to do."""
    head: str
    done: tuple[LanceDone, ...]
    """What each operation came to, in their order."""
