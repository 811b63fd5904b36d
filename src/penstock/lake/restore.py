"""What a call to restore asks for, checked: of what, and to when."""

from __future__ import annotations

from typing import Final

from penstock.errors import InvalidRequest
from penstock.kernel.restore import RestoreScope
from penstock.lake.calls import Restore
from penstock.model.encoding import ObjectId

VERSION_MAX: Final = 2**63 - 1
NAMED_MAX: Final = 3
"""How many tables are named in the message of a commit."""


def restore_scope(call: Restore) -> RestoreScope:
    """What is to be restored; ``InvalidRequest`` unless the call says exactly one thing, and one time."""
    if sum((bool(call.keys), call.namespace is not None, call.all)) != 1:
        raise InvalidRequest("give exactly one of keys, a namespace, or all, to say what to restore")
    if (call.to is None) == (call.version is None):
        raise InvalidRequest("give the state to restore: a revision ('to'), or a version of one table")
    if call.version is not None and len(call.keys) != 1:
        raise InvalidRequest("a version belongs to one table: give one key, or restore to a revision")
    if call.version is not None and not 0 <= call.version <= VERSION_MAX:
        raise InvalidRequest(f"version must be 0 or greater, got {call.version}")
    if len(set(call.keys)) < len(call.keys):
        raise InvalidRequest("a key is given twice")
    if call.leave and call.keys:
        raise InvalidRequest("give only the keys to restore; all others stay as they are")
    return RestoreScope(call.keys, call.namespace, call.leave)


def restore_message(call: Restore, to: ObjectId | int) -> str:
    """What the commit says if its author says nothing."""
    if call.all:
        what = "everything"
    elif call.namespace is not None:
        what = f"namespace {call.namespace}"
    else:
        more = f" and {len(call.keys) - NAMED_MAX} more" if len(call.keys) > NAMED_MAX else ""
        what = ", ".join(map(str, call.keys[:NAMED_MAX])) + more
    return f"restore {what} to {f'version {to}' if isinstance(to, int) else to.hex()[:8]}"
