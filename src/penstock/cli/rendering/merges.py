"""What a merge, transplant, rebase, revert or restore did or would do, and what stands in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from penstock.cli.rendering.contents import (
    describe_version,
    difference_sign,
    format_change_row,
    summarize_content,
)
from penstock.cli.rendering.history import first_message_line, shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import StyledText, align_columns
from penstock.cli.rendering.times import format_age, format_count
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
    refusal: str = "cannot be merged"
    """What the line of a key says whose format refuses it."""


def format_merge_page(
    screen: Screen,
    heading: str,
    sides: MergeSides,
    result: MergeResult,
    commits: int | None = None,
    suggest_resolutions: Sequence[str] = (),
) -> Iterator[str]:
    """The whole of a result: a heading, a line per key, each conflict with both sides, the ways out."""
    counts = [format_count(commits, "commit")] if commits is not None else []
    counts += _format_key_counts(result.keys)
    yield screen.replace_unsupported(
        f"{screen.style(escape_controls(heading), 'strong')}   {', '.join(counts)}"
    )
    rows = [_format_key_row(sides, key) for key in result.keys]
    is_only = sum(bool(key.conflicts) for key in result.keys) == 1
    for merged_key, line in zip(
        result.keys, align_columns(screen, rows, indent="  ", flexible=1), strict=True
    ):
        yield line
        if merged_key.conflicts:
            yield from _format_conflicts(screen, sides, merged_key)
            yield from _describe_both_sides(screen, sides, merged_key.key)
            if is_only:
                yield from (f"{INDENT}{way}" for way in suggest_resolutions)
    if not is_only:
        yield from suggest_resolutions


def _format_key_counts(keys: Sequence[MergedKey]) -> list[str]:
    namespaces = sum(_is_namespace(key) for key in keys)
    counts = ((len(keys) - namespaces, "table"), (namespaces, "namespace"))
    return [format_count(count, thing) for count, thing in counts if count]


def _is_namespace(merged_key: MergedKey) -> bool:
    content = merged_key.after if merged_key.after is not None else merged_key.before
    if content is None:
        return any(conflict.kind in NEEDED_AS_NAMESPACE for conflict in merged_key.conflicts)
    return content.type == "NAMESPACE"


def _format_key_row(sides: MergeSides, merged_key: MergedKey) -> list[StyledText | str]:
    if merged_key.conflict is not None:
        is_at, why = describe_version(merged_key.before), _shorten_conflict(sides, merged_key.conflict)
        met = [is_at, why] if is_at else [why, ""]
        return [
            StyledText(f"~ {escape_controls(str(merged_key.key))}", "changed"),
            *met,
            StyledText("conflict", "bad"),
        ]
    text = _SETTLED[merged_key.mode].format(source=sides.source, target=sides.target)
    if sides.outcome is not None:
        text = sides.outcome(merged_key)
    if difference_sign(merged_key.before, merged_key.after) == "=":
        kept_summary = summarize_content(merged_key.after) if merged_key.after is not None else "nothing"
        return [
            StyledText(f"= {escape_controls(str(merged_key.key))}", "dim"),
            kept_summary,
            "",
            StyledText(text, "good"),
        ]
    return [*format_change_row(merged_key), sides.brings(merged_key), StyledText(text, "good")]


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
    ConflictKind.CONTENT_ID_DIFFERS: "dropped and created again in {target}, changed in {source}",
    ConflictKind.PAYLOAD_DIFFERS: "of another type in {target}",
    ConflictKind.NAMESPACE_ABSENT: "needed as a namespace, but gone from {target}",
    ConflictKind.NOT_A_NAMESPACE: "needed as a namespace, but something else in {target}",
    ConflictKind.NAMESPACE_NOT_EMPTY: "a namespace that is not empty in {target}",
}


_BOTH: Final = "was changed on both sides"
"""How the reason of a format begins that has met two changes of one table."""
_ONLY_TAKEN: Final = "Iceberg tables and views are not merged by the lake: take one side, or write it again."


def _shorten_conflict(sides: MergeSides, conflict: Conflict) -> str:
    """A conflict in the line of its key; what a format says of it is told below."""
    if conflict.kind is ConflictKind.FORMAT:
        return _WHY[ConflictKind.VALUE_DIFFERS] if conflict.why.startswith(_BOTH) else sides.refusal
    return _insert_side_names(sides, _WHY.get(conflict.kind, conflict.reason))


def _format_conflicts(screen: Screen, sides: MergeSides, merged_key: MergedKey) -> Iterator[str]:
    """What is in the way, each on a line of its own, except for what the line of the key says already."""
    texts = [
        text
        for number, each in enumerate(merged_key.conflicts)
        if (text := _format_conflict(sides, each, number))
    ]
    for text in texts[:CONFLICTS_MAX]:
        yield from _wrap_text(screen, text)
    if len(texts) > CONFLICTS_MAX:
        yield f"{INDENT}and {len(texts) - CONFLICTS_MAX} more; --json shows all"


def _format_conflict(sides: MergeSides, conflict: Conflict, number: int) -> str:
    if conflict.kind is not ConflictKind.FORMAT:
        if number > 0:
            return f"and {_shorten_conflict(sides, conflict)}"
        if conflict.why and not conflict.why.startswith(_BOTH):
            return _insert_side_names(sides, f"it {conflict.reason}")
        return _ONLY_TAKEN if conflict.is_pointer else ""
    reason = conflict.reason.removeprefix(_BOTH).lstrip(":, ").removeprefix("and ")
    where = f"at {conflict.path}" if conflict.path else ""
    return _insert_side_names(sides, ": ".join(filter(None, (where, reason))))


def _insert_side_names(sides: MergeSides, text: str) -> str:
    """A text with the sides as the person calls them."""
    named = text.replace("{target}", sides.target).replace("{source}", sides.source)
    return escape_controls(named.replace("the other side", sides.source).replace("this branch", sides.target))


def _wrap_text(screen: Screen, text: str) -> Iterator[str]:
    """A text of any length below a key: on one line, or on as many as the screen needs."""
    width = None if screen.width is None else max(screen.width - len(INDENT), 40)
    lines = [text] if width is None else wrap(text, width, break_long_words=False, break_on_hyphens=False)
    yield from (screen.replace_unsupported(f"{INDENT}{line}") for line in lines)


def _describe_both_sides(screen: Screen, sides: MergeSides, key: Key) -> Iterator[str]:
    """What each side did: the commit, what it says of itself, what it did to the table, who and when."""
    theirs = sides.changes(sides.source, key)
    ids = {
        side_commit.commit.id for side_commit in theirs
    }  # a commit that is undone is one of the target's as well
    ours = [change for change in sides.changes(sides.target, key) if change.commit.id not in ids]
    rows: list[list[StyledText | str]] = [
        [
            side,
            StyledText(shorten_id(commit.id), "id"),
            first_message_line(commit),
            escape_controls(deed),
            StyledText(escape_controls(commit.author), "dim"),
            StyledText(format_age(commit.time, screen.now), "dim"),
        ]
        for side, side_commits in ((sides.target, ours), (sides.source, theirs))
        for commit, deed in side_commits
    ]
    yield from align_columns(screen, rows, indent=INDENT, flexible=2)
