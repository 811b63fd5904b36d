"""What can be asked of a Lance table: steps, of which one commit may have several for a table.

They are carried out in their order, on the table as it is at their turn. A commit keeps what was asked, so
that its history can be told; merges look at the versions themselves.
"""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import msgspec

from penstock.errors import Damaged
from penstock.formats.lance.names import MAIN
from penstock.model.encoding import encode, make_decoder


class _Step(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What all steps share."""


class DeclareStep(_Step, frozen=True, kw_only=True, tag="declare"):
    """A table that has no version yet."""

    id: UUID
    """Of the new table; its place is made from it, unless a place is named."""
    location: str
    is_private: bool = False
    properties: dict[str, str] = {}


class RegisterStep(_Step, frozen=True, kw_only=True, tag="register"):
    """Register a Lance table that exists at a location. Only on the default branch."""

    id: UUID
    location: str
    replaces: bool = False
    """Whether what is at the key may go for it."""
    is_private: bool = False
    properties: dict[str, str] = {}


class CreateStep(_Step, frozen=True, kw_only=True, tag="create"):
    """The next version, whose manifest its writer has put into storage."""

    branch: str = MAIN
    """Of Lance's own branches."""
    version: int
    path: str
    """Of the manifest, below the table's folder."""
    size: int | None = None
    is_v1: bool = False
    e_tag: str = ""
    metadata: dict[str, str] = {}


class DeleteStep(_Step, frozen=True, kw_only=True, tag="delete"):
    """Remove versions from the table's version list. The newest one stays."""

    branch: str = MAIN
    ranges: tuple[tuple[int, int], ...]
    """From a version up to but without another one; without an end if that is below zero."""


class AlterStep(_Step, frozen=True, kw_only=True, tag="alter"):
    """Properties of the table."""

    properties: dict[str, str | None]
    """Those without a value are removed."""


class PutTagStep(_Step, frozen=True, kw_only=True, tag="put tag"):
    """One of Lance's own tags."""

    name: str
    branch: str = MAIN
    version: int
    is_new: bool = True
    """Whether there must be none yet; otherwise there must be one."""
    metadata: dict[str, str] = {}


class DropTagStep(_Step, frozen=True, kw_only=True, tag="drop tag"):
    name: str


class PutBranchStep(_Step, frozen=True, kw_only=True, tag="put branch"):
    """One of Lance's own branches, which begins as a version of another one."""

    name: str
    parent: str = MAIN
    version: int | None = None
    """The newest one if nothing is given."""
    metadata: dict[str, str] = {}


class DropBranchStep(_Step, frozen=True, kw_only=True, tag="drop branch"):
    name: str


class ResyncStep(_Step, frozen=True, kw_only=True, tag="resync"):
    """Take over the versions that the table's own folder has and the lake has not, of a lake that is older
    than its tables. Only on the default branch."""

    id: UUID
    location: str
    known: int
    """The newest version that the lake has of it; 0 for a table that it does not have."""
    replaced: UUID | None = None
    """The table that it is in the lake, where the lake's own versions are others than those of the folder: it
    becomes another one."""


class EraseStep(_Step, frozen=True, kw_only=True, tag="erase"):
    """A version with which the history of the table begins, or which says with which one it does: it changes
    nothing, and no version from before the first is told any more. Only on the default branch."""

    version: int
    path: str
    """Of its manifest, below the table's folder."""
    size: int
    drops_tags: bool = False
    """Whether Lance's own tags of earlier versions go."""
    first: int | None = None
    """The version with which history begins; ``None`` if it is this one."""


class DeregisterStep(_Step, frozen=True, kw_only=True, tag="deregister"):
    """The lake forgets the table. Its files stay."""


Step: TypeAlias = (
    DeclareStep
    | RegisterStep
    | CreateStep
    | DeleteStep
    | AlterStep
    | PutTagStep
    | DropTagStep
    | PutBranchStep
    | DropBranchStep
    | DeregisterStep
    | ResyncStep
    | EraseStep
)


class NumberedStep(msgspec.Struct, frozen=True, array_like=True):
    """A step, and which operation of a request it is, counted from zero: errors name it."""

    operation: int
    step: Step


class Steps(msgspec.Struct, frozen=True, array_like=True, tag="steps"):
    """All that one commit asks of a table."""

    steps: tuple[NumberedStep, ...]


_decode = make_decoder(Steps).decode


def encode_steps(steps: Steps) -> bytes:
    return encode(steps)


def decode_steps(data: bytes) -> Steps:
    """``Damaged`` if the bytes are none."""
    try:
        steps: Steps = _decode(data)
    except msgspec.MsgspecError as problem:
        raise Damaged(f"the stored change of a Lance table cannot be read: {problem}") from None
    return steps
