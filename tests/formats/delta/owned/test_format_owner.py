"""A lake changes no table that is another's, none that it was released, and never has two at one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.errors import CommitConflict, InvalidRequest, MergeConflict, NotManaged
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase
from penstock.formats.delta.branch_log.intents import AdoptIntent, CreateIntent, ReleaseIntent, SettleIntent
from penstock.formats.delta.branch_log.ownership import (
    TableBeforeCommit,
    encode_adoption_commit,
    encode_release_commit,
)
from penstock.formats.delta.protocol.actions import Metadata, Protocol
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.content import Namespace
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from penstock.model.operations import Delete, Put
from penstock.stores.port import Store
from tests.formats.delta.managed import KEY, SCHEMA, Owner, add

META = CommitMeta(message="m")
FORCE = MergeOptions({Key.parse(KEY): KeyMerge(mode=MergeMode.FORCE)})
OTHER = "orders_too"


def head(owner: Owner, branch: str = "main") -> ObjectId:
    return owner.kernel.references.get_reference(branch).head


def merge(owner: Owner, source: str, into: str = "main", options: MergeOptions = MergeOptions()) -> None:
    owner.kernel.merge(head(owner, source), into, META, options)


def drop(owner: Owner, key: str = KEY, branch: str = "main") -> ObjectId:
    return owner.kernel.commit(branch, [Delete(Key.parse(key))], META).head


def rename(owner: Owner, branch: str) -> None:
    moved = Put(Key.parse(OTHER), owner.content(branch=branch))
    owner.kernel.commit(branch, [Delete(Key.parse(KEY)), moved], META)


def handed_back(owner: Owner) -> ReleaseIntent:
    """The commit that releases the table as it is now."""
    about, line, uuid = owner.snapshot(), owner.line(), uuid4()
    before = TableBeforeCommit(
        version=line.latest, protocol=about.protocol, metadata=about.metadata, timestamp_ms=line.timestamp_ms
    )
    return ReleaseIntent(
        version=line.latest + 1, actions=encode_release_commit(before, uuid, owner.clock() // 1000), uuid=uuid
    )


def adoption(owner: Owner, location: Path, version: int = 5) -> AdoptIntent:
    """The promise to own a table that somebody else has written so far."""
    before = TableBeforeCommit(
        version=version - 1,
        protocol=Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",)),
        metadata=Metadata(
            id="m",
            schema_string=SCHEMA,
            partition_columns=(),
            configuration={"delta.enableInCommitTimestamps": "true"},
        ),
        timestamp_ms=1000,
    )
    identity, uuid = uuid4(), uuid4()
    actions = encode_adoption_commit(before, owner.identity, identity, uuid, owner.clock() // 1000)
    return AdoptIntent(id=identity, location=str(location), version=version, actions=actions, uuid=uuid)


# --- tables of another lake ---------------------------------------------------------------------------------


WAYS: dict[str, Callable[[Owner], object]] = {
    "commit": lambda copy: copy.commit([add("x")]),
    "attempt": lambda copy: copy.commit([add("x")], version=3),
    "merge": lambda copy: merge(copy, "dev"),
    "force": lambda copy: merge(copy, "dev", options=FORCE),
    "merge into a branch": lambda copy: merge(copy, "main", "dev"),
    "revert": lambda copy: copy.kernel.revert(head(copy), "main", META),
    "release": lambda copy: copy.ask(handed_back(copy)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_a_lake_reads_the_tables_of_the_other_and_changes_none(
    owner: Owner, store: Store, tmp_path: Path, way: str
) -> None:
    owner.create()
    owner.commit([add("base")])
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("m1")])
    before = sorted((tmp_path).rglob("*"))
    copy = Owner(store, tmp_path, lake="a-copy")
    line, branch = copy.line(), copy.line(branch="dev")
    with pytest.raises(NotManaged, match="so this lake only reads it"):
        WAYS[way](copy)
    assert (copy.line(), copy.line(branch="dev")) == (line, branch)
    assert sorted((tmp_path).rglob("*")) == before
    assert copy.paths() == {"base", "m1"}
    assert copy.paths(branch="dev") == {"base", "d1"}
    copy.close()


def test_a_copy_of_a_lake_forgets_a_table_without_touching_it(
    owner: Owner, store: Store, tmp_path: Path
) -> None:
    intent = adoption(owner, tmp_path / "adopted")
    owner.ask(intent)
    copy = Owner(store, tmp_path, lake="a-copy")
    with pytest.raises(NotManaged, match="only reads it"):
        copy.ask(SettleIntent(id=intent.id, owned=True))
    drop(copy)
    copy.close()


@pytest.mark.parametrize("kind", ["create", "adopt"])
def test_a_table_that_would_name_another_owner_does_not_come(
    owner: Owner, store: Store, tmp_path: Path, kind: str
) -> None:
    copy = Owner(store, tmp_path, lake="a-copy")
    intent: AdoptIntent | CreateIntent = adoption(copy, tmp_path / "there")
    if kind == "create":
        location = copy.create(OTHER).location + "-2"
        intent = CreateIntent(id=uuid4(), location=location, actions=copy.data(0, OTHER), uuid=uuid4())
    with pytest.raises(InvalidRequest, match="names another"):
        owner.ask(intent)
    copy.close()


# --- tables that were released ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_settled", [False, True], ids=["releasing", "gone"])
@pytest.mark.parametrize("way", ["merge", "force", "rename", "revert"])
def test_a_released_table_gets_no_version_from_a_branch_that_still_has_it(
    owner: Owner, way: str, is_settled: bool
) -> None:
    content = owner.create()
    owner.commit([add("base")])
    owner.branch("dev")
    if way == "rename":
        rename(owner, "dev")
    key = OTHER if way == "rename" else KEY
    owner.commit([add("d1")], key=key, branch="dev")
    owner.ask(handed_back(owner))
    owner.published()
    assert content.id is not None
    if is_settled:
        owner.ask(SettleIntent(id=content.id, owned=False))
    assert owner.commit([add("d2")], key=key, branch="dev") == 3  # a branch does not know of it
    bring: Callable[[], object] = partial(
        merge, owner, "dev", options=FORCE if way == "force" else MergeOptions()
    )
    if way == "revert":
        bring = partial(owner.kernel.revert, head(owner), "main", META)
    with pytest.raises(MergeConflict, match=r"was released|dropped or renamed here"):
        bring()
    log = Path(content.location) / "_delta_log"
    assert len(list(log.glob("*.json"))) == 3


# --- branches that left while a table was adopted -----------------------------------------------------------


@pytest.mark.parametrize("mode", [MergeMode.NORMAL, MergeMode.FORCE])
@pytest.mark.parametrize("is_owned", [True, False])
def test_a_branch_that_left_during_an_adoption_learns_by_a_merge_how_it_ended(
    owner: Owner, tmp_path: Path, mode: MergeMode, is_owned: bool
) -> None:
    intent = adoption(owner, tmp_path / "adopted")
    owner.ask(intent)
    owner.branch("dev")
    owner.ask(SettleIntent(id=intent.id, owned=is_owned))
    with pytest.raises(CommitConflict, match="is being adopted"):
        owner.commit([add("d1")], branch="dev")
    merge(owner, "main", "dev", MergeOptions({Key.parse(KEY): KeyMerge(mode=mode)}))
    if is_owned:
        assert owner.line(branch="dev").phase is OwnershipPhase.OWNED
        assert owner.commit([add("d1")], branch="dev") == 6
    else:
        with pytest.raises(AssertionError):
            owner.content(branch="dev")


def test_a_branch_that_left_during_an_adoption_can_drop_the_table(owner: Owner, tmp_path: Path) -> None:
    intent = adoption(owner, tmp_path / "adopted")
    owner.ask(intent)
    owner.branch("dev")
    drop(owner, branch="dev")
    assert owner.line().phase is OwnershipPhase.ADOPTING
    owner.ask(SettleIntent(id=intent.id, owned=True))
    owner.commit([add("a")])
    merge(owner, "main", "dev", FORCE)
    assert owner.line(branch="dev") == owner.line()


# --- one table at a place -----------------------------------------------------------------------------------


def taken_again(owner: Owner) -> tuple[ObjectId, AdoptIntent]:
    """A table was dropped, and what is there was taken into the lake anew: the commit that dropped it."""
    content = owner.create()
    owner.commit([add("base")])
    owner.published()
    dropped = drop(owner)
    again = adoption(owner, Path(content.location), version=2)
    owner.ask(again, key=OTHER)
    owner.ask(SettleIntent(id=again.id, owned=True), key=OTHER)
    return dropped, again


def test_a_dropped_table_does_not_return_to_where_another_one_is(owner: Owner) -> None:
    dropped, _ = taken_again(owner)
    with pytest.raises(MergeConflict, match=f"already the location of '{OTHER}'"):
        owner.kernel.revert(dropped, "main", META)
    drop(owner, OTHER)
    with pytest.raises(MergeConflict, match="belongs to another table now"):
        owner.kernel.revert(dropped, "main", META)


def test_the_last_table_at_a_place_returns(owner: Owner) -> None:
    _, again = taken_again(owner)
    dropped = drop(owner, OTHER)
    owner.kernel.revert(dropped, "main", META)
    assert owner.content(OTHER).id == again.id


def test_two_tables_do_not_come_to_one_place(owner: Owner) -> None:
    content = owner.create()
    with pytest.raises(CommitConflict, match=f"already the location of '{KEY}'"):
        owner.ask(adoption(owner, Path(content.location + "/")), key=OTHER)
    rename(owner, "main")
    assert owner.content(OTHER).id == content.id


# --- the default branch -------------------------------------------------------------------------------------


def test_the_default_branch_is_not_rebased_so_that_its_versions_become_others(owner: Owner) -> None:
    owner.create()
    owner.commit([add("base")])
    owner.branch("x")
    owner.commit([add("m1")])
    was = owner.data(2)
    owner.kernel.commit("x", [Put(Key.parse("elsewhere"), Namespace())], META)
    with pytest.raises(InvalidRequest, match="would get another version 2"):
        owner.kernel.rebase("main", head(owner, "x"), META)
    assert owner.data(2) == was


def test_the_default_branch_is_rebased_where_its_tables_stay_what_they_are(owner: Owner) -> None:
    owner.create()
    owner.commit([add("base")])
    owner.branch("x")
    owner.kernel.commit("main", [Put(Key.parse("here"), Namespace())], META)
    owner.kernel.commit("x", [Put(Key.parse("elsewhere"), Namespace())], META)
    line = owner.line()
    owner.kernel.rebase("main", head(owner, "x"), META)
    assert owner.line() == line
    assert owner.commit([add("m1")]) == 2


def test_the_default_branch_does_not_go_back_into_an_adoption(owner: Owner, tmp_path: Path) -> None:
    intent = adoption(owner, tmp_path / "adopted")
    owner.ask(intent)
    promised = head(owner)
    owner.ask(SettleIntent(id=intent.id, owned=True))
    with pytest.raises(InvalidRequest, match="is owned, and would be adopting again"):
        owner.kernel.references.assign_reference("main", promised, expected=head(owner))
    assert owner.line().phase is OwnershipPhase.OWNED
