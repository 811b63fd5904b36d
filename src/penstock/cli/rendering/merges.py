"""What a merge, transplant, rebase, revert or restore did or would do, and what stands in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from penstock.cli.rendering.columns import Cell, columns
from penstock.cli.rendering.contents import change_row, sign, summary, version
from penstock.cli.rendering.history import short, title
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.times import ago, counted
from penstock.model.commits import Commit
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.model.merges import MergedKey, MergeMode, MergeResult

CONFLICTS_MAX: Final = 10
"""How many conflicts of one key are shown to people."""
INDENT: Final = " " * 6


class SideCommit(NamedTuple):
    """A commit of one side that changed a key, and what it did to it, where that is known."""

    commit: Commit
    deed: str = ""


class MergeSides(NamedTuple):
    """The two sides as the person named them, and what is known of what they did."""

    source: str
    target: str
    changes: Callable[[str, Key], Sequence[SideCommit]]
    """By one side since they parted, newest first."""
    brings: Callable[[MergedKey], str]
    """What comes to a key that is clean."""
    outcome: Callable[[MergedKey], str] | None = None
    """What becomes of such a key, in a word; how it was merged, if nothing is given."""


def merge_page(
    screen: Screen,
    heading: str,
    sides: MergeSides,
    result: MergeResult,
    commits: int | None = None,
    ways_out: Sequence[str] = (),
) -> Iterator[str]:
    """The whole of a result: a heading, a line per key, each conflict with both sides, the ways out."""
    counts = [counted(commits, "commit")] if commits is not None else []
    counts += _counted_keys(result.keys)
    yield screen.spell(f"{screen.paint(printable(heading), 'strong')}   {', '.join(counts)}")
    rows = [_key_row(sides, one) for one in result.keys]
    is_only = sum(bool(one.conflicts) for one in result.keys) == 1
    for one, line in zip(result.keys, columns(screen, rows, indent="  ", flexible=1), strict=True):
        yield line
        if one.conflicts:
            yield from _clashes(screen, sides, one)
            yield from _both_sides(screen, sides, one.key)
            if is_only:
                yield from (f"{INDENT}{way}" for way in ways_out)
    if not is_only:
        yield from ways_out


def _counted_keys(keys: Sequence[MergedKey]) -> list[str]:
    namespaces = sum(_is_namespace(one) for one in keys)
    counts = ((len(keys) - namespaces, "table"), (namespaces, "namespace"))
    return [counted(count, thing) for count, thing in counts if count]


def _is_namespace(one: MergedKey) -> bool:
    content = one.after if one.after is not None else one.before
    if content is None:
        return any(conflict.kind in NEEDED_AS_NAMESPACE for conflict in one.conflicts)
    return content.type == "NAMESPACE"


def _key_row(sides: MergeSides, one: MergedKey) -> list[Cell | str]:
    if one.conflict is not None:
        is_at, why = version(one.before), _in_short(sides, one.conflict)
        met = [is_at, why] if is_at else [why, ""]
        return [Cell(f"~ {printable(str(one.key))}", "changed"), *met, Cell("conflict", "bad")]
    said = _SETTLED[one.mode].format(source=sides.source, target=sides.target)
    if sides.outcome is not None:
        said = sides.outcome(one)
    if sign(one.before, one.after) == "=":
        kept = summary(one.after) if one.after is not None else "nothing"
        return [Cell(f"= {printable(str(one.key))}", "dim"), kept, "", Cell(said, "good")]
    return [*change_row(one), sides.brings(one), Cell(said, "good")]


_SETTLED = {
    MergeMode.NORMAL: "clean",
    MergeMode.FORCE: "taken from {source}",
    MergeMode.DROP: "left as in {target}",
}
NEEDED_AS_NAMESPACE = (ConflictKind.NAMESPACE_ABSENT, ConflictKind.NOT_A_NAMESPACE)
_WHY: Mapping[ConflictKind, str] = {
    ConflictKind.KEY_EXISTS: "both sides created it",
    ConflictKind.KEY_DOES_NOT_EXIST: "gone from {target}, changed in {source}",
    ConflictKind.VALUE_DIFFERS: "both sides changed it",
    ConflictKind.CONTENT_ID_DIFFERS: "dropped and created anew in {target}, changed in {source}",
    ConflictKind.PAYLOAD_DIFFERS: "of another type in {target}",
    ConflictKind.NAMESPACE_ABSENT: "needed as a namespace, but gone from {target}",
    ConflictKind.NOT_A_NAMESPACE: "needed as a namespace, but something else in {target}",
    ConflictKind.NAMESPACE_NOT_EMPTY: "a namespace that is not empty in {target}",
}


_BOTH: Final = "was changed on both sides"
"""How the reason of a format begins that has met two changes of one table."""
_ONLY_TAKEN: Final = "Iceberg tables and views are not merged by the lake: take one side, or write it again."


def _in_short(sides: MergeSides, conflict: Conflict) -> str:
    """A conflict in the line of its key; what a format says of it is told below."""
    if conflict.kind is ConflictKind.FORMAT:
        return _WHY[ConflictKind.VALUE_DIFFERS] if conflict.why.startswith(_BOTH) else "cannot be merged"
    return _named(sides, _WHY.get(conflict.kind, conflict.reason))


def _clashes(screen: Screen, sides: MergeSides, one: MergedKey) -> Iterator[str]:
    """What is in the way, each on a line of its own, except for what the line of the key says already."""
    told = [text for number, each in enumerate(one.conflicts) if (text := _clash(sides, each, number))]
    for text in told[:CONFLICTS_MAX]:
        yield from _wrapped(screen, text)
    if len(told) > CONFLICTS_MAX:
        yield f"{INDENT}and {len(told) - CONFLICTS_MAX} more; --json tells them all"


def _clash(sides: MergeSides, conflict: Conflict, number: int) -> str:
    if conflict.kind is not ConflictKind.FORMAT:
        if number > 0:
            return f"and {_in_short(sides, conflict)}"
        if conflict.why and not conflict.why.startswith(_BOTH):
            return _named(sides, f"it {conflict.reason}")
        return _ONLY_TAKEN if conflict.is_pointer else ""
    reason = conflict.reason.removeprefix(_BOTH).lstrip(":, ").removeprefix("and ")
    where = f"at {conflict.path}" if conflict.path else ""
    return _named(sides, ": ".join(filter(None, (where, reason))))


def _named(sides: MergeSides, text: str) -> str:
    """A text with the sides as the person calls them."""
    named = text.replace("{target}", sides.target).replace("{source}", sides.source)
    return printable(named.replace("the other side", sides.source).replace("this branch", sides.target))


def _wrapped(screen: Screen, text: str) -> Iterator[str]:
    """A text of any length below a key: on one line, or on as many as the screen needs."""
    width = None if screen.width is None else max(screen.width - len(INDENT), 40)
    lines = [text] if width is None else wrap(text, width, break_long_words=False, break_on_hyphens=False)
    yield from (screen.spell(f"{INDENT}{line}") for line in lines)


def _both_sides(screen: Screen, sides: MergeSides, key: Key) -> Iterator[str]:
    """What each side did: the commit, what it says of itself, what it did to the table, who and when."""
    theirs = sides.changes(sides.source, key)
    known = {one.commit.id for one in theirs}  # a commit that is undone is one of the target's as well
    ours = [one for one in sides.changes(sides.target, key) if one.commit.id not in known]
    rows: list[list[Cell | str]] = [
        [
            side,
            Cell(short(commit.id), "id"),
            title(commit),
            printable(deed),
            Cell(printable(commit.author), "dim"),
            Cell(ago(commit.time, screen.now), "dim"),
        ]
        for side, done in ((sides.target, ours), (sides.source, theirs))
        for commit, deed in done
    ]
    yield from columns(screen, rows, indent=INDENT, flexible=2)
