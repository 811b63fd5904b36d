"""Small files are put together by the writer that made the last of many, where a table asks for it.

The table's property ``delta.autoOptimize.autoCompact`` asks. The writer does it after its own commit, in its
own process and with its own rights, so a lake needs no worker that reads rows. Whatever goes wrong, the
writer's commit stands: that is logged, and a later writer tries again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.formats.delta.lake.calls import GetTableVersions
from penstock.formats.delta.lake.file_upkeep import RewriteEngine, optimize_files
from penstock.formats.delta.protocol.properties import is_auto_compacted
from penstock.lake.call import CommitDescription
from penstock.lake.upkeep import OptimizeOrder

if TYPE_CHECKING:
    from penstock.lake.table import Table

LOOK_EVERY: Final = 10
"""After each so many versions a writer counts the small files: to count them takes the table's log."""

logger = logging.getLogger("penstock")


def compact_if_due(table: Table, version: int, engine: RewriteEngine) -> None:
    """Put small files together if a partition has many, after a commit that made a version of a table.

    Only on the default branch: elsewhere it would make conflicts for the merge of the branch. It never
    raises; where others change the same files meanwhile, it is left to the next.
    """
    if version % LOOK_EVERY or table.ref != table.lake.default_branch:
        return
    try:
        now = table.lake.do(GetTableVersions(key=table.key, at=table.ref, limit=0))
        if not is_auto_compacted(now.parse_declared()[1].configuration):
            return
        optimize_files(
            table.outside_read_set,
            OptimizeOrder(),
            CommitDescription(message=f"compact {table.key}"),
            engine,
            is_auto=True,
        )
    except Exception as problem:  # noqa: BLE001 - the rows are committed, whatever ended this
        logger.warning(
            "the automatic compaction of '%s' failed; its small files stay as they are: %s",
            table.key,
            problem,
        )
