"""Operations: what a writer asks a commit to do. One request may carry many."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from penstock.model.content import AnyContent
from penstock.model.keys import Key


class Put(msgspec.Struct, frozen=True):
    """Put ``content`` at ``key``.

    A content that replaces another keeps its id; leave ``content.id`` empty or give the same. Renaming is
    a ``Delete`` of the old key and a ``Put`` of the same content (with its id) under the new one, in one
    request. A ``Delete`` and a ``Put`` of the same key re-create it under a new id.
    """

    key: Key
    content: AnyContent


class Delete(msgspec.Struct, frozen=True):
    """Delete what is at ``key``. A namespace must be empty."""

    key: Key


class Unchanged(msgspec.Struct, frozen=True):
    """Refuse the request if ``key`` changed since the base: a read that must still hold."""

    key: Key


class Change(msgspec.Struct, frozen=True):
    """A format's intent ("append these files"), applied to the table as it is when its turn comes.

    ``intent`` is the format's own bytes. It is stored with the commit, so that a merge can replay it.
    """

    key: Key
    format: str
    intent: bytes


Operation: TypeAlias = Put | Delete | Unchanged | Change
