"""Files that tables need and that are gone: named by table and version, before anybody relies on them.

What is looked at is every table at every branch and tag, each by its format.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.formats.plugin import MissingFile
from penstock.kernel.table_horizons import TableHorizons
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.model.content import ManagedTable
from penstock.model.encoding import NO_COMMIT


def list_missing_files(lake: Lake) -> Iterator[MissingFile]:
    """All files that are gone, of the tables at all branches and tags of an embedded lake."""
    catalogue = lake.catalogue
    if not isinstance(catalogue, Embedded) or not catalogue.has_any_tables():
        return
    horizons = TableHorizons.read_horizons(catalogue.kernel.store, catalogue.kernel.formats)
    searches = {plugin.name: plugin.missing_files() for plugin in catalogue.plugins}
    seen: set[tuple[str, bytes]] = set()
    for reference in (*lake.branches(), *lake.tags()):
        if reference.reference.head == NO_COMMIT:
            continue
        for table in lake.at(reference.name).tables():
            content = table.content
            plugin = catalogue.find_plugin(content)
            if plugin is None or not isinstance(content, ManagedTable):
                continue  # what the lake does not manage it does not answer for
            if horizons.is_behind(content):
                continue  # it was erased, and is not to be there
            if (str(content.id), content.state) in seen:
                continue
            seen.add((str(content.id), content.state))
            yield from searches[plugin.name].find_missing(table, reference.name)
    for search in searches.values():
        yield from search.find_rest()
