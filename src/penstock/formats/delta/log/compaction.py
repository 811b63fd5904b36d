"""Compactions: the net actions of several commits in a row, in one file that readers take in their place."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog, LogGap, MalformedAction
from penstock.formats.delta.protocol.actions import commit_lines, parse_action, reconciliation_key
from penstock.formats.delta.protocol.names import CommitName, CompactionName
from penstock.storage.places import Place


def compact_commits(place: Place, first_version: int, last_version: int) -> str | None:
    """Compact published commits, from one version to another; the name of the file, ``None`` if it exists.

    ``LogGap`` if one of them is not published (any more): a compaction must not show what the log does not.
    """
    if not 0 <= first_version < last_version:
        raise InvalidRequest(
            f"versions {first_version} to {last_version} cannot be compacted: give at least two versions"
        )
    name = str(CompactionName(first_version, last_version))
    if place.size(name) is not None:
        return None
    data = b"".join(_list_lines_in_force(place, first_version, last_version))
    return name if place.create(name, data) else None


def _list_lines_in_force(place: Place, first_version: int, last_version: int) -> Iterator[bytes]:
    """The lines that still count after the last commit, oldest first. Lines stay the bytes that they are.

    Removed files and removed domains stay too: they may be about what lies before the first commit.
    """
    seen: set[tuple[str, str, str | None]] = set()
    lines: list[bytes] = []
    versions = range(last_version, first_version - 1, -1)
    names = [str(CommitName(version)) for version in versions]
    for version, name, data in zip(versions, names, place.read(names), strict=True):
        if data is None:
            raise LogGap(
                f"{place.url} cannot be compacted from {first_version} to {last_version}: {name} is not "
                "in its log\n  Only "
                "published versions can be compacted; the owner of the table publishes the versions that "
                "it has ratified.",
                table=place.url,
                version=version,
            )
        for number, raw in reversed([*commit_lines(data)]):
            try:
                action = parse_action(raw, number)
            except MalformedAction as problem:
                raise InvalidLog(
                    f"{name} of the table {place.url} cannot be read: {problem}",
                    table=place.url,
                    file=name,
                    version=version,
                ) from None
            key = None if action is None else reconciliation_key(action)
            if key is not None and key not in seen:
                seen.add(key)
                lines.append(raw + b"\n")
    return reversed(lines)
