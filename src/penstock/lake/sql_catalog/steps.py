"""Questions of a catalog that the lake answers by itself, by the names that engines have for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.lake.sql_catalog import entries, tables, views, writes
from penstock.lake.sql_catalog.procedure import CALL, MAINTAIN
from penstock.lake.sql_catalog.procedures import call_procedure, describe_procedure, list_procedures
from penstock.lake.sql_catalog.requests import CatalogRequest

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

WRITE: Final = "write"
"""The question how rows are to be written."""

Step: TypeAlias = Callable[["Lake", CatalogRequest], Any]

BY_NAME: Final[dict[str, Step]] = {
    "tables": entries.list_tables,
    "namespaces": entries.list_namespaces,
    "namespace": entries.get_namespace,
    "create_namespace": entries.create_namespace,
    "alter_namespace": entries.alter_namespace,
    "drop_namespace": entries.drop_namespace,
    "drop": entries.drop_table,
    "rename": entries.rename_table,
    "write_view": views.write_view,
    "skip_files": tables.skip_files,
    "procedure": lambda _, request: describe_procedure(request.procedure),
    "procedures": lambda _, __: {"procedures": list_procedures()},
}
"""What needs no engine, whoever asks."""

WITHOUT_PYTHON: Final[dict[str, Step]] = {
    **BY_NAME,
    CALL: lambda lake, request: call_procedure(lake, request, is_in_driver=False),
    MAINTAIN: lambda lake, request: call_procedure(lake, request, is_in_driver=False),
    "table": tables.describe_files,
    "plan": tables.scan_table,
    "create": tables.create_table,
    "alter": tables.alter_table,
    WRITE: writes.plan_write,
    "commit_rows": writes.commit_write,
    "truncate": tables.truncate_table,
}
"""What engines are answered that read files by themselves and have no Python to do more."""
READS: Final = frozenset(
    {"tables", "namespaces", "namespace", "procedure", "procedures", "table", "plan", "skip_files", WRITE}
)
"""Those of them that change nothing."""
CREATIONS: Final = frozenset({"create", "create_namespace", "write_view", WRITE})
"""Those for which a lake is made where there is none yet."""
