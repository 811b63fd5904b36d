"""The table formats that there are: each is a package that declares its parts by name.

What is shared asks here and never names a format. A part is given as an entry point is, by ``module:name``,
so that nothing of a format is loaded before it is needed: a command that needs no table imports none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.model.content import Content

BUILT_IN: Final = (
    "penstock.formats.delta:FORMAT",
    "penstock.formats.files:FORMAT",
    "penstock.formats.lance:FORMAT",
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a format's, and a line about it for who has not loaded it."""

    path: str
    summary: str


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A table format as its package declares it. Every path is ``module:name``."""

    name: str
    """How changes and programs name the format."""
    plugin: str
    """What an open lake asks: a ``penstock.formats.plugin.FormatPlugin``."""
    content_type: str
    """The name of the type of content that its tables have."""
    access_rules: str
    """The rule of each of its calls: a mapping from the call's class, as in ``penstock.server.access``."""
    table_view: str
    """What a program does with a table: a ``penstock.formats.plugin.TableView``, made of a ``Table``."""
    row_formats: tuple[str, ...]
    """What ``format`` may be where rows are written to a table of the format."""
    members: Mapping[str, str] = field(default_factory=dict)
    """What a lake and its tables have that no other format answers, by names such as ``lake.delta``."""
    content: str = ""
    """The class of that content, if the type has a number of its own: only Penstock gives numbers. Tables of
    other formats are stored as ``penstock.model.content.Unknown``, with the name of the type."""
    spark: str | None = None
    """What Spark does with its tables: a ``penstock.spark.format.SparkFormat``."""
    cli: str = "penstock.cli.format_cli:FormatCli"
    """What the command line says of its tables: a ``penstock.cli.format_cli.FormatCli``."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    """Commands by name."""
    routes: str = ""
    """Routes beside those of its calls in the lake's own API: a tuple of ``penstock.server.routes.Route``."""
    server_imports: tuple[str, ...] = ()
    """Modules that a server imports before the first request needs them."""
    row_work_imports: tuple[str, ...] = ()
    """Modules that processes which read rows import before they are given work."""
    apis: tuple[str, ...] = ()
    """Further APIs by which a server offers tables of the format: each a ``penstock.server.routes.Api``."""


@cache
def table_formats() -> tuple[TableFormat, ...]:
    """All formats. Nothing of them is loaded but their declarations."""
    return tuple(load(path) for path in BUILT_IN)


def load_member(name: str) -> Any:
    """What a format declares for a member of a lake or a table, such as ``lake.delta``."""
    return load(next(one.members[name] for one in table_formats() if name in one.members))


def content_types() -> tuple[type[Content], ...]:
    """The types of content that formats bring, in the order of their numbers."""
    brought = (load(declared.content) for declared in table_formats() if declared.content)
    return tuple(sorted(brought, key=lambda kind: kind.__struct_config__.tag))


def load(path: str) -> Any:
    """The part of a format that ``module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
