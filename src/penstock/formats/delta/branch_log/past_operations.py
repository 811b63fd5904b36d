"""What was done on a branch, as the commit tells that brings it to another one."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.formats.delta.protocol.actions import CommitInfo
from penstock.model.decoders import get_json_decoder

MERGED: Final = "MERGE BRANCH"
"""The operation that brings what was committed elsewhere."""
OPERATIONS: Final = "operations"
"""The parameter of such a commit that has the operations, as JSON text: Delta's parameters are text."""
OPERATIONS_MAX: Final = 100
"""How many of them are told, the newest ones."""
TEXT_MAX_CHARS: Final = 16_384
"""How long the text may be; parameters are left out beyond that, and then operations."""


class PastOperation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a commit did, in its writer's words."""

    operation: str
    operation_parameters: dict[str, Any] = {}
    user_name: str = ""
    timestamp: int = 0
    """When, in ms; 0 if it is not known."""


def read_operations(info: CommitInfo | None) -> tuple[PastOperation, ...]:
    """What a commit did, or what those did that it brought; nothing if it does not say."""
    if info is None or not info.operation:
        return ()
    parameters = info.fields.get("operationParameters")
    if not isinstance(parameters, dict):
        parameters = {}
    if info.operation == MERGED and isinstance(text := parameters.get(OPERATIONS), str):
        try:
            return tuple(get_json_decoder(list[PastOperation]).decode(text))
        except msgspec.MsgspecError:
            return ()
    user, time_ms = info.fields.get("userName"), info.fields.get("timestamp")
    return (
        PastOperation(
            info.operation,
            parameters,
            user if isinstance(user, str) else "",
            time_ms if isinstance(time_ms, int) else 0,
        ),
    )


def write_operations(operations: tuple[PastOperation, ...]) -> str:
    """Operations as the text of a parameter, as far as they fit."""
    newest = operations[-OPERATIONS_MAX:]
    text = msgspec.json.encode(newest).decode()
    if len(text) > TEXT_MAX_CHARS:
        newest = tuple(msgspec.structs.replace(operation, operation_parameters={}) for operation in newest)
        text = msgspec.json.encode(newest).decode()
    while len(text) > TEXT_MAX_CHARS:
        newest = newest[len(newest) // 2 + 1 :]
        text = msgspec.json.encode(newest).decode()
    return text
