"""Row work: operations for which Lance opens a table, done in a process apart from the server.

The request's body is read here too: it may hold a million numbers, or rows that are packed small.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from typing import Any, Final

import msgspec
from lance_namespace import InvalidInputError

from penstock.formats.lance.lake.data_arrow import check_unpacked_size
from penstock.formats.lance.lake.namespace import PenstockNamespace
from penstock.formats.lance.rest.codec import read_object
from penstock.formats.lance.rest.operations import BY_NAME
from penstock.formats.lance.rest.request_handler import (
    LanceRequest,
    make_answer,
    open_lance_namespace,
    parse_lance_request,
    raise_as_lance_errors,
)
from penstock.lake.lake import Lake
from penstock.lake.worker_calls import TaskCatalogue
from penstock.model.decoders import get_json_decoder
from penstock.processes.child_process import ChildTask, TaskResult
from penstock.processes.frames import INLINE_MAX_BYTES

VECTORS_MAX: Final = 1_000
"""Of one query: each of them is a search of its own."""
CACHE_SHARE: Final = 4
"""Of the memory of a process, for what Lance keeps of indexes while it works."""


def run_operation(task: ChildTask) -> TaskResult:
    """Do one operation, and give its answer: the headers that are its own, and its body."""
    asked = get_json_decoder(LanceRequest).decode(task.head)
    operation = BY_NAME[asked.operation]
    request: Any = parse_lance_request(asked, {} if operation.has_rows else read_object(task.body or b"{}"))
    with raise_as_lance_errors():
        namespace = open_lance_namespace(asked, Lake(TaskCatalogue(task, asked.page_max), asked.who))
        namespace.cache_max_bytes = task.memory_max_bytes // CACHE_SHARE
        _check_vectors(request)
        if operation.name == "query_table":
            return _run_query(namespace, request)
        if operation.has_rows:
            with nullcontext() if operation.name == "create_table" else namespace.check_table_first(request):
                check_unpacked_size(task.body, asked.body_max_bytes)
            answer = make_answer(operation, getattr(namespace, operation.name)(request, task.body))
        else:
            answer = make_answer(operation, getattr(namespace, operation.name)(request))
    return TaskResult(msgspec.json.encode(answer.headers), answer.body)


def _run_query(namespace: PenstockNamespace, request: Any) -> TaskResult:
    """The rows, in a file if they are many."""
    file = tempfile.SpooledTemporaryFile(INLINE_MAX_BYTES)  # noqa: SIM115 - it is given away
    namespace.write_query(request, file)
    return TaskResult(b"[]", file)


def _check_vectors(request: Any) -> None:
    vectors = getattr(getattr(request, "query", request), "vector", None)
    count = len(getattr(vectors, "multi_vector", None) or ())
    if count > VECTORS_MAX:
        raise InvalidInputError(
            f"'multi_vector' has {count:,} vectors, but one query can have at most {VECTORS_MAX:,}: send "
            "several queries"
        )
