"""Write, audit, publish: a branch is merged if all checks hold, and just as they saw it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, Unpack

import msgspec

from penstock.errors import ChecksFailed, InvalidRequest, NotFound, PenstockError, ReferenceChanged
from penstock.lake import calls
from penstock.lake.audits.audited_branch import Audit, AuditedBranch, FailedCheck
from penstock.lake.transactions.transaction import CHECKS
from penstock.model.merges import MergeResult
from penstock.model.transactions import is_transaction

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

Checks: TypeAlias = Mapping[str, Audit] | Iterable[Callable[[AuditedBranch], Any]] | None
KEEP: Final = "keep"
DROP: Final = "drop"
KEPT: Final = "stays as it is"
DROPPED: Final = "is dropped"
ROWS_TOLD: Final = 3
"""How many rows of each check the text of an error shows."""


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that was audited and published."""

    branch: str
    into: str
    """The branch that it was merged into."""
    audited: str
    """The id of the commit that the checks saw, and that was merged."""
    checks: tuple[str, ...]
    """The names of those that hold."""
    merged: MergeResult
    """What the merge did; no commits if the target had all of it already."""

    @property
    def commit(self) -> str | None:
        """The id of the commit that published it; ``None`` if the target had all of it already."""
        return self.merged.commits[-1] if self.merged.commits else None


class PublishOptions(TypedDict, total=False):
    """How a branch is published."""

    checks: Checks
    """By name: a query that must return no row, or a function that is given an ``AuditedBranch``."""
    spark: Any
    """A session, for queries and for checks that read DataFrames."""
    otherwise: str
    """What to do with the branch if a check fails: ``keep``, or ``drop``."""
    message: str | None
    """The message of the merge; by default one that names the branch."""
    author: str | None
    """The author of the merge; by default that of the opened lake."""
    idempotency_key: str | None
    """Of the merge."""


def publish(lake: Lake, branch: str, into: str, **how: Unpack[PublishOptions]) -> PublishResult:
    """Audit a branch as it is now, and merge exactly that.

    ``ChecksFailed`` names all checks that do not hold, and nothing is merged then.
    """
    if unknown := how.keys() - PublishOptions.__annotations__.keys():
        raise TypeError(
            f"unknown arguments for the publication of a branch: {', '.join(map(repr, sorted(unknown)))}"
        )
    otherwise, message = how.get("otherwise", KEEP), how.get("message")
    if is_transaction(branch):
        raise InvalidRequest(
            f"'{branch}' is the branch of a transaction, which is published by its commit: check it with "
            "'tx.check'"
        )
    if otherwise not in (KEEP, DROP):
        raise InvalidRequest(f"the argument 'otherwise' must be 'keep' or 'drop', got '{otherwise}'")
    if branch == into:
        raise InvalidRequest(f"'{branch}' cannot be published into itself", name=branch)
    named = _name_checks(how.get("checks"))
    for name in (branch, into):
        lake.branch(name).head  # noqa: B018 - a tag is refused: it is neither work nor a place for it
    audited = AuditedBranch(lake, branch, into, how.get("spark"))
    failed = audited.find_failed(named)
    if failed:
        raise _checks_failed_error(lake, audited, failed, otherwise)
    names = tuple(name for name, _ in named)
    text = f"publish {branch}" if message is None else message
    merge = calls.Merge(
        source=audited.ref,
        into=into,
        said=calls.describe_commit(text, how.get("author"), {CHECKS: names} if names else None),
        idempotency_key=how.get("idempotency_key"),
        who=lake.author,
    )
    merged = lake.do(merge)
    return PublishResult(branch=branch, into=into, audited=audited.commit, checks=names, merged=merged)


def _name_checks(checks: Checks) -> list[tuple[str, Audit]]:
    """Checks with their names: those of functions, if none are given."""
    if isinstance(checks, str) or callable(checks):
        raise InvalidRequest("checks must have names: checks={'no negative amounts': …}")
    if isinstance(checks, Mapping):
        named: list[tuple[str, Audit]] = [*checks.items()]
    elif checks is None or isinstance(checks, Iterable):
        named = [(getattr(check, "__name__", ""), check) for check in checks or ()]
    else:
        raise InvalidRequest(f"checks must be a dict from names to checks, got {checks!r}")
    for name, check in named:
        is_named = isinstance(name, str) and name.isprintable() and name.strip()
        if not is_named or not (callable(check) or isinstance(check, str)):
            raise InvalidRequest("a check must have a printable name, and be a function or a query")
    return named


def _checks_failed_error(
    lake: Lake, audited: AuditedBranch, failed: tuple[FailedCheck, ...], otherwise: str
) -> ChecksFailed:
    became = _drop_branch(lake, audited) if otherwise == DROP else KEPT
    lines = [
        f"'{audited.branch}' was not published into '{audited.into}' and {became}, because checks failed:"
    ]
    for check in failed:
        lines.append(f"  check '{check.name}': {check.reason}")
        lines += [f"    {_format_row(row)}" for row in check.rows[1:ROWS_TOLD]]
    return ChecksFailed(
        "\n".join(lines),
        branch=audited.branch,
        audited=audited.commit,
        failed=[msgspec.to_builtins(check) for check in failed],
        is_dropped=became == DROPPED,
    )


def _drop_branch(lake: Lake, audited: AuditedBranch) -> str:
    """Delete the branch, unless somebody has written to it since it was looked at, or deleted it.

    Whatever keeps it from being deleted is told, and hides no check.
    """
    try:
        lake.branch(audited.branch).delete(expected=audited.commit)
    except ReferenceChanged:
        return KEPT
    except NotFound:
        return DROPPED
    except PenstockError as problem:
        return f"could not be dropped ({problem.message.partition(chr(10))[0]})"
    return DROPPED


def _format_row(row: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in row.items())
