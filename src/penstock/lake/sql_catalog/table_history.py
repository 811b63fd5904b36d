"""The versions of a table, as DESCRIBE HISTORY shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.errors import NotManaged
from penstock.formats.plugin import VersionFacts
from penstock.lake.plugins import find_plugin
from penstock.lake.sql_catalog.procedure import CallResult, Parameter, Procedure, ProcedureCall
from penstock.model.clock import to_microseconds

HISTORY_LIMIT: Final = 1000
_TEXTS: Final = ("userId", "userName", "operation", "isolationLevel", "userMetadata", "engineInfo")


def _describe_history(call: ProcedureCall) -> CallResult:
    table = call.table.outside_read_set
    plugin = find_plugin(table.content)
    limit = call.get_number("limit")
    versions = [] if plugin is None else plugin.describe_table(table).list_versions(limit or HISTORY_LIMIT)
    if not versions:
        raise NotManaged(
            f"'{table.key}' is {table.content.type_in_words}, which has no versions of its own: SHOW LOG "
            "lists the commits of its branch",
            key=str(table.key),
        )
    return CallResult([_describe_version(version) for version in versions])


def _describe_version(version: VersionFacts) -> list[Any]:
    info = {"operation": version.operation, **version.info}
    texts = {name: _format_value(info.get(name)) for name in _TEXTS}
    read_version, is_blind = info.get("readVersion"), info.get("isBlindAppend")
    return [
        version.version,
        None if version.time is None else to_microseconds(version.time),
        texts["userId"],
        texts["userName"],
        texts["operation"],
        _format_values(info.get("operationParameters")),
        read_version if isinstance(read_version, int) else None,
        texts["isolationLevel"],
        is_blind if isinstance(is_blind, bool) else None,
        _format_values(info.get("operationMetrics")),
        texts["userMetadata"],
        texts["engineInfo"],
    ]


def _format_values(told: object) -> dict[str, str | None] | None:
    return (
        {str(name): _format_value(value) for name, value in told.items()}
        if isinstance(told, Mapping)
        else None
    )


def _format_value(value: object) -> str | None:
    """A text as it is; anything else as JSON has it."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


HISTORY: Final = {
    "history": Procedure(
        "The versions of a table, newest first, with the columns of Delta's DESCRIBE HISTORY.",
        (Parameter("table"), Parameter("limit", "bigint", str(HISTORY_LIMIT))),
        "version bigint, timestamp timestamp, userId string, userName string, operation string, "
        "operationParameters map<string, string>, readVersion bigint, isolationLevel string, "
        "isBlindAppend boolean, operationMetrics map<string, string>, userMetadata string, engineInfo string",
        _describe_history,
    ),
}
"""By their names."""
