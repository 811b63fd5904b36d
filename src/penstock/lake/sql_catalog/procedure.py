"""A procedure of a catalog: what it takes, who calls it, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.lake.upkeep import OptimizedTable

TEXT: Final = "string"
CALL: Final = "call"
"""The question by which procedures are called, …"""
MAINTAIN: Final = "maintain"
"""… and that for those which take long, and may be repeated."""


class Parameter(NamedTuple):
    """A parameter of a procedure."""

    name: str
    type: str = TEXT
    default: str | None = None
    """As SQL; without one, the argument has to be given."""


class CallResult(NamedTuple):
    """What a call came to."""

    rows: list[list[Any]]
    used: str | None = None
    """The reference that later statements of the session are about, if that changes."""
    transaction: str | None = None
    """The branch of the session's transaction, empty if it has ended; ``None`` if it is as before."""


class ProcedureCall(NamedTuple):
    """A call of a procedure, with the session that it is made in."""

    lake: Lake
    session: CatalogRequest
    is_in_driver: bool
    """Whether this is the session's own process: it renews the lease of its transaction."""
    progress: Progress = show_no_progress
    optimize: Callable[..., OptimizedTable] | None = None
    """Rewrites files of a table, with the arguments of ``Table.optimize``, a key and a branch; ``None`` where
    no files are rewritten."""

    def get_text(self, name: str) -> str:
        value = self.session.arguments.get(name)
        if not isinstance(value, str) or not value:
            raise InvalidRequest(f"'{self.session.procedure}' needs the argument '{name}'")
        return value

    def get_optional_text(self, name: str) -> str | None:
        value = self.session.arguments.get(name)
        return str(value) if value not in (None, "") else None

    def is_set(self, name: str) -> bool:
        return bool(self.session.arguments.get(name))

    @property
    def table(self) -> Table:
        """The table that is named, at the revision that its name has or else at the session's."""
        names = Key.parse(self.get_text("table")).elements
        name = replace(self.session, names=names).name
        return self.lake.at(name.revision or None).table(name.key)

    def get_number(self, name: str) -> int | None:
        value = self.session.arguments.get(name)
        if value is not None and not isinstance(value, int):
            raise InvalidRequest(
                f"the argument '{name}' of '{self.session.procedure}' must be a whole number, got {value!r}"
            )
        return value

    def get_texts(self, name: str) -> tuple[str, ...]:
        value = self.session.arguments.get(name)
        return value if isinstance(value, tuple) else ()

    @property
    def branch(self) -> str:
        """The branch that is named, or else the session's."""
        return self.get_optional_text("branch") or self.current_reference

    @property
    def current_reference(self) -> str:
        """The reference that the session's statements are about."""
        return self.session.ref or self.lake.default_branch


class Procedure(NamedTuple):
    """A procedure: what it takes, gives and does."""

    description: str
    parameters: tuple[Parameter, ...]
    columns: str
    run: Callable[[ProcedureCall], CallResult]
    is_outside: bool = False
    """Whether it takes effect at once, which no transaction can undo."""
    is_long: bool = False
    """Whether it may take long. It can be repeated at any time then, also while it runs."""
