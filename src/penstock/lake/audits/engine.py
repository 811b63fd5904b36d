"""What branches expect, asked of what is about to be published on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import RequestError
from penstock.kernel.checks import Proposal
from penstock.lake.audits.installed import require_sql
from penstock.model.expectations import Expectation

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


class LakeEngine:
    """Asks by DuckDB, over the rows of a lake in this process. It is loaded when something is to be asked."""

    def __init__(self, lake: Embedded) -> None:
        self._lake = lake

    def require(self) -> None:
        require_sql()

    def broken(self, proposal: Proposal, expectation: Expectation) -> str | None:
        """Why a proposal is not as expected.

        It is not asked while a table that it names is not there, or has no columns yet: one that was only
        declared, or has no file. A proposal that takes a table away, and leaves another, is against it: it
        could not be asked from then on. One that takes longer than it may is not as expected.
        """
        keys = sorted(expectation.keys)
        there = [key for key in keys if proposal.get(key) is not None]
        if len(there) < len(keys):
            taken = [key for key in keys if key not in there and key in proposal.changed]
            if taken and there:
                return (
                    f"'{taken[0]}' would go, without which this cannot be asked; remove the expectation first"
                )
            return None
        try:
            require_sql()
            from penstock.lake.audits.asking import ask
            from penstock.lake.audits.queries import Query
            from penstock.lake.audits.rows import rows_proposed

            rows = {key: rows_proposed(self._lake, proposal, key) for key in keys}
            if not all(one.has_columns for one in rows.values()):
                return None
            timeout_s = self._lake.kernel.settings.expectation_timeout_s
            found = ask(Query(expectation.sql, tuple(keys)), rows, timeout_s)
        except RequestError as problem:
            return problem.message
        return None if found is None else str(found)
