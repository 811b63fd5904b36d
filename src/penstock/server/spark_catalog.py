"""A lake as a catalog of Spark's SQL, for drivers without Python: their JVM asks here what others ask Python.

The questions and answers are the same. They are answered by calls of the lake with the rights of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.errors import NotFound, PenstockError
from penstock.lake.lake import Lake
from penstock.lake.sql_catalog.procedure import MAINTAIN
from penstock.lake.sql_catalog.procedures import call_procedure, end_if_over, renew_lease
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.lake.sql_catalog.statements import StatementCatalogue, find_landed
from penstock.lake.sql_catalog.steps import READS, WITHOUT_PYTHON, WRITE
from penstock.lake.sql_catalog.writes import find_written_table
from penstock.lake.suggestion import add_suggestion
from penstock.server.access import CheckedCatalogue
from penstock.server.routes import Route, RouteRequest
from penstock.wire.errors import ERROR_MARK, encode_error

PATH: Final = "/spark-catalog/"
_SUMMARIES: Final = {
    "tables": "List the tables and views of a namespace",
    "namespaces": "List the namespaces in a namespace",
    "namespace": "Get the properties of a namespace",
    "create_namespace": "Create a namespace",
    "alter_namespace": "Set properties of a namespace",
    "drop_namespace": "Drop a namespace",
    "table": "Describe a table or a view",
    "plan": "List the files of a table that a query reads",
    "skip_files": "List the files of a table that the filters of a query leave out",
    "create": "Create a table without rows",
    "write": "Describe how rows are written to a table",
    "commit_rows": "Commit the files with rows that Spark has written",
    "alter": "Change columns or properties of a table",
    "truncate": "Remove all rows of a table",
    "drop": "Drop a table or a view",
    "rename": "Rename a table or a view",
    "write_view": "Create or replace a view",
    "procedure": "Describe the parameters and columns of a procedure",
    "procedures": "List the procedures",
    "call": "Call a procedure",
    MAINTAIN: "Call a procedure that may take long",
}


def _make_handler(step: str) -> Callable[[RouteRequest], Any]:
    def handle_request(ask: RouteRequest) -> Any:
        request: CatalogRequest = ask.body
        catalogue = ask.catalogue
        if request.statement and step not in READS:
            catalogue = StatementCatalogue(catalogue, request.statement)
        with Lake(catalogue, request.user or ask.who) as lake:
            try:
                if step == WRITE and isinstance(
                    ask.catalogue, CheckedCatalogue
                ):  # before Spark writes for hours
                    key, branch = find_written_table(request)
                    ask.catalogue.require_write(branch, key)
                if request.transaction:
                    renew_lease(lake, request)
                if (landed := find_landed(lake, step, request)) is not None:
                    return landed
                if step == MAINTAIN:
                    answer = call_procedure(lake, request, is_in_driver=False, progress=ask.progress)
                else:
                    answer = WITHOUT_PYTHON[step](lake, request)
            except PenstockError as problem:
                if isinstance(problem, NotFound):
                    add_suggestion(problem, ask.catalogue)
                if not _is_transaction_over(lake, request):
                    raise
                # The session has to know that its later statements are not part of it.
                details = ERROR_MARK + encode_error(problem, ask.request_id).decode()
                return {"error": problem.message, "details": details, "transaction": ""}
        return msgspec.to_builtins(answer)

    return handle_request


def _is_transaction_over(lake: Lake, request: CatalogRequest) -> bool:
    with suppress(PenstockError):
        return end_if_over(lake, request)
    return False


ROUTES: Final = tuple(
    Route(
        method="POST",
        path=PATH + step,
        handle=_make_handler(step),
        summary=summary,
        description="For Penstock's catalog in a Spark driver without Python.",
        body=CatalogRequest,
        answer=dict[str, Any],
        is_write=step not in READS,
        streams=step == MAINTAIN,
    )
    for step, summary in _SUMMARIES.items()
)
