"""Answers about Lance tables."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

import msgspec

from penstock.model.commits import Commit
from penstock.model.keys import Key


class LanceTableInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A Lance table as a branch, a transaction or a commit has it."""

    location_fields: ClassVar[tuple[str, ...]] = ("location", "folder")

    key: Key
    id: UUID
    location: str
    """The table's own folder: a path or a URL."""
    folder: str
    """Where to open it: that folder, or the branch's own folder inside it."""
    version: int | None = None
    """The newest version; null for a table that is only declared."""
    is_private: bool = False
    """Whether its versions are visible only through the lake: they are not promoted."""
    properties: dict[str, str] = {}


class LanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A Lance table of the default branch, and how far its versions are promoted."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    location: str
    version: int | None = None
    """The newest version; null for a table that is only declared."""
    backlog: int = 0
    """How many versions are committed and not promoted."""
    oldest_s: float | None = None
    """How long the oldest of them waits."""
    alarm: str = ""
    """Why it cannot be promoted or written to, such as versions in its folder that the lake does not know."""


class LanceVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a Lance table."""

    location_fields: ClassVar[tuple[str, ...]] = ("manifest",)

    version: int
    manifest: str
    """Where its manifest is: a whole path or URL."""
    size: int
    created: datetime | None = None
    operation: str = ""
    """The operation that made it, such as `append`; `imported` for a version from before the lake knew the
    table."""
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


class LanceOperationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one operation."""

    location_fields: ClassVar[tuple[str, ...]] = ("location", "folder")

    location: str = ""
    """The table's id, for operations that declare, register or deregister one."""
    folder: str = ""
    """Where to open it."""
    version: LanceVersion | None = None
    """For operations that create a version or a branch."""
    deleted: int = 0
    """For operations that delete versions: how many."""
    properties: dict[str, str] = {}
    """The table's properties afterwards; of a removed table, its last ones."""


class LanceCommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a commit to Lance tables."""

    commit: Commit | None = None
    """Null if there was nothing to do."""
    head: str
    done: tuple[LanceOperationResult, ...]
    """The result of each operation, in their order."""
