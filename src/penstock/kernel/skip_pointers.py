"""Skip pointers: any ancestor of a chain in O(log n) steps, for one pointer a link.

Every link knows its parent, its depth and one further ancestor, its *jump*. Where jumps lead follows the
skew-binary numbers (Myers, 1983): two jumps of equal length are followed by one of twice the length. The
chains of commits (by first parents) and of ref log entries are both built so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from penstock.model.encoding import ObjectId


class ChainLink(Protocol):
    """A link of a chain."""

    @property
    def depth(self) -> int: ...
    @property
    def parent(self) -> ObjectId: ...
    @property
    def jump(self) -> ObjectId: ...


L = TypeVar("L", bound=ChainLink)
Reader: TypeAlias = Callable[[ObjectId], L | None]
"""Reads a link; ``None`` if it has expired."""


def find_next_jump(read: Reader[L], tip: ObjectId) -> ObjectId:
    """The jump of a new link on top of ``tip``."""
    last = read(tip)
    jump = read(last.jump) if last else None
    far = read(jump.jump) if jump else None
    if last and jump and far and last.depth - jump.depth == jump.depth - far.depth:
        return jump.jump
    return tip


def walk_back_to(read: Reader[L], tip: ObjectId, is_done: Callable[[L], bool]) -> tuple[ObjectId, L | None]:
    """The first link from ``tip`` backwards for which ``is_done`` holds, or ``None`` where the chain expired.

    ``is_done`` must hold for all ancestors of a link for which it holds. The chain's beginning ends the walk.
    """
    link = read(tip)
    while link is not None and not is_done(link) and link.depth > 0:
        jump = read(link.jump)
        if jump is not None and not is_done(jump):
            tip, link = link.jump, jump
        else:
            tip = link.parent
            link = read(tip)
    return tip, link


def walk_back_to_depth(read: Reader[L], tip: ObjectId, depth: int) -> tuple[ObjectId, L | None]:
    """The ancestor at a depth."""
    return walk_back_to(read, tip, lambda link: link.depth <= depth)


def find_common_link(read: Reader[L], left: ObjectId, right: ObjectId) -> tuple[ObjectId, L | None]:
    """The deepest link that both chains have."""
    left_link, other = read(left), read(right)
    if left_link and other:
        left, left_link = walk_back_to_depth(read, left, other.depth)
        right, other = walk_back_to_depth(read, right, left_link.depth if left_link else 0)
    while left_link is not None and other is not None and left != right:
        a, b = read(left_link.jump), read(other.jump)
        if a is not None and b is not None and left_link.jump != other.jump and a.depth == b.depth:
            left, left_link, right, other = left_link.jump, a, other.jump, b
        else:
            left, right = left_link.parent, other.parent
            left_link, other = read(left), read(right)
    return left, left_link if left_link is not None and other is not None else None
