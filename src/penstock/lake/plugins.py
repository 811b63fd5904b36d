"""The table formats that an open lake knows: those that come with Penstock."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from penstock.formats.plugin import FormatPlugin
from penstock.model.content import AnyContent

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

BUILT_IN: Final = (
    "penstock.lake.delta_plugin:DeltaPlugin",
    "penstock.lake.files.plugin:FilesPlugin",
    "penstock.lake.lance.plugin:LancePlugin",
)
"""By name, as entry points have it: formats import what is shared, and nothing shared imports a format."""


@cache
def plugin_types() -> tuple[type[FormatPlugin], ...]:
    """The plugin of each format. Nothing else of the formats is loaded."""
    named = (path.split(":") for path in BUILT_IN)
    return tuple(getattr(import_module(module), name) for module, name in named)


def make_plugins(find_lake: Callable[[], Embedded]) -> tuple[FormatPlugin, ...]:
    """A plugin of each format, for a lake that is about to be opened."""
    return tuple(plugin(find_lake) for plugin in plugin_types())


def find_plugin(content: AnyContent | None) -> type[FormatPlugin] | None:
    """The format of a table that a lake keeps; ``None`` for whatever else a key may hold."""
    return next((plugin for plugin in plugin_types() if plugin.manages(content)), None)
