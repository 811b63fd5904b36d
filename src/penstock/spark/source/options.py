"""The options of ``format("penstock")``: which table of which lake, and how."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.model import decoders
from penstock.model.keys import Key
from penstock.spark.settings import SESSION_LAKE
from penstock.stores.urls import hide_secrets

LAKE_VARIABLE: Final = "PENSTOCK_LAKE"

_NO_TABLE: Final = (
    "no table is named: use .option('table', 'sales.orders'), or name it in load() or save()\n  Tables "
    "of Spark's own catalog (CREATE TABLE, saveAsTable, insertInto, writeTo) do not pass options on; for "
    "SQL use CREATE TEMPORARY VIEW … USING penstock OPTIONS (table '…'), or penstock.spark.view."
)
_NO_LAKE: Final = (
    "no lake is named: use .option('lake', ADDRESS), create the session by penstock.spark.session(lake), or "
    "set PENSTOCK_LAKE where Spark's driver is started"
)
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
"""What Spark adds to the options of a source."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say. Spark tells their names in small letters."""

    lake: str
    """The address that the lake is opened by, in every process of Spark's that needs it."""
    table: Key
    ref: str | None = None
    """The branch that is written on, or what is read: a branch, a tag, a commit. Else the default branch."""
    version: int | None = None
    timestamp: str | None = None
    where: str | None = None
    """Only rows for which this condition is true are read."""
    replace_where: str | None = None
    """What an overwrite replaces: a condition on partition columns."""
    merge_schema: bool = False
    """Whether a write adds the columns to the table that only the rows have."""
    app_id: str | None = None
    batch: int | None = None
    """Of the application: it is written once, however often it is sent."""
    message: str | None = None
    author: str | None = None
    starting_version: str | None = None
    """Where a stream begins: a version, or ``latest`` for what comes from now on."""
    starting_timestamp: str | None = None
    max_files_per_trigger: int | None = None
    skip_change_commits: bool = False
    """Whether a stream leaves out the versions that remove or replace rows, rather than stop at them."""

    def open(self) -> Lake:
        """The lake. It is the caller's to close."""
        return open_lake(self.lake, create=False, author=self.author, catch_up=False)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """What somebody asks for. ``InvalidRequest`` for what is not known: a typing error could cost data."""
    given_options = {name.lower(): value for name, value in given.items()}
    option_names = {name.replace("_", ""): name for name in (*SourceOptions.__struct_fields__, "branch")}
    options: dict[str, str] = {}
    for name, value in given_options.items():
        field = option_names.get(name.replace("_", ""))
        if field is not None:
            options[field] = value
        elif name not in _SPARKS_OWN and name != SESSION_LAKE:
            names = ", ".join(sorted(option_names.values()))
            raise InvalidRequest(f"format('penstock') has no option '{name}'; the options are {names}")
    if "branch" in options and options.setdefault("ref", options["branch"]) != options.pop("branch"):
        raise InvalidRequest("'branch' and 'ref' name the same thing; give one of them")
    table = options.pop("table", None) or given_options.get("path")
    if not table:
        raise InvalidRequest(_NO_TABLE)
    return _parse_options(
        options | {"lake": _choose_lake(options.get("lake"), given_options.get(SESSION_LAKE)), "table": table}
    )


def _parse_options(found: Mapping[str, str]) -> SourceOptions:
    """The options with their types."""
    table = Key.parse(found["table"])
    plain = {name: value for name, value in found.items() if name != "table"}
    try:
        # Not strict: numbers and truth come as text.
        return decoders.convert_value({**plain, "table": table}, SourceOptions, strict=False)
    except msgspec.ValidationError as problem:
        raise InvalidRequest(f"invalid option of format('penstock'): {problem}") from None


def _choose_lake(told: str | None, of_session: str | None) -> str:
    """The lake that is named; else the session's, by the address in the environment if that is the same with
    its secrets; else that in the environment."""
    lake_of_environment = os.environ.get(LAKE_VARIABLE, "")
    if of_session and "://" in lake_of_environment and hide_secrets(lake_of_environment) == of_session:
        of_session = lake_of_environment
    address = told or of_session or lake_of_environment
    if not address:
        raise InvalidRequest(_NO_LAKE)
    if address.startswith("memory:"):
        raise InvalidRequest(
            "a lake in memory exists in one process only, but Spark reads and writes in others: use a lake "
            "in a directory, in a database or behind a server"
        )
    return address
