"""What an open lake asks of its table formats: a plugin of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from penstock.formats.plugin import FormatPlugin
from penstock.formats.registry import TableFormat, load, table_formats
from penstock.model.content import AnyContent

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


@cache
def plugin_types() -> tuple[type[FormatPlugin], ...]:
    """The plugin of each format. Nothing else of the formats is loaded."""
    return tuple(load(declared.plugin) for declared in table_formats())


def make_plugins(find_lake: Callable[[], Embedded]) -> tuple[FormatPlugin, ...]:
    """A plugin of each format, for a lake that is about to be opened."""
    return tuple(plugin(find_lake) for plugin in plugin_types())


def find_plugin(content: AnyContent | None) -> type[FormatPlugin] | None:
    """The format of a table that a lake keeps; ``None`` for whatever else a key may hold."""
    return next((plugin for plugin in plugin_types() if plugin.manages(content)), None)


def describe_usage(content: AnyContent | None) -> str:
    """What a table is and how it is used, also of one that a key only points at; empty for anything else."""
    usages = (plugin.usage for plugin in plugin_types() if plugin.has_type(content))
    return next(usages, "")


def find_format(content: AnyContent | None) -> TableFormat | None:
    """The format of a table, also of one that a key only points at; ``None`` for anything else."""
    formats = zip(table_formats(), plugin_types(), strict=True)
    return next((declared for declared, plugin in formats if plugin.has_type(content)), None)
