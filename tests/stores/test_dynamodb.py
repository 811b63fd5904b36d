"""What the DynamoDB store does that the contract does not ask for: tables, limits, requests, secrets."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from penstock.errors import (
    Denied,
    InvalidRequest,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
    UnsupportedFormat,
)
from penstock.stores import dynamodb_wire
from penstock.stores.dynamodb import DynamoStore
from penstock.stores.dynamodb_items import ITEM_MAX_BYTES, KEY_SCHEMA
from penstock.stores.port import AdvanceResult, Row
from penstock.testing.contract_rows import swap
from penstock.testing.samples import row, sample, scan_all
from penstock.testing.threads import at_once
from tests.servers.dynamodb import DynamoDBPlace


@pytest.fixture
def store(dynamodb_place: DynamoDBPlace) -> Iterator[DynamoStore]:
    with closing(DynamoStore(dynamodb_place.url)) as opened:
        yield opened


@pytest.fixture
def other(store: DynamoStore, dynamodb_place: DynamoDBPlace) -> Iterator[DynamoStore]:
    with closing(DynamoStore(dynamodb_place.url, create=False)) as opened:
        yield opened


class Line:
    """What goes over the line from a store to its server: counted, and answered in the server's place."""

    def __init__(self, store: DynamoStore) -> None:
        self.requests: list[str] = []
        self.answers: list[AWSResponse | None] = []
        """To the next requests, one each; ``None`` lets the server answer."""
        self.before_each: Callable[[], None] = lambda: None
        store._table._client.meta.events.register("before-send.dynamodb", self._pass)  # type: ignore[arg-type]

    def _pass(self, request: Any, event_name: str, **_: object) -> AWSResponse | None:
        self.requests.append(event_name.rpartition(".")[2])
        self.before_each()
        return self.answers.pop(0) if self.answers else None


class Body:
    """An answer's body, as botocore reads it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self) -> Iterator[bytes]:
        yield self._data


def refusal(code: str, status: int = 400, more: str = "") -> AWSResponse:
    data = f'{{"__type": "com.amazonaws.dynamodb.v20120810#{code}", "message": "so it is"{more}}}'
    headers = HTTPHeaders()
    headers["Content-Length"] = str(len(data))
    return AWSResponse("http://server/", status, headers, Body(data.encode()))


def cancelled(*reasons: str) -> AWSResponse:
    listed = ", ".join(f'{{"Code": "{reason}"}}' for reason in reasons)
    return refusal("TransactionCanceledException", more=f', "CancellationReasons": [{listed}]')


# -- requests --------------------------------------------------------------------------------------------


def test_an_advance_on_a_remembered_row_is_one_request(store: DynamoStore) -> None:
    swap(store, row("main", data=b"1"))
    line = Line(store)
    with store.turn("main", row("main", data=b"1")) as turn:
        assert not turn.is_certain
        objects = sample(90)
        assert turn.advance(objects, row("main", data=b"2"), list(objects)[:30]).swapped
    assert line.requests == ["TransactWriteItems"]


def test_a_remembered_row_that_is_no_more_loses(store: DynamoStore, other: DynamoStore) -> None:
    swap(other, row("main", data=b"2"))
    with store.turn("main", row("main", data=b"1")) as turn:
        assert turn.advance(sample(3), row("main", data=b"3")) == AdvanceResult(False)
    assert store.reference("main") == row("main", data=b"2")
    assert scan_all(store) == [], "a lost advance that fits into a transaction leaves nothing behind"


def test_listing_reads_each_row_once(store: DynamoStore) -> None:
    for number in range(5):
        swap(store, row(f"b{number}"))
    line = Line(store)
    assert len(store.references("branch")) == 5
    assert line.requests == ["Query", "BatchGetItem"]


def test_a_listing_goes_on_past_rows_that_change_their_kind_meanwhile(
    store: DynamoStore, other: DynamoStore
) -> None:
    for number in range(6):
        swap(store, row(f"b{number}"))
    line = Line(store)

    def change() -> None:
        if line.requests == ["Query", "BatchGetItem"]:  # the names are read, the rows are not
            for name in ("b0", "b1"):
                swap(other, row(name, "tag"))
            swap(other, None, "b3")

    line.before_each = change
    assert [one.name for one in store.references("branch", limit=2)] == ["b2", "b4"]
    assert [one.name for one in store.references("tag")] == ["b0", "b1"]


def test_objects_of_more_than_one_answer_are_fetched_whole(store: DynamoStore) -> None:
    """An answer holds 16 MB; the rest must be asked for again."""
    objects = sample(80, "large", 256 * 1024)
    store.store(objects)
    line = Line(store)
    assert store.fetch(list(objects)) == objects
    assert len(line.requests) > 1


def test_of_two_that_want_the_same_hundreds_of_fresh_objects_one_swaps(
    store: DynamoStore, other: DynamoStore
) -> None:
    for attempt in range(3):
        fresh = sample(250, f"fresh {attempt}")

        def advance(handle: DynamoStore, name: str, fresh: dict[bytes, bytes] = fresh) -> AdvanceResult:
            with handle.turn(name) as turn:
                return turn.advance(fresh, row(name), list(fresh))

        names = [f"a{attempt}", f"b{attempt}"]
        answers = at_once(partial(advance, store, names[0]), partial(advance, other, names[1]))
        assert [answer.swapped for answer in answers].count(True) == 1
        (lost,) = (answer for answer in answers if not answer.swapped)
        assert lost.present
        assert lost.present <= fresh.keys()


def test_what_is_too_large_is_refused_before_anything_is_written(store: DynamoStore) -> None:
    large = {b"l" * 32: b"x" * (ITEM_MAX_BYTES + 1)}
    with pytest.raises(InvalidRequest, match="DynamoDB takes at most"):
        store.store(sample(3) | large)
    with store.turn("main") as turn, pytest.raises(InvalidRequest, match="DynamoDB"):
        turn.advance(sample(3) | large, row("main"))
    with store.turn("main") as turn, pytest.raises(InvalidRequest, match="'main' cannot be stored: its row"):
        turn.advance(sample(3), row("main", data=large[b"l" * 32]))
    assert scan_all(store) == []
    assert store.reference("main") is None
    just_fits = {b"l" * 32: b"x" * ITEM_MAX_BYTES}
    with store.turn("main") as turn:
        assert turn.advance(just_fits, row("main", data=b"y" * ITEM_MAX_BYTES)).swapped
    assert store.fetch([b"l" * 32]) == just_fits


# -- a server that is busy, or fails -----------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamodb_wire, "TRIES_MAX_S", 0.3)
    monkeypatch.setattr(dynamodb_wire, "BACKOFF_MAX_S", 0.05)


BUSY = [
    refusal("ProvisionedThroughputExceededException"),
    refusal("ThrottlingException"),
    cancelled("None", "TransactionConflict"),
    cancelled("ThrottlingError", "ProvisionedThroughputExceeded"),
    refusal("InternalServerError", 500),
    refusal("ServiceUnavailable", 503),
]


@pytest.mark.parametrize("answer", BUSY)
def test_a_busy_server_is_asked_again(store: DynamoStore, answer: AWSResponse) -> None:
    line = Line(store)
    line.answers = [answer] * 3
    assert swap(store, row("main")).swapped
    line.answers = [answer]
    store.store(sample(3))
    line.answers = [answer]
    assert store.fetch(list(sample(3))) == sample(3)
    line.answers = [answer]
    assert store.reference("main") == row("main")


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("answer", BUSY)
def test_a_server_that_stays_busy_is_said_to_be(store: DynamoStore, answer: AWSResponse) -> None:
    """``Unavailable`` where surely nothing was done; a server that fails inside may have done it."""
    line = Line(store)
    line.answers = [None, *[answer] * 1000]
    with pytest.raises(OutcomeUnknown if answer.status_code >= 500 else Unavailable):
        swap(store, row("main"))
    with pytest.raises(Unavailable):
        store.store(sample(3))
    with pytest.raises(Unavailable):
        store.fetch(list(sample(3)))
    assert line.answers, "it was asked no more than it has time for"
    line.answers = []
    assert store.reference("main") is None


def test_a_request_that_cannot_be_is_not_made_again(store: DynamoStore) -> None:
    line = Line(store)
    for answer in (refusal("ValidationException"), cancelled("ValidationError", "None")):
        line.answers, line.requests = [answer], []
        with pytest.raises(InvalidRequest):
            store.store(sample(2))
        assert line.requests == ["TransactWriteItems"]


@pytest.mark.parametrize(
    "code",
    [
        "AccessDeniedException",
        "UnrecognizedClientException",
        "InvalidSignatureException",
        "ExpiredTokenException",
    ],
)
def test_who_is_not_let_in_is_told_so_without_what_the_server_said(store: DynamoStore, code: str) -> None:
    line = Line(store)
    line.answers = [refusal(code, more=', "Message": "x-amz-security-token:SECRET"')]
    with pytest.raises(Denied, match=code) as denied:
        store.reference("main")
    assert "SECRET" not in str(denied.value)
    assert denied.value.__suppress_context__


def test_who_loses_the_right_while_in_doubt_is_not_told_that_nothing_happened(store: DynamoStore) -> None:
    line = Line(store)
    line.answers = [None, refusal("InternalServerError", 500), *[refusal("ExpiredTokenException")] * 2]
    with pytest.raises(OutcomeUnknown):
        swap(store, row("main"))


# -- tables ------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_not_found(dynamodb_place: DynamoDBPlace) -> None:
    with pytest.raises(LakeNotFound, match="penstock init 'dynamodb://") as missing:
        DynamoStore(dynamodb_place.url, create=False)
    assert dynamodb_place.url in str(missing.value)
    DynamoStore(dynamodb_place.url).close()
    DynamoStore(dynamodb_place.url, create=False).close()


def make_table(place: DynamoDBPlace, schema: dict[str, str]) -> None:
    with closing(place.client()) as client:
        client.create_table(
            TableName=place.table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in schema],
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in schema.items()],  # type: ignore[typeddict-item]
        )


@pytest.mark.parametrize("schema", [{"id": "HASH"}, {"pk": "HASH"}, {"pk": "HASH", "at": "RANGE"}])
@pytest.mark.parametrize("create", [True, False])
def test_a_table_with_other_keys_is_left_alone(
    dynamodb_place: DynamoDBPlace, schema: dict[str, str], create: bool
) -> None:
    make_table(dynamodb_place, schema)
    with pytest.raises(InvalidRequest, match="other key columns than those of a lake"):
        DynamoStore(dynamodb_place.url, create=create)


def test_a_table_that_somebody_made_for_the_lake_is_taken(dynamodb_place: DynamoDBPlace) -> None:
    make_table(dynamodb_place, KEY_SCHEMA)
    with pytest.raises(LakeNotFound, match="penstock init"):
        DynamoStore(dynamodb_place.url, create=False)
    with closing(DynamoStore(dynamodb_place.url)) as store:
        assert swap(store, row("main")).swapped


def test_a_table_that_holds_something_else_is_left_alone(dynamodb_place: DynamoDBPlace) -> None:
    make_table(dynamodb_place, KEY_SCHEMA)
    with closing(dynamodb_place.client()) as client:
        client.put_item(TableName=dynamodb_place.table, Item={"pk": {"S": "mine"}, "sk": {"S": "mine"}})
        with pytest.raises(InvalidRequest, match="holds other data than a lake"):
            DynamoStore(dynamodb_place.url)
        assert client.scan(TableName=dynamodb_place.table)["Count"] == 1


def test_a_lake_of_a_newer_penstock_is_left_alone(store: DynamoStore, dynamodb_place: DynamoDBPlace) -> None:
    with closing(dynamodb_place.client()) as client:
        client.put_item(
            TableName=dynamodb_place.table,
            Item={"pk": {"S": "lake"}, "sk": {"S": "-"}, "schema_version": {"N": "2"}},
        )
    for create in (True, False):
        with pytest.raises(UnsupportedFormat, match="newer"):
            DynamoStore(dynamodb_place.url, create=create)


def test_many_may_make_the_same_lake_at_once(dynamodb_place: DynamoDBPlace) -> None:
    def make(number: int) -> bool:
        with closing(DynamoStore(dynamodb_place.url)) as store:
            store.store(sample(1))
            return swap(store, row(f"of-{number}")).swapped

    assert at_once(*(partial(make, number) for number in range(6))) == [True] * 6
    with closing(DynamoStore(dynamodb_place.url, create=False)) as store:
        assert len(store.references("branch")) == 6


# -- addresses, secrets, handles -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("dynamodb://key:SECRET@table?region=a", "must not contain credentials"),
        ("dynamodb://table?region=a&aws_secret_access_key=SECRET", "'aws_secret_access_key'"),
        ("dynamodb://table?region=a&endpoint=http://key:SECRET@host/", "must not contain credentials"),
        ("dynamodb://t?region=a", "not of the form"),
        ("dynamodb://table/more?region=a", "not of the form"),
        ("dynamodb://?region=a", "not of the form"),
        ("dynamodb://table", "names no region"),
        ("dynamodb://table?region=a&endpoint=nonsense", "cannot be used"),
    ],
)
def test_addresses_that_cannot_be_are_refused(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(InvalidRequest, match=says) as refused:
        DynamoStore(url)
    assert "SECRET" not in str(refused.value)


def test_keys_are_shown_nowhere(store: DynamoStore, dynamodb_place: DynamoDBPlace) -> None:
    shown = f"{store.url} {store!r} {vars(store)!r} {vars(store._table)!r}"
    assert dynamodb_place.secret_key
    assert dynamodb_place.secret_key not in shown
    assert store.url == dynamodb_place.url


def test_without_credentials_the_way_to_them_is_named(
    dynamodb_place: DynamoDBPlace, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(Denied, match="environment, a profile or a role"):
        DynamoStore(dynamodb_place.url)


def test_a_closed_store_says_so(dynamodb_place: DynamoDBPlace) -> None:
    store = DynamoStore(dynamodb_place.url)
    with store.turn("main") as turn:
        store.close()
        with pytest.raises(InvalidRequest, match="was closed"):
            turn.advance({}, row("main"))
        with pytest.raises(InvalidRequest, match="was closed"):
            turn.advance(sample(300), row("main"))
    for call in (
        lambda: store.fetch([b"x" * 32]),
        lambda: store.fetch(list(sample(300))),
        lambda: store.store(sample(1)),
        lambda: store.reference("main"),
        lambda: store.references("branch"),
        lambda: store.scan(b"", 1),
        lambda: store.delete([]),
        store.erase,
    ):
        with pytest.raises(InvalidRequest, match="was closed"):
            call()


def _use(store: DynamoStore, answers: Any) -> None:
    try:
        store.reference("main")
    except PenstockError as problem:
        answers.send((type(problem).__name__, str(problem)))


def test_a_store_is_not_used_across_a_fork(store: DynamoStore) -> None:
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=_use, args=(store, theirs))
    child.start()
    assert ours.recv()[0] == "InvalidRequest"
    child.join()
    ours.close()
    theirs.close()


def test_a_row_is_compared_by_its_kind_too(store: DynamoStore) -> None:
    swap(store, Row("main", "tag", b"1"))
    with store.turn("main", Row("main", "branch", b"1")) as turn:
        assert turn.advance({}, Row("main", "branch", b"2")) == AdvanceResult(False)
    assert [one.name for one in store.references("tag")] == ["main"]
