"""Requests made from the OpenAPI description, right and wrong ones: every answer is one that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.schemas import APIOperation

from penstock import DeltaTable, IcebergTable, IcebergView, Key, LanceTable, Namespace, Put, Udf
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.model.content import AnyContent
from penstock.server.openapi import describe_apis
from penstock.server.run import load_apis
from tests.server.running import local

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(describe_apis(load_apis()))
OPERATIONS: dict[str, APIOperation[Any, Any, Any, Any]] = {
    cast("Any", found).ok().label: cast("Any", found).ok() for found in SCHEMA.get_all_operations()
}


QUICK = [name for name in OPERATIONS if not any(f"/lance/{base}/" in name for base in ("branch", "tx", "at"))]
"""Lance's API is the same below all of its addresses: one of them will do."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with a lake that has some of everything."""
    with open_lake("memory:", author="ada") as lake:
        _fill(lake)
        with local(lake.catalogue, load_apis()) as server:
            yield server.url


def _fill(lake: Lake) -> None:
    main = lake.branch()
    contents: dict[str, AnyContent] = {
        "a": Namespace(properties={"owner": "ada"}),
        "a.orders": IcebergTable(metadata_location="s3://b/orders/v1.json", snapshot_id=2**62),
        "a.days": IcebergView(metadata_location="s3://b/days/v1.json"),
        "a.twice": Udf(metadata_location="s3://b/twice.json"),
        "a.returns": DeltaTable(metadata_location_history=("s3://b/r/1.json",), last_checkpoint="c"),
        "a.vectors": LanceTable(),
        'a."odd.name/%"': IcebergTable(metadata_location="s3://b/odd.json"),
    }
    main.commit([Put(Key.parse(key), content) for key, content in contents.items()], message="all kinds")
    lake.branch("dev").create()
    lake.branch("dev").drop("a.days")
    main.put("a.orders", IcebergTable(metadata_location="s3://b/orders/v2.json"))
    lake.tag("v1").create(at="dev")
    lake.branch("feature/x").create(at="main~1")


PATIENCE_S = 120
"""How long an answer may take: the first work on rows starts a process, slowly beside other load."""

KNOWN = {
    "ref": ["main", "dev", "v1", "-", "main~1", "dev^1", "feature/x@", "main*2999-01-01T00:00:00.0Z"],
    "branch": ["main", "dev", "v1", "main@{head}", "dev@{head}", "@{head}"],
    "from": ["main", "v1", "main~1"],
    "to": ["dev", "v1", "main@{head}"],
    "key": ["a.orders", "a", "a.none", "a.vectors", ".a.odd*.name*{*["],
    "name": ["main", "dev", "v1", "a"],
    "type": ["branch", "tag"],
    "revision": ["main", "dev~1", "{head}", "main~1"],
    "id": ["0123456789ab"],
}
"""Values of path parameters that lead somewhere: made-up ones hardly ever do."""


@st.composite
def cases(draw: st.DrawFn, operation: APIOperation[Any, Any, Any, Any], head: str) -> Any:
    has_input = any(True for _ in operation.iter_parameters()) or len(operation.body)
    modes = list(GenerationMode) if has_input else [GenerationMode.POSITIVE]
    case = draw(operation.as_strategy(draw(st.sampled_from(modes))))
    for name in case.path_parameters or {}:
        if name in KNOWN and draw(st.integers(0, 3)):
            case.path_parameters[name] = draw(st.sampled_from(KNOWN[name])).replace("{head}", head)
    return case


@pytest.mark.parametrize("name", QUICK)
def test_every_answer_is_one_that_the_description_names(name: str, url: str) -> None:
    _try(OPERATIONS[name], url, 2)


@pytest.mark.verify
@pytest.mark.parametrize("name", QUICK)
def test_every_answer_to_some_requests_is_one_that_the_description_names(name: str, url: str) -> None:
    _try(OPERATIONS[name], url, 8 if "/lance/v1/" in name else 25)


@pytest.mark.reliability
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_to_many_requests_is_one_that_the_description_names(name: str, url: str) -> None:
    """Others each time: fewer at once than would tell anything new if they were always the same."""
    _try(OPERATIONS[name], url, 100 if name in QUICK else 30, derandomize=False)


def _try(
    operation: APIOperation[Any, Any, Any, Any], url: str, examples: int, *, derandomize: bool = True
) -> None:
    session = requests.Session()
    head = session.get(f"{url}/api/penstock/v1/resolve?revision=main").json()["commit"]

    @settings(
        max_examples=examples,
        derandomize=derandomize,
        print_blob=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(operation, head))
    def run(case: Any) -> None:
        case.call_and_validate(base_url=url, session=session, checks=CHECKS, timeout=PATIENCE_S)

    run()
