"""Locations in calls and answers, of a lake whose files were moved.

Calls are the one way into a lake, and answers the one way out. Inside, a table has the location that it was
stored with. Callers give and get the place where its files are now.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from penstock.errors import PenstockError
from penstock.formats.delta.lake.answers import (
    RecoveredTable,
    TableMade,
    TablePlace,
    TableStatus,
    TableVersions,
)
from penstock.formats.delta.lake.calls import AdoptTable, CreateTable, RecoverTable
from penstock.formats.files.content import FilesTable
from penstock.formats.files.lake.answers import FileEntry, JobBegun
from penstock.formats.files.lake.calls import WriteFiles
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.answers import LanceAbout, LanceDone, LanceStatus, LanceVersion
from penstock.formats.lance.lake.calls import CreateLanceVersion, DeclareLance, RegisterLance
from penstock.lake import calls
from penstock.lake.answers import About, SweptTable
from penstock.lake.resync_calls import ResyncedTable
from penstock.model.nessie import DeltaTable
from penstock.storage.moved_roots import MovedRoots

T = TypeVar("T")

LOCATIONS: Final[dict[type[msgspec.Struct], tuple[str, ...]]] = {
    DeltaTable: ("location",),
    LanceTable: ("location",),
    FilesTable: ("location",),
    About: ("warehouse", "roots"),
    calls.ChangeRoots: ("add", "remove"),
    calls.SweepTables: ("after",),
    SweptTable: ("location",),
    ResyncedTable: ("location",),
    CreateTable: ("location",),
    AdoptTable: ("location",),
    RecoverTable: ("location",),
    TableVersions: ("location",),
    TableMade: ("location",),
    RecoveredTable: ("location",),
    TableStatus: ("location",),
    TablePlace: ("location",),
    DeclareLance: ("location",),
    RegisterLance: ("location",),
    CreateLanceVersion: ("manifest",),
    LanceAbout: ("location", "folder"),
    LanceStatus: ("location",),
    LanceVersion: ("manifest",),
    LanceDone: ("location", "folder"),
    WriteFiles: ("expected",),
    FileEntry: ("address",),
    JobBegun: ("folder",),
}
"""The fields of calls, contents and answers that are whole locations, or addresses of files below one. What
programs store with foreign tables, such as Iceberg's metadata, is theirs, and stays as it is."""


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


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A value with other locations; the very same one if it has none that change."""
    if isinstance(value, msgspec.Struct):
        names = LOCATIONS.get(type(value), ())
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
