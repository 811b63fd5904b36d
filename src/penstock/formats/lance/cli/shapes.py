"""What ``--json`` prints about Lance tables; see ``shapes`` for the rest."""

from __future__ import annotations

from datetime import datetime

from penstock.cli.shapes import Shape
from penstock.formats.lance.lake.answers import LanceAbout, LanceBranch, LanceStatus, LanceTag, LanceVersion


class LanceTable(Shape, frozen=True, kw_only=True):
    """A Lance table whose versions the lake decides."""

    table: str
    """The key."""
    id: str
    """By which the lake knows it."""
    location: str
    """The table's own folder."""
    folder: str
    """Where to open it: that folder, or the one of the line that the branch has in it."""
    version: int | None
    """The newest one; nothing for a table that has none yet."""
    is_private: bool
    """Whether nobody sees its versions who does not ask the lake."""
    properties: dict[str, str]
    """What was said of it."""

    @classmethod
    def of(cls, about: LanceAbout) -> LanceTable:
        return cls(
            table=str(about.key),
            id=str(about.id),
            location=about.location,
            folder=about.folder,
            version=about.version,
            is_private=about.is_private,
            properties=about.properties,
        )


class LanceTables(Shape, frozen=True, kw_only=True):
    """The Lance tables."""

    ref: str
    """Where it was looked."""
    tables: tuple[LanceTable, ...]
    """By key."""


class LanceTableStatus(Shape, frozen=True, kw_only=True):
    """A Lance table of the default branch, and how far it is promoted."""

    table: str
    """The key."""
    location: str
    """The table's own folder."""
    version: int | None
    """The newest one; nothing for a table that has none yet."""
    backlog: int
    """How many versions are committed and not where every reader of Lance looks."""
    oldest_s: float | None
    """How long the oldest of them waits, in seconds."""
    alarm: str
    """What stands against promoting, or against commits to the table."""

    @classmethod
    def of(cls, status: LanceStatus) -> LanceTableStatus:
        return cls(
            table=str(status.key),
            location=status.location,
            version=status.version,
            backlog=status.backlog,
            oldest_s=status.oldest_s,
            alarm=status.alarm,
        )


class LanceStatuses(Shape, frozen=True, kw_only=True):
    """The Lance tables of the default branch, and how far they are promoted."""

    tables: tuple[LanceTableStatus, ...]
    """By key."""


class LanceOwnBranch(Shape, frozen=True, kw_only=True):
    """One of Lance's own branches of a table."""

    branch: str
    """Its name."""
    parent: str
    """The branch that it forked from; empty for Lance's main one."""
    version: int
    """Of the parent, where it forked."""

    @classmethod
    def of(cls, one: LanceBranch) -> LanceOwnBranch:
        return cls(branch=one.name, parent=one.parent, version=one.version)


class LanceOwnTag(Shape, frozen=True, kw_only=True):
    """One of Lance's own tags of a table."""

    tag: str
    """Its name."""
    branch: str
    """The branch that it is on; empty for Lance's main one."""
    version: int
    """That it names."""

    @classmethod
    def of(cls, one: LanceTag) -> LanceOwnTag:
        return cls(tag=one.name, branch=one.branch, version=one.version)


class LanceWhole(LanceTable, frozen=True, kw_only=True):
    """A Lance table, with Lance's own branches and tags of it."""

    ref: str
    """Where it was looked."""
    branches: tuple[LanceOwnBranch, ...]
    """By name."""
    tags: tuple[LanceOwnTag, ...]
    """By name."""


class LanceTableVersion(Shape, frozen=True, kw_only=True):
    """A version of a Lance table."""

    version: int
    """Its number."""
    operation: str
    """What made it, such as `append`; `imported` for one that was there before the lake knew the table."""
    created: datetime | None
    """When it was committed; nothing for one that was there before the lake knew the table."""
    size: int
    """Of its manifest, in bytes."""
    manifest: str
    """Where that is."""

    @classmethod
    def of(cls, one: LanceVersion) -> LanceTableVersion:
        return cls(
            version=one.version,
            operation=one.operation,
            created=one.created,
            size=one.size,
            manifest=one.manifest,
        )


class LanceVersions(Shape, frozen=True, kw_only=True):
    """Versions of a Lance table, newest first."""

    table: str
    """The key."""
    ref: str
    """Where it was looked."""
    branch: str
    """One of Lance's own; empty for its main one."""
    versions: tuple[LanceTableVersion, ...]
    """Newest first."""
    next: int | None
    """What `--below` goes on with; nothing if this is all."""


class LanceMoved(Shape, frozen=True, kw_only=True):
    """A table that came to the lake, or that was listed for other programs."""

    table: str
    """The key."""
    location: str
    """Where it is."""


class LanceImport(Shape, frozen=True, kw_only=True):
    """What came of an import."""

    root: str
    """The directory namespace."""
    tables: tuple[LanceMoved, ...]
    """By key."""
    commit: str
    """Which registered them; empty for a dry run."""
    dry_run: bool
    """Whether nothing was done."""


class LanceExport(Shape, frozen=True, kw_only=True):
    """What came of an export."""

    root: str
    """The directory namespace."""
    ref: str
    """The branch."""
    tables: tuple[LanceMoved, ...]
    """By key."""
    unchanged: int
    """How many of them it had already."""
    dry_run: bool
    """Whether nothing was done."""
