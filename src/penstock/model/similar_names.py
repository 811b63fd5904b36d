"""The name that was probably meant by one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LISTED_MAX: Final = 20
"""How many names a message lists: of a table with thousands of columns not all are shown."""
CUTOFF: Final = 0.65
"""How alike two names must be, as ``difflib`` measures it: 'amout' and 'amount', not 'day' and 'date'."""


def find_closest_name(name: str, names: Iterable[str]) -> str | None:
    """The name among ``names`` that is most like ``name``; ``None`` if none is like it.

    A name that differs in case alone is always found.
    """
    from difflib import get_close_matches

    by_folded = {candidate.casefold(): candidate for candidate in names}
    matches = get_close_matches(name.casefold(), by_folded, n=1, cutoff=CUTOFF)
    return by_folded[matches[0]] if matches else None


def describe_names(name: str, names: Iterable[str], *, above: str = "") -> str:
    """The end of a sentence that says that ``name`` is not among ``names``: which was meant, which exist.

    ``above`` is what all of them are part of, and written in front of each.
    """
    all_names = list(names)
    suggestion = find_closest_name(name, all_names)
    listed = ", ".join(above + name for name in all_names[:LISTED_MAX]) or "none"
    if len(all_names) > LISTED_MAX:
        listed += f" and {len(all_names) - LISTED_MAX} more"
    return (
        f"; there are {listed}"
        if suggestion is None
        else f"; did you mean '{above}{suggestion}'? There are {listed}"
    )
