"""The plugins of an open lake, for tests of one format."""

from __future__ import annotations

from typing import TypeVar

from penstock.formats.plugin import FormatPlugin
from penstock.lake.catalogue import Catalogue
from penstock.lake.embedded import Embedded

P = TypeVar("P", bound=FormatPlugin)


def plugin_of(catalogue: Catalogue, kind: type[P]) -> P:
    """The plugin of a format in a lake of this process."""
    assert isinstance(catalogue, Embedded)
    return next(one for one in catalogue.plugins if isinstance(one, kind))
