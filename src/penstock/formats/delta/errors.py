"""Errors that only Delta tables have."""

from __future__ import annotations

from penstock.errors import AdministratorError, NotFound, RequestError


class UnsupportedFeature(RequestError):
    """The table uses a feature (``details["feature"]``) that Penstock does not read, or does not write."""

    code = "unsupported_feature"


class MalformedAction(RequestError):
    """A line of a commit (``details["line"]``, from 1) is no action; ``details["reason"]`` says why."""

    code = "malformed_action"


class TableNotFound(NotFound):
    """There is no Delta log at that place."""

    code = "table_not_found"


class VersionNotFound(NotFound):
    """The table has no such version, or its log no longer reaches back to it."""

    code = "version_not_found"


class InvalidLog(AdministratorError):
    """A table's log breaks Delta's protocol, or a file of it cannot be read. ``details`` name the file."""

    code = "invalid_log"


class LogGap(InvalidLog):
    """A commit (``details["version"]``) is missing from the middle of a table's log."""

    code = "log_gap"
