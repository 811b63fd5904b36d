"""What ``--json`` prints about audits and expectations; see ``shapes`` for the rest."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock.cli.shapes import Shape
from penstock.lake.audits.publishing import Published as ModelPublished
from penstock.model.clock import utc
from penstock.model.expectations import Expectation as ModelExpectation


class Expectation(Shape, frozen=True, kw_only=True):
    """A query that must find nothing on a branch."""

    name: str
    """By which it is told."""
    sql: str
    """The query."""
    tables: tuple[str, ...]
    """The keys of the tables that it names: it is asked whenever one of these changes."""
    who: str
    """Who added it."""
    added: datetime
    """When."""

    @classmethod
    def of(cls, one: ModelExpectation) -> Expectation:
        return cls(name=one.name, sql=one.sql, tables=one.tables, who=one.who, added=utc(one.added_us))


class Expectations(Shape, frozen=True, kw_only=True):
    """What a branch expects."""

    branch: str
    """Its name."""
    expectations: tuple[Expectation, ...]
    """In the order in which they were added."""

    @classmethod
    def of(cls, branch: str, found: Iterable[ModelExpectation]) -> Expectations:
        return cls(branch=branch, expectations=tuple(map(Expectation.of, found)))


class Published(Shape, frozen=True, kw_only=True):
    """A branch that was audited and published."""

    branch: str
    """The branch."""
    into: str
    """The branch that it was merged into."""
    audited: str
    """The id of the commit that was audited, and merged."""
    commit: str | None
    """The id of the merge; nothing if the target had all of it already."""
    checks: tuple[str, ...]
    """The names of the checks, which all hold."""

    @classmethod
    def of(cls, one: ModelPublished) -> Published:
        return cls(
            branch=one.branch, into=one.into, audited=one.audited, commit=one.commit, checks=one.checks
        )
