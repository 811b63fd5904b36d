"""What to do about an error, where its message does not say so already."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from penstock import errors
from penstock.lake.opener import is_remote
from penstock.stores import DATABASE_FILE

if TYPE_CHECKING:
    from penstock.model.conflicts import Conflict

ADVICE: Final[dict[type[errors.PenstockError], str]] = {
    errors.InvalidKey: 'Write a key like sales.orders, or sales."2026.11" if an element has a dot in it.',
    errors.InvalidContent: "'penstock put --help' shows how to write a content.",
    errors.HistoryExpired: "Older commits were removed; 'penstock log' shows the history that is kept.",
    errors.LakeMoved: "Use the new location: --lake LOCATION, or the variable PENSTOCK_LAKE.",
    errors.ReferenceNotFound: "'penstock branch' and 'penstock tag' list what there is.",
    errors.CommitNotFound: "'penstock log' shows the commits that there are.",
    errors.KeyNotFound: "'penstock tables' lists what there is.",
    errors.FileNotFound: "'penstock files ls' lists what there is.",
    errors.JobNotFound: "'penstock jobs list --all' lists what there is.",
    errors.TransactionNotFound: "'penstock tx list --all' lists what there is.",
    errors.VersionNotFound: "'penstock delta log' shows the versions that there are.",
    errors.ReferenceExists: "Choose another name; 'penstock log NAME' shows the commits of the existing one.",
    errors.LakeExists: "Use the existing lake: --lake LOCATION, or the variable PENSTOCK_LAKE.",
    errors.TryAgainError: "Nothing was changed; try again.",
    errors.StorageFull: "Nothing was changed.",
    errors.TimedOut: "",  # a write may still be applied: the message says what to do
    errors.Unauthenticated: "Set PENSTOCK_TOKEN to a token of the lake; 'penstock token create' makes one.",
    errors.StorageRefused: "",  # the message says what is wrong
    errors.Denied: "Ask the administrator of the lake for access to its storage.",
    errors.TokenNotFound: "'penstock token list' lists what there is.",
    errors.Damaged: "'penstock fsck' lists what is damaged; 'penstock doctor' looks at the rest.",
}

RESTORE: Final = (
    "stop every writer, and keep this database: what was committed since the last backup is nowhere else. "
    "How to go back to a backup: docs/guide/care.md, 'Copies'"
)
MOVED_BEHIND_SERVER: Final = "The administrator of the server must start it at the new location."

BEHIND_SERVER: Final[dict[type[errors.PenstockError], str]] = {
    errors.LakeMoved: MOVED_BEHIND_SERVER,
    errors.StorageRefused: "",
    errors.Denied: "Ask the administrator of the server for a token that allows this.",
}
"""Where it is something else that helps if the lake is behind a server."""


def suggest_next_step(error: errors.PenstockError, behind_server: bool = False) -> str:
    """One line on what to do next; nothing if there is nothing to add."""
    if isinstance(error, errors.LakeNotFound):
        return _advise_on_missing_lake(error)
    if isinstance(error, errors.OutcomeUnknown):
        return _advise_on_unknown_outcome(error.details.get("key"), error.details.get("name"))
    if isinstance(error, errors.TableConflict) or _is_about_rows(error) or _is_about_target(error):
        return ""  # the message says what to do
    if isinstance(error, errors.CommitConflict) and error.conflicts:
        return _advise_on_conflict(error.conflicts[0])
    if isinstance(error, errors.ReferenceChanged):
        return f"'penstock reflog {error.details.get('name', 'NAME')}' shows what happened to it."
    advice_by_error = ADVICE | BEHIND_SERVER if behind_server else ADVICE
    text = next((advice_by_error[kind] for kind in type(error).__mro__ if kind in advice_by_error), "")
    return "" if _has_advice_already(error, text) else text


def _is_about_rows(error: errors.PenstockError) -> bool:
    """Whether an error that other commands have as well was met by a write of rows, and says enough of it."""
    if isinstance(error, errors.InvalidContent):
        return "problems" in error.details  # of what a commit does to a table
    return isinstance(error, errors.CommitConflict) and "'append' adds" in error.message


def _is_about_target(error: errors.PenstockError) -> bool:
    """Whether a lake is in the way of a copy, a move, a backup or a restore, which names another place."""
    return isinstance(error, errors.LakeExists) and "; choose " in error.message


def _has_advice_already(error: errors.PenstockError, text: str) -> bool:
    """Whether an error's message says already how a line of advice begins."""
    return text.partition(";")[0].rstrip(".").lower() in error.message.lower()


def _advise_on_missing_lake(error: errors.LakeNotFound) -> str:
    """The command that makes it; not for a server or a bucket, nor where the store has said it already."""
    place = str(error.details.get("url") or error.details.get("path") or "")
    if not place or is_remote(place) or "penstock init" in error.message or "create it" in error.message:
        return ""
    directory = place.removeprefix("sqlite://").removesuffix(f"/{DATABASE_FILE}")
    return f"'penstock init {shlex.quote(directory)}' makes one."


def _advise_on_unknown_outcome(key: object, name: object) -> str:
    if not key:
        return "Check the lake when it answers again."
    where = f" --branch {shlex.quote(str(name))}" if name else ""
    return f"'penstock outcome {shlex.quote(str(key))}{where}' shows the outcome when the lake answers again."


def _advise_on_conflict(conflict: Conflict) -> str:
    key = shlex.quote(str(conflict.key))
    if conflict.kind == "NAMESPACE_NOT_EMPTY":
        return f"Delete what is in it first: 'penstock tables {key}' lists the tables."
    if conflict.kind in ("NAMESPACE_ABSENT", "NOT_A_NAMESPACE"):
        return "'penstock namespace' lists the namespaces, 'penstock namespace create' makes one."
    if conflict.kind == "KEY_DOES_NOT_EXIST" and not conflict.expected:
        return "'penstock tables' lists what there is."
    return f"'penstock log --table {key}' shows who changed it. Then decide whether to repeat this."
