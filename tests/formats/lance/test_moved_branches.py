"""A branch of the lake that is moved: its folder is not, and what is left there is not taken for its own."""

from __future__ import annotations

from typing import Any

import lance_namespace as spec

from penstock import Key, Lake
from penstock.formats.lance.branch_chains import WriteTarget, begin_chain
from penstock.formats.lance.lake.calls import CommitLance, PutLanceBranch
from penstock.formats.lance.names import make_manifest_path
from tests.formats.lance.tables import (
    content,
    embedded,
    keys_of,
    newest,
    opened,
    rows,
    state,
    versions,
    write,
)

ITEMS = Key("items")


def on_exp(lake: Lake, ref: str) -> Any:
    """Lance's own branch of a table, as a branch of the lake has it."""
    return opened(lake, ref).checkout_version(("exp", None))


def begun_exp(lake: Lake, ref: str, key: int) -> None:
    lake.do(CommitLance(branch=ref, operations=(PutLanceBranch(key=ITEMS, branch="exp"),)))
    on_exp(lake, ref).insert(rows(key))


def exp_keys(lake: Lake, ref: str) -> list[int]:
    return sorted(on_exp(lake, ref).to_table()["k"].to_pylist())


def test_lances_own_branch_is_that_of_the_branch_that_another_was_set_to(forked: Lake) -> None:
    """Both have versions of the same numbers on it, from the same version of the table."""
    begun_exp(forked, "dev", 10)
    begun_exp(forked, "main", 77)
    forked.branch("dev").assign("main")
    assert exp_keys(forked, "dev") == [1, 2, 3, 4, 5, 77]
    on_exp(forked, "dev").insert(rows(99))
    assert exp_keys(forked, "dev") == [1, 2, 3, 4, 5, 77, 99]
    assert exp_keys(forked, "main") == [1, 2, 3, 4, 5, 77]


def test_a_line_without_lances_own_branches_has_the_name_that_it_always_had(forked: Lake) -> None:
    standing = WriteTarget(forked.kernel.branch("dev").incarnation)
    before = begin_chain(standing, content(forked, "dev"), versions(forked, "dev"))
    write(forked, "dev", 10)
    assert (state(forked, "dev").chain, state(forked, "dev").owner) == before


def test_another_manifest_under_the_name_of_a_version_is_not_taken_for_it(forked: Lake) -> None:
    """Whatever left it there: what is read is the version that the branch has."""
    number, version = newest(forked)
    place = embedded(forked).places.open_place(content(forked).location)
    standing = WriteTarget(forked.kernel.branch("dev").incarnation)
    line = begin_chain(standing, content(forked, "dev"), versions(forked, "dev")).folder
    (older,) = place.read([make_manifest_path("", "", number - 1)])
    assert older is not None
    place.create(make_manifest_path(line, "", number), older)
    assert keys_of(forked, "dev") == [1, 2, 3, 4, 5]
    request = spec.DescribeTableVersionRequest(id=["items"], version=number)
    found = forked.lance("dev").describe_table_version(request).version
    assert "_staging/apart-" in found.manifest_path
    assert version.chain == ""
