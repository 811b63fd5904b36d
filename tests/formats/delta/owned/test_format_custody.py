"""Tables that come into the lake's hands, and leave them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from penstock.errors import CommitConflict, InvalidRequest
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase
from penstock.formats.delta.branch_log.intents import AdoptIntent, CreateIntent, ReleaseIntent, SettleIntent
from penstock.formats.delta.branch_log.ownership import (
    TableBeforeCommit,
    encode_adoption_commit,
    encode_release_commit,
)
from penstock.formats.delta.protocol.actions import Metadata
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put
from tests.formats.delta.managed import KEY, Owner, add


def test_the_same_creation_twice_is_one(owner: Owner) -> None:
    content = owner.create()
    assert content.id is not None
    again = CreateIntent(id=content.id, location=content.location, actions=owner.data(0), uuid=uuid4())
    owner.ask(again)
    assert owner.content() == content
    other = CreateIntent(id=uuid4(), location=content.location, actions=owner.data(0), uuid=uuid4())
    with pytest.raises(CommitConflict, match="'orders' exists already"):
        owner.ask(other)


def test_a_creation_that_is_repeated_after_the_table_was_dropped_does_not_begin_it_anew(owner: Owner) -> None:
    content = owner.create()
    assert content.id is not None
    again = CreateIntent(id=content.id, location=content.location, actions=owner.data(0), uuid=uuid4())
    owner.commit([add("a")])
    owner.published()
    owner.kernel.commit("main", [Delete(Key.parse(KEY))])
    with pytest.raises(CommitConflict, match="there is already a log at"):
        owner.ask(again)


def _adoption(owner: Owner, tmp_path: Path) -> AdoptIntent:
    owner.create("model")
    about = owner.snapshot("model")
    plain = [one for one in about.protocol.writer_features or () if one != "managedCommits"]
    configuration = {
        name: text for name, text in about.properties.items() if not name.startswith("delta.managedCommit")
    }
    protocol = type(about.protocol)(min_reader_version=1, min_writer_version=7, writer_features=tuple(plain))
    metadata = Metadata(
        id="m", schema_string=about.metadata.schema_string, partition_columns=(), configuration=configuration
    )
    before = TableBeforeCommit(version=4, protocol=protocol, metadata=metadata, timestamp_ms=1000)
    identity, uuid = uuid4(), uuid4()
    actions = encode_adoption_commit(before, owner.identity, identity, uuid, owner.clock() // 1000)
    return AdoptIntent(id=identity, location=str(tmp_path / "adopted"), version=5, actions=actions, uuid=uuid)


def test_a_table_that_is_being_adopted_takes_no_commits_until_that_is_settled(
    owner: Owner, tmp_path: Path
) -> None:
    intent = _adoption(owner, tmp_path)
    owner.ask(intent)
    line = owner.line()
    assert (line.phase, line.published, line.latest) == (OwnershipPhase.ADOPTING, 4, 5)
    assert owner.data(5) == intent.actions
    with pytest.raises(CommitConflict, match="is being adopted"):
        owner.commit([add("a")])
    with pytest.raises(CommitConflict, match="is being adopted"):
        owner.kernel.commit("main", [Delete(Key.parse(KEY))])
    owner.ask(intent)
    assert owner.line() == line
    owner.ask(SettleIntent(id=intent.id, owned=True))
    assert (owner.line().phase, owner.line().published) == (OwnershipPhase.OWNED, 5)
    owner.ask(SettleIntent(id=intent.id, owned=False))
    assert owner.line().phase is OwnershipPhase.OWNED
    assert owner.commit([add("a")]) == 6


def test_an_adoption_that_lost_leaves_nothing(owner: Owner, tmp_path: Path) -> None:
    intent = _adoption(owner, tmp_path)
    owner.ask(intent)
    owner.ask(SettleIntent(id=intent.id, owned=False))
    with pytest.raises(AssertionError):
        owner.content()
    owner.ask(intent)
    assert owner.line().phase is OwnershipPhase.ADOPTING


def test_a_table_is_adopted_on_the_default_branch_alone(owner: Owner, tmp_path: Path) -> None:
    intent = _adoption(owner, tmp_path)
    owner.branch("dev")
    with pytest.raises(CommitConflict, match="default branch only"):
        owner.ask(intent, branch="dev")


def test_a_released_table_takes_no_more_commits(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add("a")])
    about = owner.snapshot()
    before = TableBeforeCommit(
        version=1, protocol=about.protocol, metadata=about.metadata, timestamp_ms=owner.line().timestamp_ms
    )
    uuid = uuid4()
    last = ReleaseIntent(
        version=2, actions=encode_release_commit(before, uuid, owner.clock() // 1000), uuid=uuid
    )
    late = ReleaseIntent(version=1, actions=last.actions, uuid=uuid)
    with pytest.raises(CommitConflict, match="committed to while"):
        owner.ask(late)
    owner.ask(last)
    assert (owner.line().phase, owner.line().latest) == (OwnershipPhase.RELEASED, 2)
    owner.ask(last)
    assert owner.line().latest == 2
    for version in (None, 3):
        with pytest.raises(CommitConflict, match="was released"):
            owner.commit([add("b")], version=version)
    with pytest.raises(CommitConflict, match="is removed automatically"):
        owner.kernel.commit("main", [Delete(Key.parse(KEY))])
    published = owner.published()
    assert published.version == 2
    assert "delta.managedCommitOwnerName" not in published.properties
    assert content.id is not None
    owner.ask(SettleIntent(id=content.id, owned=False))
    with pytest.raises(AssertionError):
        owner.content()


def test_a_managed_content_is_not_put_but_a_table_can_be_renamed_and_dropped(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add("a")])
    with pytest.raises(CommitConflict, match="not by put"):
        owner.kernel.commit("main", [Put(Key.parse(KEY), content)])
    newest = owner.content()
    owner.kernel.commit("main", [Delete(Key.parse(KEY)), Put(Key.parse("renamed"), newest)])
    assert owner.commit([add("b")], key="renamed") == 2
    owner.kernel.commit("main", [Delete(Key.parse("renamed"))])
    with pytest.raises(CommitConflict, match="does not exist"):
        owner.commit([add("c")], key="renamed")


def test_the_default_branch_is_not_moved_to_where_a_table_is_another_or_older(owner: Owner) -> None:
    references = owner.kernel.references
    empty = references.get_reference("main").head
    owner.create()
    owner.commit([add("a")])
    older = references.get_reference("main").head
    owner.branch("dev")
    owner.commit([add("b")])
    newest = references.get_reference("main").head
    owner.commit([add("c")], branch="dev")
    for target, why in (
        (older, "go back from version 2 to 1"),
        (references.get_reference("dev").head, "versions of another branch"),
        (empty, "created or dropped by this move"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            references.assign_reference("main", target)
    assert references.get_reference("main").head == newest
    references.assign_reference("dev", older)
    assert owner.line(branch="dev").latest == 1
    assert owner.commit([add("d")], branch="dev") == 2
    assert owner.paths(branch="dev") == {"a", "d"}
