"""What an open lake asks of its table formats: a plugin of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.formats.plugin import FormatPlugin
from penstock.formats.registry import (
    TableFormat,
    find_declared,
    list_table_formats,
    load_other_formats,
    load_part,
)
from penstock.model.content import AnyContent, ManagedTable, Namespace, SqlView, Unknown
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable, IcebergView

if TYPE_CHECKING:
    from penstock.lake.call import Call
    from penstock.lake.embedded import Embedded


@cache
def list_plugin_types() -> tuple[type[FormatPlugin], ...]:
    """The plugin of each format of Penstock. Nothing else of the formats is loaded."""
    return tuple(load_part(declared.plugin) for declared in list_table_formats())


@cache
def list_other_plugin_types() -> tuple[type[FormatPlugin], ...]:
    """The plugin of each format of another package."""
    return tuple(declared.load(declared.plugin) for declared in load_other_formats().formats)


def make_plugins(find_lake: Callable[[], Embedded]) -> tuple[FormatPlugin, ...]:
    """A plugin of each format of Penstock, for a lake that is about to be opened."""
    return tuple(plugin(find_lake) for plugin in list_plugin_types())


def find_plugin(content: AnyContent | None) -> type[FormatPlugin] | None:
    """The format of a table that a lake keeps; ``None`` for whatever else a key may hold."""
    own = next((plugin for plugin in list_plugin_types() if plugin.manages(content)), None)
    if own is not None or not is_foreign(content):
        return own
    return next((plugin for plugin in list_other_plugin_types() if plugin.manages(content)), None)


def is_foreign(content: AnyContent | None) -> bool:
    """Whether a content may be a table of a format of another package."""
    return isinstance(content, Unknown) and content.type_name != ""


def list_calls_of_other_formats() -> tuple[type[Call[Any]], ...]:
    """The calls that formats of other packages answer."""
    return tuple(kind for plugin in list_other_plugin_types() for kind in plugin.calls)


def list_sweep_calls() -> tuple[type[Any], ...]:
    """The calls that sweep files which tables of a format share."""
    every = (*list_plugin_types(), *list_other_plugin_types())
    return tuple(plugin.sweep_call for plugin in every if plugin.sweep_call is not None)


def describe_usage(content: AnyContent | None) -> str:
    """What a table is and how it is used, also of one that a key only points at; empty for anything else."""
    declared = find_format(content)
    return "" if declared is None else declared.load(declared.plugin).usage


def suggest_use(key: Key, content: AnyContent) -> str:
    """What to do instead of reading a content's rows: the next line of the message that refuses it."""
    if isinstance(content, Namespace):
        return f"\n  Name a table in it: lake.tables('{key}') or 'penstock tables {key}' lists them."
    if isinstance(content, SqlView):
        return "\n  Spark reads it by its name in the catalog of the lake; other engines do not."
    if isinstance(content, IcebergTable | IcebergView):
        return "\n  Iceberg engines read it through the lake's server, as the catalogue of type 'nessie'."
    return ""


def find_format(content: AnyContent | None) -> TableFormat | None:
    """The format of a table, also of one that a key only points at; ``None`` for anything else."""
    if content is None or not (isinstance(content, ManagedTable) or is_foreign(content)):
        return None
    return find_declared(lambda declared: declared.content_type == content.type)
