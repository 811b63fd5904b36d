"""What the lake refuses, it refuses through a server, by the same kind of error, and nothing is written."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidName, TooLarge
from penstock.lake.lake import Lake
from tests.lake.test_bad_input import CONTENTS, KEYS, MERGES, NAMES, REQUESTS, Case, _prepare
from tests.queue.hooks import everything

CASES = {**KEYS, **CONTENTS, **REQUESTS, **NAMES, **MERGES}
CASES["too many operations"] = (*CASES["too many operations"][:1], TooLarge, "at most 500,000")
"""A server refuses the body before it is decoded."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_cannot_be_is_refused(embedded: Lake, remote: Lake, case: Case) -> None:
    do, error, _ = case
    _prepare(embedded)
    before = everything(embedded.kernel.store)
    with pytest.raises(error):
        do(remote)
    assert everything(embedded.kernel.store) == before


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 1000, "a/b/../c", "a b", "ü"])
def test_a_name_that_cannot_be_is_refused_in_the_same_words(embedded: Lake, remote: Lake, name: str) -> None:
    told = []
    for lake in (embedded, remote):
        with pytest.raises(InvalidName) as caught:
            _ = lake.branch(name).reference
        told.append(str(caught.value))
    assert told[0] == told[1]
