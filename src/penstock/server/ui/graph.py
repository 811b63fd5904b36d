"""The commit graph as SVG: one picture for each commit, which stretches with its line of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.model.commit_graph import draw_commit_graph
from penstock.server.ui.elements import Html, join_html, make_element

LANE_PX: Final = 16
NODE_PX: Final = 19
"""How far below its upper end the dot of a line is."""
BEND_PX: Final = 8
LANES_MAX: Final = 20
COLOURS: Final = 6

_SIDES: Final = {
    "│": "ud",
    "─": "lr",
    "╯": "ul",
    "╰": "ur",
    "╮": "dl",
    "╭": "dr",
    "┤": "udl",
    "├": "udr",
    "┴": "ulr",
    "┬": "dlr",
    "┼": "udlr",
}
"""To which sides a line leads from the middle of a cell: up, down, left, right."""


def draw_graph(commits: Iterable[tuple[str, Sequence[str]]], *, is_connected: bool = True) -> list[Html]:
    """A picture for each of the commits, which come with their parents. Those that a filter chose here and
    there are not connected."""
    listed = list(commits)
    if not is_connected:
        return [_draw_picture(1, [_draw_node(0)]) for _ in listed]
    rows = list(draw_commit_graph(listed))
    lanes = min(LANES_MAX, max((len(row.node) // 2 + 1 for row in rows), default=1))
    pictures, above = [], ""
    for row in rows:
        pictures.append(_draw_picture(lanes, _draw_commit(row.node, above, row.below)))
        above = row.below
    return pictures


def _draw_picture(lanes: int, shapes: Iterable[Html]) -> Html:
    """A picture as high as its line of the log, and one below it that keeps its place free."""
    width = lanes * LANE_PX
    return join_html(
        make_element("svg", width=width, height=1, aria_hidden="true"),
        make_element("svg", list(shapes), class_="graph", width=width, aria_hidden="true"),
    )


def _draw_commit(line: str, above: str, below: str) -> Iterator[Html]:
    """The lines and the dot of one commit."""
    nodes = []
    for lane in range(min(LANES_MAX, len(line) // 2 + 1)):
        glyph = line[2 * lane : 2 * lane + 1]
        if glyph == "●":
            sides = ("u" if _has_lane(above, lane) else "") + ("d" if _has_lane(below, lane) else "")
            nodes.append(_draw_node(lane))
        else:
            sides = _SIDES.get(glyph, "")
        yield from _draw_cell(lane, sides)
        if line[2 * lane + 1 : 2 * lane + 2] == "─":
            yield _draw_across(lane, line)
    yield from nodes


def _has_lane(line: str, lane: int) -> bool:
    return line[2 * lane : 2 * lane + 1] == "│"


def _draw_cell(lane: int, sides: str) -> Iterator[Html]:
    """The lines of one lane that lead up and down: with a bend if they come from the side."""
    x = _find_lane_middle(lane)
    is_straight = sides in ("ud", "u", "d") or ("u" in sides and "d" in sides)
    if is_straight:
        first = "0" if "u" in sides else str(NODE_PX)
        last = "100%" if "d" in sides else str(NODE_PX)
        if first != last:
            yield make_element("line", x1=x, y1=first, x2=x, y2=last, class_=_choose_lane_colour(lane))
        return
    side = -BEND_PX if "l" in sides else BEND_PX
    if "u" in sides:
        path = f"M{x} 0V{NODE_PX - BEND_PX}Q{x} {NODE_PX} {x + side} {NODE_PX}"
        yield make_element("path", d=path, class_=_choose_lane_colour(lane))
    elif "d" in sides:
        path = f"M{x + side} {NODE_PX}Q{x} {NODE_PX} {x} {NODE_PX + BEND_PX}"
        yield make_element("path", d=path, class_=_choose_lane_colour(lane))
        yield make_element(
            "line", x1=x, y1=NODE_PX + BEND_PX, x2=x, y2="100%", class_=_choose_lane_colour(lane)
        )


def _draw_across(lane: int, line: str) -> Html:
    """The line from the middle of a lane to that of the next one, which leaves room for bends."""
    first, last = _find_lane_middle(lane), _find_lane_middle(lane + 1)
    if line[2 * lane] in "╰╭":
        first += BEND_PX
    if line[2 * lane + 2 : 2 * lane + 3] in ("╯", "╮"):
        last -= BEND_PX
    return make_element(
        "line", x1=first, y1=NODE_PX, x2=last, y2=NODE_PX, class_=_choose_lane_colour(lane + 1)
    )


def _draw_node(lane: int) -> Html:
    return make_element(
        "circle", cx=_find_lane_middle(lane), cy=NODE_PX, r=4, class_=f"node {_choose_lane_colour(lane)}"
    )


def _find_lane_middle(lane: int) -> int:
    return lane * LANE_PX + LANE_PX // 2


def _choose_lane_colour(lane: int) -> str:
    return f"lane{lane % COLOURS}"
