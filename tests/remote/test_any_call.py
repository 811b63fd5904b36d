"""Whatever is asked, a server answers, or says what is wrong with it; it does not fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from penstock.lake.calls import CALLS, Call
from penstock.lake.lake import Lake
from tests.chance import examples
from tests.remote.scenarios import prepare, told
from tests.remote.serving import Served
from tests.wire.values import values

REVISIONS = some.sampled_from(["main", "dev/x", "v1", "main~2", "gone", "nobody", "0" * 64, "main^9", ""])


def _call(kind: type[Call[Any]]) -> some.SearchStrategy[Any]:
    """A call of a type with any values, some of which name what there is."""
    names = {
        "at",
        "to",
        "before",
        "one",
        "other",
        "branch",
        "source",
        "name",
        "revision",
        "into",
        "onto",
        "ref",
    }
    fields = [field for field in kind.__struct_fields__ if field in names]
    return some.builds(
        lambda call, chosen: type(call)(**{**_asdict(call), **chosen}),
        values(kind),
        some.fixed_dictionaries({}, optional=dict.fromkeys(fields, REVISIONS)),
    )


def _asdict(call: Any) -> dict[str, Any]:
    return {name: getattr(call, name) for name in call.__struct_fields__}


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.__name__)
def test_no_call_makes_the_server_fail(
    kind: type[Call[Any]], embedded: Lake, remote: Lake, served: Served
) -> None:
    prepare(embedded)

    @given(_call(kind))
    @settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))
    def check(call: Any) -> None:
        answer = told(lambda: remote.do(call))
        assert "internal error of the server" not in str(answer)

    check()
    assert "trace" not in served.log
