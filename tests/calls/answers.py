"""Comparing answers of two lakes that were told the same: without ids, times and what chance has made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.lake.answers import TableCommitResult
from penstock.lake.lake import Lake

ID: Final = re.compile(
    "[0-9]+~[0-9]+(?:~[0-9a-f]{16}){2}|[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]{20}(?=[.]manifest-)"
)
"""Keys that the lake makes; ids of objects, commits, jobs and tables; numbers of staged manifests."""
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
LATE: Final = 10**12
"""A number from here on is a time in milliseconds or less."""
PASSING: Final = frozenset({"repeated", "idle_s", "left_s", "oldest_s", "size"})
"""Fields that say whether it was a repetition, when, or how large something is with all times in it."""


def plain(value: Any, commits: Mapping[str, str]) -> Any:
    """An answer as it is on every lake that was told the same, with names instead of the ids of commits."""
    if isinstance(
        value, TableCommitResult
    ):  # a version has no file yet, or a staged one, or it is published by now
        tables = tuple(msgspec.structs.replace(one, name="") for one in value.tables)
        value = msgspec.structs.replace(value, tables=tables)
    return _plain(msgspec.to_builtins(value, enc_hook=str, str_keys=True, builtin_types=(bytes,)), commits)


def _plain(value: Any, commits: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each, commits) for name, each in value.items() if name not in PASSING}
    if isinstance(value, list | tuple):
        return [_plain(each, commits) for each in value]
    if isinstance(value, bytes):
        return commits.get(value.hex(), "<bytes>")
    if isinstance(value, str):
        return TIME.sub("<time>", ID.sub(lambda found: commits.get(found[0], "<id>"), value))
    if isinstance(value, int | float) and value >= LATE:
        return "<time>"
    return value


def commit_names(lake: Lake) -> dict[str, str]:
    """A name for every commit of a lake: the first branch that has it, and how far back it is there."""
    names: dict[str, str] = {}
    for reference in lake.references():
        for number, commit in enumerate(lake.log(reference.name, all_parents=True)):
            names.setdefault(commit.id, f"{reference.name}~{number}")
    return names


def differences(whole: Any, given: Any, where: str = "") -> list[str]:
    """Where an answer says something else than the one of a lake where nothing went wrong.

    An answer that was asked for again may leave out what only the first one could tell.
    """
    if given is None or given in ("", [], {}):
        return []
    if isinstance(given, dict) and given.get("outcome") == "present":
        return []  # one of many tables that the first try has adopted, as it is by now
    if isinstance(whole, dict) and isinstance(given, dict):
        pairs = {name: (whole.get(name), given.get(name)) for name in {**whole, **given}}
    elif isinstance(whole, list) and isinstance(given, list) and len(whole) == len(given):
        pairs = {str(number): both for number, both in enumerate(zip(whole, given, strict=True))}
    else:
        return [] if whole == given else [f"{where or 'all'}: {given!r} instead of {whole!r}"]
    found = (differences(*both, where=f"{where}.{name}".lstrip(".")) for name, both in pairs.items())
    return [one for each in found for one in each]
