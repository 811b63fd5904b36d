"""Requests to one DynamoDB table: tried again within bounds, with an eye on what may have happened unseen.

DynamoDB's own client tries again without telling; here it does not, since a transaction whose answer was lost
is in doubt until its repetition is answered.
"""

from __future__ import annotations

import os
import random
import re
import time
from binascii import crc32
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoRegionError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NotConnected
from botocore.loaders import create_loader
from botocore.parsers import ResponseParserError
from botocore.session import get_session

from penstock.errors import Denied, InvalidRequest, LakeNotFound, OutcomeUnknown, Unavailable
from penstock.stores.dynamodb_items import KEY_SCHEMA, DynamoAction, Item, encode_key
from penstock.stores.urls import hide_secrets, parse_options, split_url

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

GET_MAX_KEYS: Final = 100
REMOVE_MAX_KEYS: Final = 25
THREADS_MAX: Final = 8
CONNECTIONS_MAX: Final = 100
CONNECT_TIMEOUT_S: Final = 3.0
READ_TIMEOUT_S: Final = 8.0
TRIES_MAX_S: Final = 15.0
CREATION_MAX_S: Final = 120.0
BACKOFF_MIN_S: Final = 0.01
BACKOFF_MAX_S: Final = 1.0

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_BUSY: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TransactionConflictException",
        "TransactionCanceledException",
        "LimitExceededException",
    }
)
_PASSING: Final = frozenset(
    {"None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
)
"""For what reasons a transaction is cancelled that may succeed a moment later."""
_UNDECIDED: Final = frozenset({"TransactionInProgressException", "InternalServerError", "ServiceUnavailable"})
_DENIED = re.compile("AccessDenied|UnrecognizedClient|Signature|Token|NotSignedUp|OptInRequired|Credential")

_LOADER = create_loader()
"""Of the description of DynamoDB, the same for every store: reading it takes longer than all else."""
_PROBLEMS = (ClientError, BotoCoreError, ResponseParserError)

T = TypeVar("T")
P = TypeVar("P")


class ConditionRefused(NamedTuple):
    """A transaction that was not carried out, because of conditions: which, and the items found instead."""

    found: dict[int, Item]
    in_doubt: bool
    """Whether it was made before without an answer."""


class DynamoTable:
    """A table, and the ways to ask it for something. Many threads may use it at once."""

    def __init__(self, url: str) -> None:
        self.url, self._name = hide_secrets(url), _parse_table_name(url)
        self._client = _make_client(url)
        self._process = os.getpid()
        self._closed = False
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="penstock-dynamodb")

    def check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(f"{self.url} was closed; open the lake again")
        if os.getpid() != self._process:
            raise InvalidRequest("a lake cannot be used across a fork; open it again in the child process")

    def _call_with_retries(self, operation: Callable[..., T], **request: Any) -> T:
        """Make a request that bears repetition, again while the table is busy or does not answer."""
        tries = _DynamoTries(self.url)
        while True:
            self.check_open()
            try:
                return operation(TableName=self._name, **request)
            except _PROBLEMS as problem:
                tries.wait_or_raise(problem)

    def _repeat_batch(self, operation: Callable[..., Any], requests: Any, rest: str) -> Iterator[Item]:
        """Make a request about many items, again for what was left undone, until nothing is."""
        tries = _DynamoTries(self.url)
        requests = {self._name: requests}
        while True:
            self.check_open()
            try:
                answer = operation(RequestItems=requests)
                yield from answer.get("Responses", {}).get(self._name, ())
                requests = answer.get(rest)
                if not requests:
                    return
            except _PROBLEMS as problem:
                tries.wait_or_raise(problem)
            else:
                tries.wait("it left requests unprocessed")

    def write_transaction(
        self, actions: Sequence[DynamoAction], token: str | None = None
    ) -> ConditionRefused | None:
        """Carry out a transaction; ``Refused`` if one of its conditions does not hold.

        Raises ``OutcomeUnknown`` if it may have been carried out, ``Unavailable`` if it surely was not.
        """
        tries = _DynamoTries(self.url)
        items = [
            {kind: {"TableName": self._name, **part} for kind, part in action.item.items()}
            for action in actions
        ]
        token = token or token_hex(16)
        self.check_open()
        while True:
            try:
                self._client.transact_write_items(TransactItems=items, ClientRequestToken=token)  # type: ignore[arg-type]
            except _PROBLEMS as problem:
                refused = _find_failed_conditions(problem)
                if refused:
                    return ConditionRefused(refused, tries.in_doubt)
                tries.wait_or_raise(problem, changes=True)
            else:
                return None

    def map_at_once(self, function: Callable[[P], T], parts: Sequence[P]) -> list[T]:
        """Do something to all parts at once, and wait for all of them, also if one fails."""
        if len(parts) == 1:
            return [function(parts[0])]
        try:
            running = [self._pool.submit(function, part) for part in parts]
            wait(running)
            return [future.result() for future in running]
        except (RuntimeError, CancelledError):
            self.check_open()  # it was closed meanwhile
            raise

    def get_one(self, partition: str) -> Item:
        answer = self._call_with_retries(
            self._client.get_item, Key=encode_key(partition), ConsistentRead=True
        )
        return dict(answer.get("Item", {}))

    def get_items(self, keys: Collection[str], attributes: str) -> dict[str, Item]:
        """The items with these keys, each alone in its partition; those that do not exist are left out."""

        def get_part(part: Sequence[str]) -> list[Item]:
            request = {
                "Keys": [encode_key(partition) for partition in part],
                "ProjectionExpression": f"pk, {attributes}",
                "ConsistentRead": True,
            }
            return list(self._repeat_batch(self._client.batch_get_item, request, "UnprocessedKeys"))

        pages = self.map_at_once(get_part, _split_items(list(dict.fromkeys(keys)), GET_MAX_KEYS))
        return {item["pk"]["S"]: item for page in pages for item in page}

    def scan(self, **request: Any) -> Item:
        return dict(self._call_with_retries(self._client.scan, ConsistentRead=True, **request))

    def query(self, **request: Any) -> Item:
        return dict(self._call_with_retries(self._client.query, ConsistentRead=True, **request))

    def remove_items(self, keys: Sequence[Item]) -> None:
        """Remove items, whatever they are."""

        def remove_part(part: Sequence[Item]) -> None:
            requests = [{"DeleteRequest": {"Key": item_key}} for item_key in part]
            list(self._repeat_batch(self._client.batch_write_item, requests, "UnprocessedItems"))

        self.map_at_once(remove_part, _split_items(keys, REMOVE_MAX_KEYS))

    def create_table(self) -> None:
        """Make the table if there is none, and wait until it can be used; refuse one with other keys."""
        deadline, wait_s = time.monotonic() + CREATION_MAX_S, BACKOFF_MIN_S
        while (table := self._describe_table()) is None or table["TableStatus"] in ("CREATING", "DELETING"):
            if table is None:
                self._call_with_retries(self._create_table)
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.url} was not ready after {CREATION_MAX_S:g} s; try again")
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, BACKOFF_MAX_S)
        keys = {part["AttributeName"]: part["KeyType"] for part in table["KeySchema"]}
        types = {part["AttributeName"]: part["AttributeType"] for part in table["AttributeDefinitions"]}
        if keys != KEY_SCHEMA or {types[name] for name in keys} != {"S"}:
            raise InvalidRequest(
                f"{self.url} is a DynamoDB table with other key columns than those of a lake"
            )

    def _describe_table(self) -> Item | None:
        try:
            return dict(self._call_with_retries(self._client.describe_table)["Table"])
        except LakeNotFound:
            return None

    def _create_table(self, **table: Any) -> None:
        definitions: Any = [{"AttributeName": name, "AttributeType": "S"} for name in KEY_SCHEMA]
        keys: Any = [{"AttributeName": name, "KeyType": kind} for name, kind in KEY_SCHEMA.items()]
        with suppress(self._client.exceptions.ResourceInUseException):  # another process was faster
            self._client.create_table(
                **table, BillingMode="PAY_PER_REQUEST", AttributeDefinitions=definitions, KeySchema=keys
            )

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()


class _DynamoTries:
    """The tries that one request has, and whether one of them may have been carried out unseen."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._deadline = time.monotonic() + TRIES_MAX_S
        self._longest_s = BACKOFF_MIN_S
        self.in_doubt = False

    def wait_or_raise(self, problem: Exception, changes: bool = False) -> None:
        """Wait and return if the request is worth another try; else raise what its problem means."""
        match problem:
            case ClientError():
                code = problem.response["Error"]["Code"]
                reason = f"{code}: {problem.response['Error'].get('Message', '')}"
                if code in _UNDECIDED or problem.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
                    self.in_doubt = True
                elif code not in _BUSY or not _list_cancellation_reasons(problem) <= _PASSING:
                    self._raise_refusal(code, reason, changes)
            case HTTPClientError() | SSLError() | ResponseParserError():
                reason = str(problem)
                self.in_doubt = True
            case NotConnected():
                reason = str(problem)
            case _:
                self._raise_refusal(type(problem).__name__, str(problem), changes)
        self.wait(reason, changes)

    def wait(self, why: str, changes: bool = False) -> None:
        """Wait at random, longer every time; raise if there is no time left."""
        wait_s = random.uniform(0, self._longest_s)
        self._longest_s = min(self._longest_s * 2, BACKOFF_MAX_S)
        if time.monotonic() + wait_s > self._deadline:
            self._give_up(why, changes)
            raise Unavailable(f"{self._url} was busy or did not answer for {TRIES_MAX_S:g} s: {why}")
        time.sleep(wait_s)

    def _give_up(self, why: str, changes: bool) -> None:
        if changes and self.in_doubt:
            raise OutcomeUnknown(f"{self._url} did not confirm whether a transaction was applied: {why}")

    def _raise_refusal(self, code: str, why: str, changes: bool) -> NoReturn:
        """What is no use trying again. Messages about signatures are not passed on: they can hold tokens."""
        self._give_up(code, changes)
        if code == "ResourceNotFoundException":
            raise LakeNotFound(
                f"there is no lake at {self._url}: the DynamoDB table does not exist; create it with: "
                f"penstock init '{self._url}'"
            ) from None
        if _DENIED.search(code):
            raise Denied(
                f"{self._url} denies access ({code}); credentials are taken from the environment, a "
                "profile or a role, as usual with AWS"
            ) from None
        raise InvalidRequest(f"{self._url} rejected a request: {why}") from None


def _parse_table_name(url: str) -> str:
    """The table that a URL names."""
    parts = split_url(url)
    if "@" in parts.netloc:
        raise InvalidRequest(
            "a dynamodb:// address must not contain credentials; set them by the environment, a profile or "
            "a role, as usual with AWS"
        )
    if not _TABLE.fullmatch(parts.netloc) or parts.path.strip("/") or parts.fragment:
        raise InvalidRequest(f"{hide_secrets(url)} is not of the form dynamodb://table?region=…")
    return parts.netloc


def _make_client(url: str) -> DynamoDBClient:
    chosen = parse_options(url, "region", "endpoint")
    if "@" in chosen.get("endpoint", ""):
        raise InvalidRequest("the endpoint of a dynamodb:// address must not contain credentials")
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=CONNECTIONS_MAX,
        retries={"total_max_attempts": 1, "mode": "standard"},  # it is done here, where doubt is noticed
        parameter_validation=False,
    )
    session = get_session()
    session.register_component("data_loader", _LOADER)
    try:
        client = boto3.session.Session(botocore_session=session).client(
            "dynamodb",
            region_name=chosen.get("region") or None,
            endpoint_url=chosen.get("endpoint") or None,
            config=config,
        )
    except NoRegionError:
        raise InvalidRequest(f"{hide_secrets(url)} names no region; add ?region=…") from None
    except (BotoCoreError, ValueError) as problem:
        raise InvalidRequest(f"{hide_secrets(url)} cannot be used: {problem}") from None
    client.meta.events.register("before-parse.dynamodb", _check_whole)
    return client


def _check_whole(response_dict: Item, **_: object) -> None:
    """Take an answer that broke off for lost; the client would take it for one that says nothing is there."""
    headers, body = response_dict["headers"], response_dict["body"]
    length, checksum = headers.get("content-length", ""), headers.get("x-amz-crc32")
    is_whole = length == str(len(body)) or "transfer-encoding" in headers
    if not is_whole or (checksum is not None and checksum != str(crc32(body))):
        raise HTTPClientError(error="the response was cut off")


def _split_items(items: Sequence[T], most: int) -> list[Sequence[T]]:
    return [items[start : start + most] for start in range(0, len(items), most)]


def _find_failed_conditions(problem: Exception) -> dict[int, Item]:
    """The actions of a cancelled transaction whose condition did not hold, with what they found."""
    reasons: Any = problem.response.get("CancellationReasons", ()) if isinstance(problem, ClientError) else ()
    return {
        number: dict(reason.get("Item", {}))
        for number, reason in enumerate(reasons)
        if reason["Code"] == "ConditionalCheckFailed"
    }


def _list_cancellation_reasons(problem: ClientError) -> set[str]:
    """Why a transaction was cancelled."""
    return {reason["Code"] for reason in problem.response.get("CancellationReasons", ())}
