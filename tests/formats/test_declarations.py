"""What formats declare of themselves by name is there, and is what a lake takes it for."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import penstock
from penstock.formats.plugin import TableView
from penstock.formats.registry import list_table_formats, load_member, load_part

MEMBER = re.compile(r'load_member\("([a-z_.]+)"\)')


def test_every_view_of_a_table_has_what_a_table_asks_of_it() -> None:
    asked = {name for name in vars(TableView) if not name.startswith("_")}
    for declared in list_table_formats():
        view = load_part(declared.table_view)
        assert asked <= set(dir(view)), declared.name
        for name in asked:
            if callable(wanted := getattr(TableView, name)):
                given = inspect.signature(getattr(view, name))
                assert [*given.parameters] == [*inspect.signature(wanted).parameters], (declared.name, name)


def test_members_are_declared_once_each_and_all_are_used() -> None:
    declared = [name for one in list_table_formats() for name in one.members]
    sources = Path(penstock.__file__).parent.rglob("*.py")
    used = {name for source in sources for name in MEMBER.findall(source.read_text())}
    assert sorted(declared) == sorted(used)
    for name in used:
        assert callable(load_member(name)), name


def test_no_two_formats_write_rows_in_the_same_format() -> None:
    written = [name for one in list_table_formats() for name in one.row_formats]
    assert len(written) == len(set(written))
