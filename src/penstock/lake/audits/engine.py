"""What branches expect, asked of what is about to be published on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest, RequestError
from penstock.kernel.checks import BranchProposal
from penstock.kernel.time_limits import time_limit
from penstock.lake.audits.duckdb_requirement import require_sql
from penstock.lake.audits.queries import AuditQuery
from penstock.lake.audits.rows import open_proposed_rows
from penstock.model.expectations import Expectation
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.audits.query_run import FoundRows
    from penstock.lake.embedded import Embedded
    from penstock.processes.pool import ProcessPool


class DuckDbExpectationEngine:
    """Asks by DuckDB, over the rows of a lake in this process. It is loaded when something is to be asked."""

    def __init__(self, lake: Embedded) -> None:
        self._lake = lake
        self.pool: ProcessPool | None = None
        """Has queries asked in processes apart from this one: where they are other people's."""

    def require_available(self) -> None:
        require_sql()

    def find_violation(self, proposal: BranchProposal, expectation: Expectation) -> str | None:
        """Why a proposal is not as expected.

        It is not asked while a table that it names is not there, or has no columns yet: one that was only
        declared, or has no file. A proposal that takes a table away, and leaves another, is against it: it
        could not be asked from then on. One that takes longer than it may is not as expected.
        """
        keys = sorted(expectation.keys)
        present = [key for key in keys if proposal.get_content(key) is not None]
        if len(present) < len(keys):
            removed = [key for key in keys if key not in present and key in proposal.changed]
            if removed and present:
                return (
                    f"'{removed[0]}' would be removed, but the query needs it; remove the expectation first"
                )
            return None
        limit = time_limit(self._lake.kernel.settings.expectation_timeout_s, "expectation_timeout_s")
        try:
            require_sql()
            rows = self._run_query(proposal, expectation.sql, keys, limit.seconds)
        except RequestError as problem:
            is_late = isinstance(problem, InvalidRequest) and "timeout_s" in problem.details
            return (
                f"{problem.message} (its time is limited by {limit.option})" if is_late else problem.message
            )
        return None if rows is None else str(rows)

    def _run_query(
        self, proposal: BranchProposal, sql: str, keys: Sequence[Key], timeout_s: float
    ) -> FoundRows | None:
        from penstock.lake.audits.query_run import run_audit_query

        query = AuditQuery(sql, tuple(keys))
        if self.pool is not None:
            from penstock.lake.audits.row_work import ask_in_process

            return ask_in_process(self.pool, self._lake, proposal, query, timeout_s)
        rows = {key: open_proposed_rows(self._lake, proposal, key) for key in keys}
        if not all(table_rows.has_columns for table_rows in rows.values()):
            return None
        return run_audit_query(query, rows, timeout_s)
