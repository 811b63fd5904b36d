"""Lance and its storage: an outage is told as one, never as a conflict or as a mistake of who asked.

The texts are those of the Lance that is installed: each test has Lance itself fail.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lance_namespace import LanceNamespace, LanceNamespaceError
from lance_namespace.errors import ErrorCode

from penstock.errors import CommitConflict, InvalidRequest, PenstockError, StorageFull, Unavailable
from penstock.formats.lance.lake.data_errors import watch_lance_work
from penstock.formats.lance.lake.failures import own_errors
from penstock.lake.job_files import is_refusal
from penstock.model.keys import Key
from tests.outages.conftest import SmallDisk

KEY = Key("a", "t")
ROWS = pa.table({"a": [1, 2], "s": ["x", "y"]})


class Silent(LanceNamespace):
    """A namespace that is not asked for anything."""

    def namespace_id(self) -> str:
        return "silent"


def ours(work: Callable[[], object]) -> PenstockError:
    """What a program that asked Penstock is told of a failure of Lance."""
    with pytest.raises(PenstockError) as caught, own_errors(Silent(), KEY):
        work()
    return caught.value


def theirs(work: Callable[[], object]) -> LanceNamespaceError:
    """What a client of Lance is told of it."""
    with pytest.raises(LanceNamespaceError) as caught, watch_lance_work(Silent(), [*KEY]):
        work()
    return caught.value


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine that nobody listens at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def bucket_away(closed_port: int) -> dict[str, str]:
    return {
        "aws_endpoint": f"http://127.0.0.1:{closed_port}",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "eu-west-1",
        "allow_http": "true",
        "client_max_retries": "0",
    }


def _read(options: dict[str, str]) -> Any:
    return lance.dataset("s3://bucket/t.lance", storage_options=options)


def _write(options: dict[str, str]) -> Any:
    return lance.write_dataset(ROWS, "s3://bucket/t.lance", storage_options=options)


@pytest.mark.verify
def test_object_storage_that_is_away_is_unavailable(bucket_away: dict[str, str]) -> None:
    problem = ours(lambda: _write(bucket_away))
    assert type(problem) is Unavailable
    assert problem.details["part"] == "storage"
    assert not is_refusal(problem), "who wrote files must not remove them"
    refusal = theirs(lambda: _read(bucket_away))
    assert refusal.code == ErrorCode.SERVICE_UNAVAILABLE
    assert "127.0.0.1" not in str(refusal)
    assert str(refusal) == "a.t: the storage of this table (S3) cannot be used at the moment"


def _append(dataset: Any) -> Any:
    return lance.write_dataset(ROWS, dataset, mode="append")


def _delete(dataset: Any) -> Any:
    return dataset.delete("a = 1")


def _index(dataset: Any) -> Any:
    return dataset.create_scalar_index("a", "BTREE")


@pytest.mark.parametrize("work", [_append, _delete, _index])
def test_a_full_disk_is_told_as_one(small_disk: SmallDisk, work: Callable[[Any], Any]) -> None:
    dataset = lance.write_dataset(ROWS, str(small_disk.path / "t.lance"))
    small_disk.fill()
    problem = ours(lambda: work(dataset))
    assert isinstance(problem, StorageFull)
    assert problem.details["part"] == "storage"
    refusal = theirs(lambda: work(dataset))
    assert refusal.code == ErrorCode.SERVICE_UNAVAILABLE
    assert "no room left" in str(refusal)
    assert str(small_disk.path) not in str(refusal)


def test_a_conflict_is_still_one(tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, place).update({"s": "'z'"}, where="a = 1")

    def lose() -> object:
        deleted = lance.LanceOperation.Delete(
            updated_fragments=[], deleted_fragment_ids=[0], predicate="true"
        )
        return lance.LanceDataset.commit(place, deleted, read_version=1)

    assert isinstance(ours(lose), CommitConflict)
    assert theirs(lose).code == ErrorCode.CONCURRENT_MODIFICATION


MISTAKES: list[Callable[[Any], object]] = [
    lambda dataset: dataset.to_table(filter="a = = 1"),
    lambda dataset: dataset.to_table(filter="nowhere = 1"),
    lambda dataset: dataset.to_table(columns={"q": "a / 0"}),
    lambda dataset: dataset.to_table(columns={"q": "cast(s as int)"}),
    lambda dataset: dataset.delete("s = 'after 3 retries, commit conflict' and nowhere = 1"),
    lambda dataset: dataset.update({"a": "'abc'"}),
    lambda dataset: dataset.to_table(nearest={"column": "a", "q": [1.0], "k": 1}),
    lambda dataset: lance.write_dataset(pa.table({"b": [1]}), dataset, mode="append"),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_the_caller_are_still_theirs(tmp_path: Path, mistake: Callable[[Any], object]) -> None:
    dataset = lance.write_dataset(ROWS, str(tmp_path / "t.lance"))
    assert isinstance(ours(lambda: mistake(dataset)), InvalidRequest)


def test_words_in_a_message_make_no_conflict() -> None:
    def fail() -> None:
        raise OSError(
            "LanceError(IO): gave up after 10 retries of a concurrent request: cannot parse the answer"
        )

    assert type(ours(fail)) is Unavailable


def test_what_nobody_knows_is_unavailable() -> None:
    def fail() -> None:
        raise ValueError("Something that no Lance says yet, /lance/rust/lance/src/dataset.rs:1:1")

    problem = ours(fail)
    assert type(problem) is Unavailable
    assert not is_refusal(problem)


def test_the_numbers_of_a_full_disk_are_those_of_the_system() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT):

        def fail(number: int = number) -> None:
            raise OSError(f"LanceError(IO): {os.strerror(number)} (os error {number})")

        assert isinstance(ours(fail), StorageFull)
