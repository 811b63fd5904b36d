"""Calls about files and jobs as they come over the wire: whatever they say, they are answered."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from penstock.errors import InvalidRequest, MergeConflict
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake.calls import CALLS, NewFile, WriteFiles
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from tests.remote.scenarios import told
from tests.remote.serving import Served
from tests.wire.values import values

KEY = Key("raw", "events")
PATHS = some.sampled_from(["x", "a/y", "a/", "a", "", "\x00", "../x", "/"])
SAID: dict[str, some.SearchStrategy[Any]] = {
    "key": some.just(KEY),
    "branch": some.sampled_from([None, "main", "dev", "nobody"]),
    "at": some.sampled_from([None, "main", "dev~1", "nobody"]),
    "prefix": PATHS,
    "after": PATHS,
    "file": some.lists(PATHS, max_size=3).map(tuple),
    "removed": some.lists(PATHS, max_size=2).map(tuple),
    "replaced": some.lists(PATHS, max_size=2).map(tuple),
    "id": some.sampled_from(["0" * 32, "1" * 32, "nonsense"]),
    "job": some.sampled_from([None, "0" * 32, "nonsense"]),
    "fence": some.sampled_from(["2" * 32, "nonsense"]),
    "limit": some.sampled_from([0, 1, 100]),
    "idempotency_key": some.none(),
}


def call_of(kind: type[Call[Any]]) -> some.SearchStrategy[Any]:
    """A call of a type with any values, some of which name what there is."""
    chosen = {name: SAID[name] for name in kind.__struct_fields__ if name in SAID}
    return some.builds(
        lambda call, more: kind(**{name: getattr(call, name) for name in kind.__struct_fields__} | more),
        values(kind),
        some.fixed_dictionaries({}, optional=chosen),
    )


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.__name__)
def test_no_call_about_files_makes_the_server_fail(
    kind: type[Call[Any]], own: Lake, far: Lake, server: Served
) -> None:
    own.table(KEY).files.write({"x": b"1", "a/y": b"2"})
    own.branch("dev").create()

    @given(call_of(kind))
    @settings(suppress_health_check=list(HealthCheck))
    def check(call: Any) -> None:
        assert "internal error of the server" not in str(told(lambda: far.do(call)))
        assert "Traceback" not in str(told(lambda: own.do(call)))

    check()
    assert "trace" not in server.log
    assert own.fsck().damages == ()


def test_a_merge_can_be_decided_path_by_path(lake: Lake) -> None:
    files = lake.table(KEY).files
    files.write({"a/x": b"0", "b/c": b"0"})
    lake.branch("dev").create()
    lake.table(KEY, "dev").files.write({"a/x": b"dev", "b/c": b"dev"})
    files.write({"a/x": b"main", "b/c": b"main"})
    with pytest.raises(MergeConflict) as caught:
        lake.merge("dev")
    assert sorted(one.path for one in caught.value.conflicts) == ["a/x", "b/c"]
    how = KeyMerge(paths={"a/": MergeMode.FORCE, "b/": MergeMode.DROP})
    lake.merge("dev", keys={KEY: how})
    assert (files.read("a/x"), files.read("b/c")) == (b"dev", b"main")


def test_files_that_were_written_long_ago_are_refused_before_a_sweep_can_take_them(lake: Lake) -> None:
    old_us = now_us() - 6 * 24 * 3600 * 1_000_000  # of a grace time of seven days
    call = WriteFiles(
        key=KEY, folder=make_folder_name(lake.id, uuid4(), old_us), added=(NewFile(path="late", size=1),)
    )
    with pytest.raises(InvalidRequest, match="at any time; write them again"):
        lake.do(call)
    assert not lake.table(KEY).exists
