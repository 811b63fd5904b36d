"""What a merge, transplant, rebase or revert did or would do, and what stands in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.cli.rendering.columns import Cell, columns
from penstock.cli.rendering.contents import change_row, sign, summary
from penstock.cli.rendering.history import short, title
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.times import ago, counted
from penstock.model.commits import Commit
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.model.merges import MergedKey, MergeMode, MergeResult

CONFLICTS_MAX: Final = 10
"""How many conflicts of one key are shown to people."""


class Sides(NamedTuple):
    """The two sides as the person named them, and who changed a key last on each of them."""

    source: str
    target: str
    last_change: Callable[[str, Key], Commit | None]


def merge_page(
    screen: Screen,
    heading: str,
    sides: Sides,
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
            yield from (f"      and {_why(sides, other)}" for other in one.conflicts[1:CONFLICTS_MAX])
            if len(one.conflicts) > CONFLICTS_MAX:
                yield f"      and {len(one.conflicts) - CONFLICTS_MAX} more; --json tells them all"
            yield from _both_sides(screen, sides, one.key)
            if is_only:
                yield from (f"      {way}" for way in ways_out)
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


def _key_row(sides: Sides, one: MergedKey) -> list[Cell | str]:
    if one.conflict is not None:
        return [
            Cell(f"~ {printable(str(one.key))}", "changed"),
            _why(sides, one.conflict),
            Cell("conflict", "bad"),
        ]
    said = _SETTLED[one.mode].format(source=sides.source, target=sides.target)
    if sign(one.before, one.after) == "=":
        kept = summary(one.after) if one.after is not None else "nothing"
        return [Cell(f"= {printable(str(one.key))}", "dim"), kept, Cell(said, "good")]
    return [*change_row(one), Cell(said, "good")]


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


def _why(sides: Sides, conflict: Conflict) -> str:
    known = conflict.why or _WHY.get(conflict.kind, str(conflict))
    if conflict.path:
        known += f" at {conflict.path}"
    return printable(known.replace("{target}", sides.target).replace("{source}", sides.source))


def _both_sides(screen: Screen, sides: Sides, key: Key) -> Iterator[str]:
    rows: list[list[Cell | str]] = []
    for side in (sides.target, sides.source):
        commit = sides.last_change(side, key)
        if commit is not None:
            rows.append(
                [
                    side,
                    Cell(short(commit.id), "id"),
                    title(commit),
                    Cell(printable(commit.author), "dim"),
                    Cell(ago(commit.time, screen.now), "dim"),
                ]
            )
    yield from columns(screen, rows, indent="      ", flexible=2)
