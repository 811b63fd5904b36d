"""What is being audited: a branch as it was when the audit began, and what was found wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.errors import InvalidRequest, RequestError
from penstock.formats.rows.reader import TableRows
from penstock.kernel.checks import run_check
from penstock.lake.audits.queries import read_query
from penstock.lake.audits.query_run import FoundRows, run_audit_query
from penstock.lake.audits.rows import open_rows_at
from penstock.lake.transactions.engines import load_penstock_spark
from penstock.model.content import AnyContent
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.public_types import Files
    from penstock.lake.lake import Lake

Audit: TypeAlias = "str | Callable[[AuditedBranch], Any]"
"""A query that must find nothing, or a function that answers as a check does."""


class FailedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check that does not hold."""

    name: str
    reason: str
    rows: tuple[Mapping[str, str], ...] = ()
    """Some of the rows that a query found, their values in words."""


class AuditedBranch:
    """A branch as it was when the audit began: one commit, whatever is written to the branch meanwhile."""

    def __init__(self, lake: Lake, branch: str, into: str, spark: Any = None) -> None:
        self._lake, self.branch, self.into, self._spark = lake, branch, into, spark
        self._snapshot, self._target = lake.at(branch), f"{into}@{lake.at(into).id}"

    def __repr__(self) -> str:
        return f"<AuditedBranch {self.branch} at {self.commit[:8]}>"

    @property
    def commit(self) -> str:
        """The id of the commit that is looked at, and published if all is well."""
        return self._snapshot.id

    @property
    def ref(self) -> str:
        """The same as a revision, wherever one is taken."""
        return f"{self.branch}@{self.commit}"

    @property
    def changed(self) -> tuple[Key, ...]:
        """The keys that the branch has changed since it and its target parted."""
        base = self._lake.compare(self.ref, self._target).base
        return tuple(difference.key for difference in self._lake.diff(base, self.ref))

    def get(self, key: str | Key) -> AnyContent | None:
        """What a key holds; ``None`` if nothing."""
        return self._snapshot.get(key)

    def table(self, key: str | Key) -> TableRows:
        """The rows of a table, as Arrow's; ``KeyNotFound`` if there is none."""
        return open_rows_at(self._snapshot.table(key))

    def files(self, key: str | Key) -> Files:
        """The files of a table of files."""
        return self._snapshot.table(key).files

    def read(self, key: str | Key) -> Any:
        """A table as a DataFrame of the Spark session that was given; ``InvalidRequest`` if none was."""
        if self._spark is None:
            raise InvalidRequest("reading a DataFrame needs a Spark session: publish(…, spark=spark)")
        return load_penstock_spark().read(self._spark, key, ref=self.ref, lake=self._lake)

    def find_failed(self, checks: Sequence[tuple[str, Audit]]) -> tuple[FailedCheck, ...]:
        """All of the checks that do not hold."""
        return tuple(failed for name, check in checks if (failed := self._check_one(name, check)) is not None)

    def _check_one(self, name: str, check: Audit) -> FailedCheck | None:
        rows: tuple[Mapping[str, str], ...] = ()

        def find_broken_rows(sql: str) -> str | None:
            nonlocal rows
            try:
                found_rows = self._run_query(sql)
            except RequestError as problem:  # it names a table or a column that is not there, for example
                return problem.message
            rows = () if found_rows is None else found_rows.rows
            return None if found_rows is None else str(found_rows)

        reason = run_check(
            name, (lambda _: find_broken_rows(check)) if isinstance(check, str) else check, self
        )
        return None if reason is None else FailedCheck(name=name, reason=reason, rows=rows)

    def _run_query(self, sql: str) -> FoundRows | None:
        """What a query finds: on Spark if a session was given, else by DuckDB."""
        if self._spark is not None:
            queries = load_penstock_spark("audit_queries")
            answer: FoundRows | None = queries.run_audit_query(self._spark, self._lake, self._snapshot, sql)
            return answer
        query = read_query(sql)
        return run_audit_query(query, {key: self.table(key) for key in query.tables})
