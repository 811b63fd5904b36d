"""The table formats that an open lake knows: those that come with Penstock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.formats.plugin import FormatPlugin
from penstock.lake.delta_plugin import DeltaPlugin
from penstock.lake.files.plugin import FilesPlugin
from penstock.lake.lance.plugin import LancePlugin
from penstock.model.content import AnyContent

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

PLUGINS: Final[tuple[type[FormatPlugin], ...]] = (DeltaPlugin, LancePlugin, FilesPlugin)


def make_plugins(find_lake: Callable[[], Embedded]) -> tuple[FormatPlugin, ...]:
    """A plugin of each format, for a lake that is about to be opened. Nothing of the formats is loaded."""
    return tuple(plugin(find_lake) for plugin in PLUGINS)


def find_plugin(content: AnyContent | None) -> type[FormatPlugin] | None:
    """The format of a table that a lake keeps; ``None`` for whatever else a key may hold."""
    return next((plugin for plugin in PLUGINS if plugin.manages(content)), None)
