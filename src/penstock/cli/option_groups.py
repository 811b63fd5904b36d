"""Options that commands share, handed to them as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.command_declaration import (
    add_if_head_option,
    add_key_option,
    add_message_option,
    branch_option,
)

if TYPE_CHECKING:
    from penstock.lake.call import CommitOptions

F = TypeVar("F", bound=Callable[..., Any])


def gather_options(name: str, kind: type[Any]) -> Callable[[F], Callable[..., Any]]:
    """Hand options to a command as one dataclass, under a name: those that its fields are named by.

    It stands below the options. A field whose option the command does not have keeps its default.
    """
    names = [field.name for field in fields(kind)]

    def decorate_command(f: F) -> Callable[..., Any]:
        @wraps(f)
        def command(*args: Any, **given: Any) -> Any:
            chosen = {name: given.pop(name) for name in names if name in given}
            return f(*args, **given, **{name: kind(**chosen)})

        return command

    return decorate_command


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How a request is sent that moves a branch."""

    dry_run: bool
    if_head: str | None
    idempotency_key: str | None
    message: str | None = None


def add_request_options(branch: str, *, message: bool = True) -> Callable[[F], Callable[..., Any]]:
    """The options of ``RequestOptions``, as ``request``; ``branch`` is what is called so that is moved."""

    def decorate_command(f: F) -> Callable[..., Any]:
        command = add_if_head_option(branch)(add_key_option(gather_options("request", RequestOptions)(f)))
        return add_dry_run_option(add_message_option(command) if message else command)

    return decorate_command


@dataclass(frozen=True, slots=True)
class RowChangeOptions:
    """Where rows of a table are changed, and how the commit is described."""

    branch: str | None
    message: str | None
    idempotency_key: str | None

    def to_commit_options(self, author: str | None) -> CommitOptions:
        """What a table's methods take of it."""
        return {"message": self.message, "author": author, "idempotency_key": self.idempotency_key}


def add_row_change_options(f: F) -> Callable[..., Any]:
    """The options of ``RowChangeOptions``, as ``commit``."""
    return branch_option(add_message_option(add_key_option(gather_options("commit", RowChangeOptions)(f))))


def add_dry_run_option(f: F) -> F:
    return click.option(
        "--dry-run",
        is_flag=True,
        help="Show what would happen, and change nothing. Exit status 3 on conflicts.",
    )(f)
