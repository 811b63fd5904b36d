"""Handlers of the calls about the expectations of a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import KeyNotFound
from penstock.kernel.expectations import add_expectation, remove_expectation
from penstock.kernel.kernel import Kernel
from penstock.lake.audits.calls import AddExpectation, ListExpectations, RemoveExpectation
from penstock.lake.audits.queries import read_query
from penstock.lake.call import Call
from penstock.model.encoding import NO_COMMIT
from penstock.model.expectations import Expectation, check_expectation, read_expectations
from penstock.model.keys import Key
from penstock.model.references import Reference


class ExpectationHandlers:
    """Answers every call of ``calls``."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.ways: dict[type[Call[Any]], Callable[[Any], Any]] = {
            ListExpectations: self._list_expectations,
            AddExpectation: self._add_expectation,
            RemoveExpectation: self._remove_expectation,
        }

    def _list_expectations(self, call: ListExpectations) -> tuple[Expectation, ...]:
        return read_expectations(self._kernel.references.get_reference(call.branch))

    def _add_expectation(self, call: AddExpectation) -> tuple[Expectation, ...]:
        branch = self._kernel.branch(call.branch)  # first, so that a branch that is none is what is told
        check_expectation(call.name, call.sql)
        query = read_query(call.sql)
        if not call.missing_ok:
            self._require_tables(branch, query.tables)
        expectation = Expectation(
            name=call.name,
            sql=call.sql,
            tables=tuple(sorted(map(str, query.tables))),
            who=call.who,
            added_us=self._kernel.clock(),
        )
        return add_expectation(self._kernel, call.branch, expectation)

    def _require_tables(self, branch: Reference, tables: Iterable[Key]) -> None:
        """``KeyNotFound`` if a table is not there that an expectation would guard."""
        state = None if branch.head == NO_COMMIT else self._kernel.read_state(branch.head)
        missing = [str(key) for key in tables if state is None or state.get(key.encode()) is None]
        if missing:
            names = " or ".join(f"'{key}'" for key in sorted(missing))
            raise KeyNotFound(
                f"there is no {names} on '{branch.name}', so the expectation would check nothing\n  Names "
                "are case-sensitive. To add the expectation before the table exists: missing_ok=True "
                "(--missing-ok on the command line).",
                key=missing[0],
                ref=branch.name,
            )

    def _remove_expectation(self, call: RemoveExpectation) -> tuple[Expectation, ...]:
        return remove_expectation(self._kernel, call.branch, call.name, call.who)
