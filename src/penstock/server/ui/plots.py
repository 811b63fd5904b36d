"""Plots as SVG: bars with their figures as text, for who cannot see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.lake.answers import DayCount, SizeCount, VersionSize
from penstock.server.ui.elements import Html, make_element
from penstock.server.ui.links import shorten_revision

HEIGHT_PX: Final = 48
BAR_PX: Final = 9
GAP_PX: Final = 2


def plot_days(days: Sequence[DayCount]) -> Html | None:
    """How many commits were made on each of the last days."""
    if len(days) < 2:
        return None
    bars = [(count.day, count.commits) for count in days]
    return _plot_bars(bars, f"Commits a day, {days[0].day} to {days[-1].day}")


def plot_sizes(sizes: Sequence[SizeCount], show_size: Callable[[float | None], str]) -> Html | None:
    """How many files are of each size, as horizontal bars with their names."""
    limits = [size.below_bytes for size in sizes if size.below_bytes is not None]
    rest = f"{show_size(limits[-1])} or more" if limits else "all"
    bars = [
        (rest if size.below_bytes is None else f"under {show_size(size.below_bytes)}", size.files)
        for size in sizes
    ]
    most = max((count for _, count in bars), default=0)
    if not most:
        return None
    rows = [
        make_element(
            "tr",
            make_element("th", name, scope="row"),
            make_element("td", make_element("meter", value=count, max=most, title=f"{count:,}")),
            make_element("td", f"{count:,}", class_="number"),
        )
        for name, count in bars
    ]
    return make_element(
        "table", make_element("caption", "Files by size"), make_element("tbody", rows), class_="sizes"
    )


def show_meter(value: float, most: float, text: str) -> Html:
    """A share as a bar, with its figure as text."""
    return make_element(
        "span",
        make_element("meter", value=f"{value:g}", max=f"{most or 1:g}", title=text, aria_label=text),
        " ",
        text,
        class_="share",
    )


def plot_growth(growth: Sequence[VersionSize], show_size: Callable[[float | None], str]) -> Html | None:
    """How many bytes each of the last versions has, or each commit of a table of files, the oldest first."""
    if len(growth) < 2:
        return None
    sizes = [
        (shorten_revision(size.commit) if size.version is None else f"v{size.version}", size.size_bytes)
        for size in growth
    ]
    (first, first_bytes), (last, last_bytes) = sizes[0], sizes[-1]
    title = f"Size, {first}: {show_size(first_bytes)} to {last}: {show_size(last_bytes)}"
    return _plot_bars(sizes, title, show_size)


def _plot_bars(
    bars: Sequence[tuple[str, int]],
    title: str,
    show_value: Callable[[int], str] = lambda count: f"{count:,}",
) -> Html:
    most = max(count for _, count in bars) or 1
    width = len(bars) * (BAR_PX + GAP_PX)
    shapes = []
    for n, (name, count) in enumerate(bars):
        height = max(1, round(HEIGHT_PX * count / most)) if count else 0
        shapes.append(
            make_element(
                "rect",
                make_element("title", f"{name}: {show_value(count)}"),
                x=n * (BAR_PX + GAP_PX),
                y=HEIGHT_PX - height,
                width=BAR_PX,
                height=height,
                class_="bar",
            )
        )
    picture = make_element(
        "svg", shapes, width=width, height=HEIGHT_PX, role="img", aria_label=title, class_="plot"
    )
    return make_element("figure", picture, make_element("figcaption", title))
