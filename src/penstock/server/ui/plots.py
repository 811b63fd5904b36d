"""Plots as SVG: bars with their figures as text, for who cannot see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from penstock.server.ui.elements import Html, element

DAYS_MAX: Final = 60
HEIGHT_PX: Final = 48
BAR_PX: Final = 9
GAP_PX: Final = 2


def plot_days(times: Sequence[datetime], *, is_cut: bool) -> Html | None:
    """How many things happened on each of the last days. The first day of a list that is cut is left out."""
    counts = Counter(time.date() for time in times)
    if is_cut and len(counts) > 1:
        del counts[min(counts)]
    if len(counts) < 2:
        return None
    last = max(counts)
    first = max(min(counts), last - timedelta(days=DAYS_MAX - 1))
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    bars = [(f"{day:%Y-%m-%d}", counts[day]) for day in days]
    return _plot(bars, f"Commits a day, {first:%Y-%m-%d} to {last:%Y-%m-%d}")


def plot_sizes(bars: Sequence[tuple[str, int]]) -> Html | None:
    """How many files are of each size, as horizontal bars with their names."""
    most = max((count for _, count in bars), default=0)
    if not most:
        return None
    rows = [
        element(
            "tr",
            element("th", name, scope="row"),
            element("td", element("meter", value=count, max=most, title=f"{count:,}")),
            element("td", f"{count:,}", class_="number"),
        )
        for name, count in bars
    ]
    return element("table", element("caption", "Files by size"), element("tbody", rows), class_="sizes")


def show_meter(value: float, most: float, text: str) -> Html:
    """A share as a bar, with its figure as text."""
    return element(
        "span",
        element("meter", value=f"{value:g}", max=f"{most or 1:g}", title=text, aria_label=text),
        " ",
        text,
        class_="share",
    )


def plot_growth(sizes: Sequence[tuple[str, int]], show_size: Callable[[float | None], str]) -> Html | None:
    """How many bytes each of the last versions has, the oldest first."""
    if len(sizes) < 2:
        return None
    (first, first_bytes), (last, last_bytes) = sizes[0], sizes[-1]
    title = f"Size, {first}: {show_size(first_bytes)} to {last}: {show_size(last_bytes)}"
    return _plot(sizes, title, show_size)


def _plot(
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
            element(
                "rect",
                element("title", f"{name}: {show_value(count)}"),
                x=n * (BAR_PX + GAP_PX),
                y=HEIGHT_PX - height,
                width=BAR_PX,
                height=height,
                class_="bar",
            )
        )
    picture = element(
        "svg", shapes, width=width, height=HEIGHT_PX, role="img", aria_label=title, class_="plot"
    )
    return element("figure", picture, element("figcaption", title))
