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


def call_inside(call: T, moved: MovedRoots) -> T:
    """A call with the locations by which the lake knows its tables."""
    changed: T = _mapped(call, moved.to_lake)
    return changed


def answer_outside(answer: T, moved: MovedRoots) -> T:
    """An answer with the locations where files are."""
    changed: T = _mapped(answer, moved.to_storage)
    return changed


def note_in_error(problem: PenstockError, moved: MovedRoots) -> None:
    """Replace old locations in the message and details of an error by the places where files are."""
    problem.message = _text(problem.message, moved)
    problem.args = (problem.message, *problem.args[1:])
    problem.details = {name: _text_in(value, moved) for name, value in problem.details.items()}


def location_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a call, a content or a value in an answer that are locations, or addresses below one."""
    if issubclass(kind, ManagedTable):
        return ("location",)
    declared: tuple[str, ...] = getattr(kind, "location_fields", ())
    return declared


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A value with other locations; the very same one if it has none that change."""
    if isinstance(value, msgspec.Struct):
        names = location_fields(type(value))
        changed = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            after = _changed(before, change) if name in names else _mapped(before, change)
            if after is not before:
                changed[name] = after
        return msgspec.structs.replace(value, **changed) if changed else value
    if type(value) is tuple or type(value) is list:
        items = [_mapped(one, change) for one in value]
        is_same = all(one is other for one, other in zip(items, value, strict=True))
        return value if is_same else type(value)(items)
    if type(value) is dict:
        entries = {name: _mapped(one, change) for name, one in value.items()}
        return value if all(entries[name] is one for name, one in value.items()) else entries
    return value


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """One location, or all of several."""
    if isinstance(value, str):
        return (change(value) if value else value) or value
    if isinstance(value, tuple):
        return tuple(_changed(one, change) for one in value)
    if isinstance(value, dict):
        return {name: _changed(one, change) for name, one in value.items()}
    return value


def _text(text: str, moved: MovedRoots) -> str:
    for one in moved.all:
        if one.old != one.new:
            text = re.sub(rf"{re.escape(one.old)}(?![\w.-])", one.new, text)
    return text


def _text_in(value: Any, moved: MovedRoots) -> Any:
    if isinstance(value, str):
        return moved.to_storage(value)
    if isinstance(value, list | tuple):
        return type(value)(_text_in(one, moved) for one in value) if type(value) in (list, tuple) else value
    return value
