"""Calls about the expectations of a branch."""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import InvalidRequest, PenstockError
from penstock.lake.call import Ask, Call, RetrySafety
from penstock.model.expectations import Expectation


class ListExpectations(Call[tuple[Expectation, ...]], frozen=True, kw_only=True):
    """The expectations (data checks) of a branch."""

    path = "/references/{branch}/expectations"
    answer = tuple[Expectation, ...]

    branch: str


class AddExpectation(Call[tuple[Expectation, ...]], frozen=True, kw_only=True):
    """Add an expectation to a branch: a query that must find no row. Answers all of the branch's
    expectations.

    Asked for twice, it is added once. It is refused if it does not hold now, and if a table that it names is
    not there: it would guard nothing. With `missing_ok` it is added all the same, and not asked until there
    is a table of exactly that key. Keys are told apart by case, unlike names in SQL.
    """

    method = "POST"
    path = "/references/{branch}/expectations"
    answer = tuple[Expectation, ...]
    retry = RetrySafety.SAFE
    makes_lake = True

    branch: str
    name: str
    """Its name, by which it is reported and removed."""
    sql: str
    """One query that must find no row, as DuckDB reads it. It names tables by their keys: `sales.orders`."""
    missing_ok: bool = False
    """Whether tables that it names may be missing now."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class RemoveExpectation(Call[tuple[Expectation, ...]], frozen=True, kw_only=True):
    """Remove an expectation from a branch; answers those that are left."""

    method = "DELETE"
    path = "/references/{branch}/expectations/{name}"
    answer = tuple[Expectation, ...]
    retry = RetrySafety.SAFE
    makes_lake = False
    is_vital = True

    branch: str
    name: str
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""

    def answer_if_done_before(self, ask: Ask, refused: PenstockError, seen: Any) -> tuple[Expectation, ...]:  # noqa: ARG002
        """What is not expected any more cannot be removed again."""
        if not isinstance(refused, InvalidRequest):
            raise refused
        expectations: tuple[Expectation, ...] = ask(ListExpectations(branch=self.branch))
        if any(expectation.name == self.name for expectation in expectations):
            raise refused
        return expectations


CALLS: Final[tuple[type[Call[Any]], ...]] = (ListExpectations, AddExpectation, RemoveExpectation)
"""All of them."""
