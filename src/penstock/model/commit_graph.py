"""The commit graph: lines that lead from each commit to its parents.

Every line of descent runs down in a lane. A commit sits in the leftmost lane that leads to it; the other
lanes that lead to it end there (``╯``), and its further parents get lanes of their own (``╮``) or join one
that leads there already (``┤``, ``├``)::

    ●─╮  a merge
    │ ●  what was merged
    ●─╯  where it forked
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_ENDS = {
    # (comes from above, goes on below): the glyph right of the node, left of it, and in between
    (True, False): ("╯", "╰", "┴"),
    (False, True): ("╮", "╭", "┬"),
    (True, True): ("┤", "├", "┼"),
}


class GraphRow(NamedTuple):
    """One commit's part of the graph: the line with its node, and what runs on below that line."""

    node: str
    below: str


def draw_commit_graph(commits: Iterable[tuple[str, Sequence[str]]]) -> Iterator[GraphRow]:
    """The graph of commits with their parents, each commit before its parents.

    A parent that does not follow (it is on the next page, or has expired) leaves its lane open to the end.
    """
    lanes: list[str | None] = []
    freed: set[int] = set()
    for commit, parents in commits:
        mine = [lane for lane, waits_for in enumerate(lanes) if waits_for == commit]
        node = mine[0] if mine else _find_free_lane(lanes, freed)
        before = lanes.copy()
        for lane in mine:
            lanes[lane] = None
        lanes += [None] * (node + 1 - len(lanes))
        lanes[node] = parents[0] if parents else None
        touched = set(mine[1:])
        for parent in dict.fromkeys(parents[1:]):
            if parent == lanes[node]:
                continue
            if parent not in lanes:
                lane = _find_free_lane(lanes, set(), node + 1)
                lanes[lane : lane + 1] = [parent]
            touched.add(lanes.index(parent))
        freed = {lane for lane in {*mine, node} if lanes[lane] is None}
        yield GraphRow(_draw_node_line(node, touched, before, lanes), _draw_line_below(lanes))
        while lanes and lanes[-1] is None:
            lanes.pop()


def _find_free_lane(lanes: Sequence[str | None], avoid: set[int], start: int = 0) -> int:
    """The first lane that leads nowhere. One that ended just above would look as if it went on here."""
    for lane in range(start, len(lanes)):
        if lanes[lane] is None and lane not in avoid:
            return lane
    return max([len(lanes), start, *(lane + 1 for lane in avoid)])


def _draw_node_line(
    node: int, touched: set[int], before: Sequence[str | None], after: Sequence[str | None]
) -> str:
    first, last = min(touched | {node}), max(touched | {node})
    width = max(len(before), len(after), node + 1)
    line = ""
    for lane in range(width):
        above = lane < len(before) and before[lane] is not None
        below = lane < len(after) and after[lane] is not None
        if lane == node:
            glyph = "●"
        elif lane in touched:
            right, left, between = _ENDS[above, below]
            glyph = right if lane == last else left if lane == first else between
        elif above:
            glyph = "│"
        else:
            glyph = "─" if first < lane < last else " "
        line += glyph + ("─" if first <= lane < last else " ")
    return line.rstrip()


def _draw_line_below(lanes: Sequence[str | None]) -> str:
    return " ".join("│" if waits_for is not None else " " for waits_for in lanes).rstrip()
