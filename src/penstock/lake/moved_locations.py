"""Locations in calls and answers, of a lake whose files were moved.

Calls are the one way into a lake, and answers the one way out. Inside, a table has the location that it was
stored with. Callers give and get the place where its files are now. A call, and a value in an answer, says
which of its fields are locations (``location_fields``). What programs store with foreign tables, such as the
location of metadata, is theirs, and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from penstock.errors import PenstockError
from penstock.model.content import ManagedTable
from penstock.storage.moved_roots import MovedRoots

T = TypeVar("T")


def call_with_lake_locations(call: T, moved: MovedRoots) -> T:
    """A call with the locations by which the lake knows its tables."""
    changed: T = _map_locations(call, moved.map_to_lake)
    return changed


def answer_with_storage_locations(answer: T, moved: MovedRoots) -> T:
    """An answer with the locations where files are."""
    changed: T = _map_locations(answer, moved.map_to_storage)
    return changed


def note_in_error(problem: PenstockError, moved: MovedRoots) -> None:
    """Replace old locations in the message and details of an error by the places where files are."""
    problem.message = _move_text(problem.message, moved)
    problem.args = (problem.message, *problem.args[1:])
    problem.details = {name: _translate_texts(value, moved) for name, value in problem.details.items()}


def list_location_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a call, a content or a value in an answer that are locations, or addresses below one."""
    if issubclass(kind, ManagedTable):
        return ("location",)
    declared: tuple[str, ...] = getattr(kind, "location_fields", ())
    return declared


def _map_locations(value: Any, change: Callable[[str], str]) -> Any:
    """A value with other locations; the very same one if it has none that change."""
    if isinstance(value, msgspec.Struct):
        names = list_location_fields(type(value))
        changed = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            after = _map_value(before, change) if name in names else _map_locations(before, change)
            if after is not before:
                changed[name] = after
        return msgspec.structs.replace(value, **changed) if changed else value
    if type(value) is tuple or type(value) is list:
        items = [_map_locations(item, change) for item in value]
        is_same = all(item is other for item, other in zip(items, value, strict=True))
        return value if is_same else type(value)(items)
    if type(value) is dict:
        entries = {name: _map_locations(item, change) for name, item in value.items()}
        return value if all(entries[name] is item for name, item in value.items()) else entries
    return value


def _map_value(value: Any, change: Callable[[str], str]) -> Any:
    """One location, or all of several."""
    if isinstance(value, str):
        return (change(value) if value else value) or value
    if isinstance(value, tuple):
        return tuple(_map_value(item, change) for item in value)
    if isinstance(value, dict):
        return {name: _map_value(item, change) for name, item in value.items()}
    return value


def _move_text(text: str, moved: MovedRoots) -> str:
    for root in moved.all:
        if root.old != root.new:
            text = re.sub(rf"{re.escape(root.old)}(?![\w.-])", root.new, text)
    return text


def _translate_texts(value: Any, moved: MovedRoots) -> Any:
    if isinstance(value, str):
        return moved.map_to_storage(value)
    if isinstance(value, list | tuple):
        return (
            type(value)(_translate_texts(item, moved) for item in value)
            if type(value) in (list, tuple)
            else value
        )
    return value
