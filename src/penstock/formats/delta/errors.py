"""The errors that Delta tables have: part of the one tree, which a client knows without knowing Delta."""

from __future__ import annotations

from penstock.errors import (
    ForeignCommit,
    InvalidLog,
    InvalidTable,
    LogGap,
    MalformedAction,
    ManagedElsewhere,
    NotManaged,
    TableConflict,
    TableNotFound,
    UnsupportedFeature,
    VersionNotFound,
)

__all__ = [
    "ForeignCommit",
    "InvalidLog",
    "InvalidTable",
    "LogGap",
    "MalformedAction",
    "ManagedElsewhere",
    "NotManaged",
    "TableConflict",
    "TableNotFound",
    "UnsupportedFeature",
    "VersionNotFound",
]
