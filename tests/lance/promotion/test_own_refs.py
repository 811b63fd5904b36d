"""Lance's own branches and tags follow what the lake says of them, and leave those of others alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.formats.lance.chains import WaitingVersion
from penstock.formats.lance.intents import CreateStep, DropBranchStep, DropTagStep, PutBranchStep, PutTagStep
from penstock.formats.lance.names import PINS
from penstock.formats.lance.promotion_tasks import PromoteTask
from tests.lance.versions import Tables, file_name

lance = pytest.importorskip("lance")

LATER_S = 30.0


def refs(location: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Branches and tags, with the versions that they lead to, as plain Lance lists them."""
    opened = lance.dataset(str(location))
    branches = {name: one["parent_version"] for name, one in opened.branches.list().items()}
    tags = {name: one["version"] for name, one in opened.tags.list().items() if not name.startswith(PINS)}
    return branches, tags


def settle_refs(tables: Tables) -> None:
    assert tables.settle()
    tables.parts.promoter.close(LATER_S)


@pytest.fixture
def reopened(make: Callable[..., Tables]) -> Callable[..., Tables]:
    """The same tables, in a process that knows nothing of what was done before."""
    return lambda tables: make(store=tables.store)


def test_lances_own_branches_and_tags_are_seen_by_plain_lance_and_go_when_they_are_dropped(
    tables: Tables, reopened: Callable[..., Tables]
) -> None:
    location = tables.declare()
    tables.create(1, 2, 3)
    tables.change(
        "t",
        PutBranchStep(name="dev", version=2),
        PutBranchStep(name="team/sub", version=3),
        PutTagStep(name="v1", version=1),
        PutTagStep(name="v2", version=2),
    )
    settle_refs(tables)
    assert refs(location) == ({"dev": 2, "team/sub": 3}, {"v1": 1, "v2": 2})
    at_branch = lance.dataset(str(location)).checkout_version(("team/sub", None))
    assert at_branch.count_rows() == 3
    again = reopened(tables)
    again.change(
        "t",
        PutTagStep(name="v1", version=3, is_new=False),
        DropTagStep(name="v2"),
        DropBranchStep(name="dev"),
    )
    settle_refs(again)
    assert refs(location) == ({"team/sub": 3}, {"v1": 3})
    assert (location / "_refs/branches/team%2Fsub.json").exists()


def test_a_branch_of_a_branch_says_where_it_comes_from(tables: Tables) -> None:
    location = tables.declare()
    tables.create(1, 2)
    tables.change("t", PutBranchStep(name="dev", version=2))
    tables.change("t", PutBranchStep(name="fix", parent="dev", version=2))
    settle_refs(tables)
    listed = lance.dataset(str(location)).branches.list()
    assert listed["fix"]["parent_branch"] == "dev"
    assert listed["fix"]["branch_identifier"][:1] == listed["dev"]["branch_identifier"]
    assert len(listed["fix"]["branch_identifier"]) == 2


def test_a_branch_that_is_looked_at_before_its_version_is_there_is_seen_afterwards(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = tables.declare()
    tables.create(1, 2)
    tables.change("t", PutBranchStep(name="dev", version=2))
    assert tables.settle()
    ref_files, chains = tables.parts.promoter._refs, tables.parts.promoter._chains
    assert ref_files is not None
    put = chains.put_manifest

    def put_later(told: PromoteTask, one: WaitingVersion) -> bool:
        ref_files.update_files(told)  # as the job does that follows from the branch before
        return put(told, one)

    monkeypatch.setattr(chains, "put_manifest", put_later)
    tables.change("t", PutBranchStep(name="fix", parent="dev", version=2))
    settle_refs(tables)
    assert {"dev", "fix"} <= lance.dataset(str(location)).branches.list().keys()


def test_tags_that_somebody_made_with_plain_lance_stay_as_they_are(
    tables: Tables, reopened: Callable[..., Tables]
) -> None:
    location = tables.declare()
    tables.create(1, 2)
    assert tables.settle()
    lance.dataset(str(location)).tags.create("theirs", 1)
    lance.dataset(str(location)).tags.create("both", 1)
    tables.change("t", PutTagStep(name="ours", version=2), PutTagStep(name="both", version=2))
    settle_refs(tables)
    assert refs(location)[1] == {"theirs": 1, "ours": 2, "both": 1}
    again = reopened(tables)
    again.change("t", DropTagStep(name="ours"))
    settle_refs(again)
    assert refs(location)[1] == {"theirs": 1, "both": 1}


def test_the_file_of_a_branch_that_a_client_makes_is_left_to_the_client(tables: Tables) -> None:
    location = tables.declare()
    tables.create(1, 2)
    assert tables.settle()
    lance.dataset(str(location)).create_branch("dev", 2)
    shutil.rmtree(location / "_refs/branches")
    name = f"tree/dev/_versions/{file_name(2)}-{UUID(int=1)}"
    (location / f"tree/dev/_versions/{file_name(2)}").rename(location / name)
    tables.change("t", CreateStep(branch="dev", version=2, path=name))
    settle_refs(tables)
    assert (location / f"tree/dev/_versions/{file_name(2)}").exists()
    assert not (location / "_refs/branches").exists()


def test_a_reference_says_what_lance_itself_would_write(tables: Tables) -> None:
    location = tables.declare()
    tables.create(1)
    tables.change("t", PutTagStep(name="ours", version=1))
    settle_refs(tables)
    lance.dataset(str(location)).tags.create("theirs", 1)
    ours, theirs = (
        json.loads((location / f"_refs/tags/{name}.json").read_text()) for name in ("ours", "theirs")
    )
    assert ours.pop("penstock") == "this lake"
    assert ours.keys() == theirs.keys()
    changing = ("createdAt", "updatedAt")
    assert {**ours, **dict.fromkeys(changing)} == {**theirs, **dict.fromkeys(changing)}
