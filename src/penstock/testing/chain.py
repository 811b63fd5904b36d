"""A branch as it came to be: its commits, oldest first, what each changed, and its ref log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from penstock.errors import PenstockError
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import read_content
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.objects import CommitObject, LogEntry
from penstock.testing.client import value_of
from penstock.testing.recorder import Values


class ChainLink(msgspec.Struct, frozen=True, kw_only=True):
    """A commit in the chain of a branch."""

    commit: str
    parent: str
    depth: int
    time_us: int
    key: str
    changes: Values


class ChainLog(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the ref log."""

    position: int
    kind: str
    before: str
    after: str
    landed: tuple[tuple[str, str, int], ...]
    """Per request its idempotency key, its last commit and how many it made."""


class BranchChain(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a lake says about a branch."""

    head: str
    links: tuple[ChainLink, ...]
    log: tuple[ChainLog, ...]


def read_chain(
    kernel: Kernel, branch: str = "main", value: Callable[[AnyContent | None], str | None] = value_of
) -> BranchChain:
    """Read a branch as it is now. ``value`` tells what of a content is compared."""
    reference = kernel.references.get_reference(branch)
    links = []
    for data, commit in kernel.walk_commits(reference.head):
        changes = {
            str(Key.decode(stored)): value(read_content(kernel.objects, after))
            for stored, (_, after) in kernel.diff_commits(commit.parent, data).items()
            if not stored.startswith(RESERVED)
        }
        links.append(_decode_link(data, commit, changes))
    log = [_decode_log_entry(entry) for _, entry in kernel.references.walk_log(branch)]
    return BranchChain(head=reference.id, links=tuple(links[::-1]), log=tuple(log[::-1]))


def read_commits(kernel: Kernel, branch: str = "main") -> list[ChainLink]:
    """The commits of a branch that can be read, without their changes: those after a damage, if any."""
    links: list[ChainLink] = []
    with suppress(PenstockError):
        for data, commit in kernel.walk_commits(kernel.references.get_reference(branch).head):
            kernel.read_state(data)
            links.append(_decode_link(data, commit, {}))
    return links[::-1]


def _decode_link(data: ObjectId, commit: CommitObject, changes: Values) -> ChainLink:
    return ChainLink(
        commit=data.hex(),
        parent=commit.parent.hex(),
        depth=commit.depth,
        time_us=commit.time_us,
        key=commit.key,
        changes=changes,
    )


def _decode_log_entry(entry: LogEntry) -> ChainLog:
    return ChainLog(
        position=entry.position,
        kind=entry.kind,
        before=entry.before.hex(),
        after=entry.after.hex(),
        landed=tuple((landed.key, landed.commit.hex(), landed.count) for landed in entry.landed),
    )
