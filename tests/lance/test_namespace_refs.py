"""Lance tables on branches of the lake, in its transactions, and at its commits."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import Any

import lance
import pytest
from lance_namespace import (
    AlterTransactionRequest,
    CreateTableTagRequest,
    DescribeTableRequest,
    DescribeTransactionRequest,
    ListTablesRequest,
    ListTableVersionsRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    ServiceUnavailableError,
    TransactionNotFoundError,
)

from penstock.formats.lance.lake.namespace import PenstockNamespace
from penstock.formats.lance.names import make_manifest_path
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from tests.lance.tables import ids_at, ids_of, opened, rows, written


@pytest.fixture
def main(lake: Lake) -> PenstockNamespace:
    found = lake.lance()
    written(found, "items", ids=range(3), mode="create")
    written(found, "items", ids=[3])
    return found


# -- branches ----------------------------------------------------------------------------------------------


def test_a_branch_goes_on_by_itself(lake: Lake, main: PenstockNamespace) -> None:
    lake.branch("dev").create()
    dev = lake.lance("dev")
    assert ids_at(dev, "items") == [0, 1, 2, 3]
    written(dev, "items", ids=[10])
    written(main, "items", ids=[20])
    opened(dev, "items").delete("id = 0")
    opened(dev, "items").create_scalar_index("id", "BTREE")
    assert ids_at(dev, "items") == [1, 2, 3, 10]
    assert opened(dev, "items").to_table(filter="id = 10").num_rows == 1
    assert ids_at(main, "items") == [0, 1, 2, 3, 20]


def test_a_branch_has_the_versions_from_before_it_was_made(lake: Lake, main: PenstockNamespace) -> None:
    lake.branch("dev").create()
    dev = lake.lance("dev")
    assert ids_at(dev, "items", version=1) == [0, 1, 2]
    written(dev, "items", ids=[10])
    told = dev.list_table_versions(ListTableVersionsRequest(id=["items"])).versions
    assert [one.version for one in told] == [3, 2, 1]
    assert [ids_at(dev, "items", version=one.version)[-1] for one in told] == [10, 3, 2]
    opened(dev, "items", version=1).restore()
    assert ids_at(dev, "items") == [0, 1, 2]
    assert ids_at(main, "items") == [0, 1, 2, 3]


def test_two_who_open_a_branch_at_once_begin_the_same_line(lake: Lake, main: PenstockNamespace) -> None:
    lake.branch("dev").create()
    namespaces = [lake.lance("dev") for _ in range(3)]
    found: list[str] = []

    def ask(namespace: PenstockNamespace) -> None:
        answer = namespace.describe_table(DescribeTableRequest(id=["items"]))
        found.append(str(answer.location))

    threads = [Thread(target=ask, args=(one,)) for one in namespaces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 3
    assert len(set(found)) == 1
    assert "/_penstock/" in found[0]
    stale = [opened(one, "items") for one in namespaces]
    for number, dataset in enumerate(stale):
        dataset.insert(rows([100 + number]))
    assert ids_at(namespaces[0], "items") == [0, 1, 2, 3, 100, 101, 102]


def test_nothing_of_a_branch_is_where_readers_of_the_table_look(lake: Lake, main: PenstockNamespace) -> None:
    location = opened(main, "items").uri
    lake.branch("dev").create()
    written(lake.lance("dev"), "items", ids=[10])
    plain = lance.dataset(location)
    assert (plain.version, ids_of(plain), len(plain.versions())) == (2, [0, 1, 2, 3], 2)


def test_a_table_that_is_made_on_a_branch_is_on_that_branch_only(lake: Lake, main: PenstockNamespace) -> None:
    lake.branch("dev").create()
    dev = lake.lance("dev")
    written(dev, "fresh", ids=[1], mode="create")
    written(dev, "fresh", ids=[2])
    assert ids_at(dev, "fresh") == [1, 2]
    assert dev.list_tables(ListTablesRequest(id=[])).tables == ["fresh", "items"]
    assert main.list_tables(ListTablesRequest(id=[])).tables == ["items"]


def test_a_branch_that_was_set_back_goes_on_from_there(lake: Lake, main: PenstockNamespace) -> None:
    lake.branch("dev").create()
    dev = lake.lance("dev")
    written(dev, "items", ids=[10])
    before = lake.resolve("dev")
    written(dev, "items", ids=[11])
    lake.branch("dev").assign(before)
    assert ids_at(dev, "items") == [0, 1, 2, 3, 10]
    written(dev, "items", ids=[12])
    assert ids_at(dev, "items") == [0, 1, 2, 3, 10, 12]


def test_a_branch_that_is_set_back_to_its_fork_again_and_again_has_what_is_new_only(
    lake: Lake, main: PenstockNamespace
) -> None:
    lake.branch("dev").create()
    dev, fork, folders = lake.lance("dev"), lake.resolve("dev"), set[str]()
    for number in (10, 11, 12, 13):
        folders.add(written(dev, "items", ids=[number]).uri)
        assert ids_at(dev, "items") == [0, 1, 2, 3, number]
        lake.branch("dev").assign(fork)
        assert ids_at(dev, "items") == [0, 1, 2, 3]
    assert len(folders) == 4
    assert ids_at(main, "items") == [0, 1, 2, 3]


def test_a_branch_that_is_set_back_goes_on_from_there_on_lances_own_branches_too(
    lake: Lake, own: Lake, main: PenstockNamespace
) -> None:
    def own_ids() -> list[int]:
        return ids_of(opened(dev, "items").checkout_version(("trial", None)))

    lake.branch("dev").create()
    dev = lake.lance("dev")
    written(dev, "items", ids=[10])
    dev.create_table_branch({"id": ["items"], "name": "trial"})
    before = lake.resolve("dev")
    for number in (20, 21, 22):
        opened(dev, "items").checkout_version(("trial", None)).insert(rows([number]))
        assert own_ids() == [0, 1, 2, 3, 10, number]
        lake.branch("dev").assign(before)
        assert own_ids() == [0, 1, 2, 3, 10]
    own.finish_background()  # nothing stands against the promotion of what is left


def test_what_a_branch_did_lands_where_every_reader_looks(lake: Lake, main: PenstockNamespace) -> None:
    lake.branch("dev").create()
    dev = lake.lance("dev")
    written(dev, "items", ids=[10])
    opened(dev, "items").delete("id = 0")
    written(dev, "fresh", ids=[7], mode="create")
    lake.merge("dev")
    assert (ids_at(main, "items"), ids_at(main, "fresh")) == ([1, 2, 3, 10], [7])
    assert "/_penstock/" not in opened(main, "fresh").uri
    written(main, "items", ids=[11])
    written(dev, "items", ids=[12])
    lake.merge("dev")
    assert ids_at(main, "items") == [1, 2, 3, 10, 11, 12]
    assert ids_of(lance.dataset(opened(main, "items").uri)) == [1, 2, 3, 10, 11, 12]
    assert ids_at(dev, "items") == [1, 2, 3, 10, 12]


# -- commits -----------------------------------------------------------------------------------------------


def test_a_commit_is_read_as_it_was(lake: Lake, main: PenstockNamespace) -> None:
    pinned = lake.lance(lake.resolve())
    lake.tag("v1").create()
    written(main, "items", ids=[4])
    written(main, "more", ids=[1], mode="create")
    for namespace in (pinned, lake.lance("v1"), lake.lance("main~3")):
        assert ids_at(namespace, "items") == [0, 1, 2, 3]
        assert namespace.list_tables(ListTablesRequest(id=[])).tables == ["items"]
    assert ids_at(main, "items") == [0, 1, 2, 3, 4]


def test_a_commit_of_a_branch_is_read_in_its_line(lake: Lake, main: PenstockNamespace) -> None:
    lake.branch("dev").create()
    written(lake.lance("dev"), "items", ids=[10])
    pinned = lake.lance(lake.resolve("dev"))
    written(lake.lance("dev"), "items", ids=[11])
    assert ids_at(pinned, "items") == [0, 1, 2, 3, 10]
    assert ids_at(pinned, "items", version=1) == [0, 1, 2]


def test_nothing_is_written_at_a_commit(lake: Lake, main: PenstockNamespace) -> None:
    pinned = lake.lance(lake.resolve())
    with pytest.raises(InvalidInputError, match="shows a commit, which cannot change"):
        pinned.create_table_tag(CreateTableTagRequest(id=["items"], tag="t", version=1))
    with pytest.raises(OSError, match="result for version"):
        written(pinned, "items", ids=[9])
    assert ids_at(main, "items") == [0, 1, 2, 3]


def test_two_tables_are_never_read_torn_at_one_commit(own: Lake) -> None:
    namespace = own.lance()
    for name in ("left", "right"):
        written(namespace, name, ids=[0], mode="create")
    stop, problems = Event(), list[BaseException]()

    def write() -> None:
        number = 1
        try:
            while not stop.is_set():
                with own.transaction() as transaction:
                    for name in ("left", "right"):
                        written(transaction.lance, name, ids=[number])
                number += 1
        except BaseException as problem:
            problems.append(problem)

    writer = Thread(target=write)
    writer.start()
    try:
        for _ in range(15):
            pinned = own.lance(own.resolve())
            assert ids_at(pinned, "left") == ids_at(pinned, "right")
    finally:
        stop.set()
        writer.join(30)
    assert problems == []


# -- transactions ------------------------------------------------------------------------------------------


def test_a_transaction_sees_its_own_writes_and_lands_at_once(lake: Lake, main: PenstockNamespace) -> None:
    written(main, "other", ids=[0, 1], mode="create")
    location = opened(main, "items").uri
    with lake.transaction() as transaction:
        within = transaction.lance
        written(within, "items", ids=[4])
        written(within, "items", ids=[5])
        opened(within, "other").delete("id = 0")
        written(within, "fresh", ids=[7], mode="create")
        assert ids_at(within, "items") == [0, 1, 2, 3, 4, 5]
        assert (ids_at(within, "other"), ids_at(within, "fresh")) == ([1], [7])
        assert (ids_at(main, "items"), ids_at(main, "other")) == ([0, 1, 2, 3], [0, 1])
        assert lance.dataset(location).version == 2
    assert ids_at(main, "items") == [0, 1, 2, 3, 4, 5]
    assert (ids_at(main, "other"), ids_at(main, "fresh")) == ([1], [7])
    assert lance.dataset(location).version == 4


def test_what_is_aborted_leaves_no_trace(lake: Lake, main: PenstockNamespace) -> None:
    transaction = lake.transaction()
    written(transaction.lance, "items", ids=[4])
    written(transaction.lance, "fresh", ids=[7], mode="create")
    transaction.abort()
    assert ids_at(main, "items") == [0, 1, 2, 3]
    assert main.list_tables(ListTablesRequest(id=[])).tables == ["items"]
    assert lance.dataset(opened(main, "items").uri).version == 2


def test_a_transaction_may_land_on_a_branch(lake: Lake, main: PenstockNamespace) -> None:
    lake.branch("dev").create()
    dev = lake.lance("dev")
    with lake.transaction("dev") as transaction:
        written(transaction.lance, "items", ids=[4])
        assert ids_at(transaction.lance, "items") == [0, 1, 2, 3, 4]
        assert ids_at(dev, "items") == [0, 1, 2, 3]
    assert ids_at(dev, "items") == [0, 1, 2, 3, 4]
    written(dev, "items", ids=[5])
    assert (ids_at(dev, "items"), ids_at(main, "items")) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3])


def test_a_transaction_reads_what_others_landed_where_it_stays(tmp_path: Path) -> None:
    where = tmp_path / "lake"
    with open_lake(where, settings=Settings(promote_wait_s=60.0)) as lake:
        folder = Path(written(lake.lance(), "items", ids=[0], mode="create").uri)
        with lake.transaction() as transaction:
            written(transaction.lance, "items", ids=[1])
            manifests = folder.glob("_staging/*/*.manifest")
            (staged,) = (one for one in manifests if not one.parent.name.startswith("apart-"))
            data = staged.read_bytes()
    canonical = folder / make_manifest_path("", "", 2)
    canonical.unlink()  # as it is if the process dies before it promotes what has landed
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.write_bytes(data)
    with open_lake(where, catch_up=False) as lake, lake.transaction() as transaction:
        found = transaction.lance.describe_table_version({"id": ["items"], "version": 2}).version
        assert found.manifest_path == str(canonical).lstrip("/")
        assert ids_at(transaction.lance, "items") == [0, 1]


def test_what_a_client_staged_in_a_transaction_goes_once_the_lake_has_it(
    own: Lake, lake: Lake, main: PenstockNamespace
) -> None:
    versions = Path(opened(main, "items").uri, "_versions")
    own.finish_background()
    with lake.transaction() as transaction:
        written(transaction.lance, "items", ids=[4])
        written(transaction.lance, "items", ids=[5])
        assert list(versions.glob("*.manifest-*")) == []
        assert ids_at(transaction.lance, "items") == [0, 1, 2, 3, 4, 5]
    assert ids_at(main, "items") == [0, 1, 2, 3, 4, 5]


def test_a_commit_to_a_transaction_whose_answer_is_lost_is_not_done_twice(
    lake: Lake, main: PenstockNamespace
) -> None:
    class Losing(PenstockNamespace):
        is_lost = False

        def create_table_version(self, request: Any) -> Any:
            super().create_table_version(request)
            self.is_lost = True
            raise ServiceUnavailableError("the line went dead")

    with lake.transaction() as transaction:
        losing = Losing(lake, transaction.branch)
        written(losing, "items", ids=[4])
        assert losing.is_lost
        assert ids_at(transaction.lance, "items") == [0, 1, 2, 3, 4]
    assert ids_at(main, "items") == [0, 1, 2, 3, 4]


def _alter(namespace: PenstockNamespace, identity: str, *actions: dict[str, Any]) -> Any:
    request = AlterTransactionRequest.model_validate({"id": [identity], "actions": list(actions)})
    return namespace.alter_transaction(request)


def test_transactions_are_described_and_ended_in_lances_words(lake: Lake, main: PenstockNamespace) -> None:
    transaction = lake.transaction()
    written(transaction.lance, "items", ids=[4])
    told = _alter(main, transaction.id, {"setPropertyAction": {"key": "job", "value": "7"}})
    assert (told.status, told.properties["job"]) == ("Running", "7")
    told = _alter(main, transaction.id, {"setStatusAction": {"status": "SUCCEEDED"}})
    assert told.status == "Succeeded"
    assert ids_at(main, "items") == [0, 1, 2, 3, 4]
    request = DescribeTransactionRequest(id=["items", transaction.id])
    assert main.describe_transaction(request).status == "Succeeded"


def test_a_transaction_that_was_cancelled_takes_no_more(lake: Lake, main: PenstockNamespace) -> None:
    transaction = lake.transaction()
    told = _alter(main, transaction.id, {"setStatusAction": {"status": "canceled"}})
    assert told.status == "Canceled"
    with pytest.raises((InvalidTableStateError, TransactionNotFoundError)):
        transaction.lance.create_table_tag(CreateTableTagRequest(id=["items"], tag="t", version=1))
    with pytest.raises(TransactionNotFoundError):
        main.describe_transaction(DescribeTransactionRequest(id=["0" * 32]))
    with pytest.raises(InvalidInputError):
        _alter(main, transaction.id, {})


def test_a_writer_in_a_transaction_whose_target_went_on_opens_the_table_again_and_lands(
    own: Lake, lake: Lake, main: PenstockNamespace
) -> None:
    transaction = lake.transaction()
    within = transaction.lance
    stale = opened(within, "items")
    written(main, "items", ids=[4])
    own.finish_background()
    with pytest.raises(OSError, match="result for version"):
        lance.write_dataset(rows([5]), stale, mode="append")
    assert ids_at(within, "items") == [0, 1, 2, 3]
    written(within, "items", ids=[5])
    assert ids_at(within, "items") == [0, 1, 2, 3, 5]
    transaction.land()
    assert ids_at(main, "items") == [0, 1, 2, 3, 4, 5]
