"""Object storage as a bucket: S3, Google Cloud Storage and Azure, through obstore.

Keys come from the environment (``AWS_ACCESS_KEY_ID`` and the like) or from the role of the machine, not from
the files of the vendors' own tools. Writes are never sent twice by the library: a second sending of a write
that was done would be refused, and look like a loss.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from penstock.errors import InvalidRequest, LakeNotFound, PenstockError, StorageRefused, Unavailable
from penstock.storage.buckets import (
    Bucket,
    BucketEntry,
    Condition,
    EntityTag,
    TaggedContent,
    UnansweredWrite,
    WriteRefused,
)
from penstock.storage.disk_space import storage_full_error

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode
    from obstore.store import ClientConfig, RetryConfig

IN_FLIGHT_MAX: Final = 128
REQUEST_TIMEOUT_S: Final = 20.0
CONNECT_TIMEOUT_S: Final = 5.0
IDLE_MAX_S: Final = 20.0
READ_TRIES_MAX: Final = 4
READ_RETRIES_MAX_S: Final = 15.0
DELETE_PAGE: Final = 1000
PART_BYTES: Final = 16 * 1024 * 1024
"""Of what is sent in parts. There are at most 10,000 of them."""
PARTS_AT_ONCE: Final = 4
SECOND_US: Final = 1_000_000
SCHEMES: Final = ("s3", "gs", "az")

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_NOT_SENT: Final = re.compile(r"HttpError \{\s*kind: Connect,")
_FULL: Final = frozenset({"XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded"})
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_REFUSED: Final = ("401", "403")
_SKEWED: Final = re.compile(r"RequestTimeTooSkewed|RequestExpired|RequestInTheFuture")
_EXPIRED: Final = re.compile(r"ExpiredToken|TokenRefreshRequired|InvalidToken")
"""Of keys that are lent for a while. S3 answers these by 400."""
_UNKNOWN_KEYS: Final = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|InvalidSecurity|AuthorizationHeaderMalformed"
)


class RemoteBucket(Bucket):
    """A bucket, or the part of one below a prefix, at ``s3://``, ``gs://`` or ``az://``.

    ``endpoint`` and ``region`` are given where the vendor's own variables do not name them.
    """

    resolution_us = SECOND_US

    def __init__(
        self,
        url: str,
        scheme: str,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        import asyncio

        self.url = url
        self._obstore = _load_library()
        self._scheme = scheme
        self._errors = self._obstore.exceptions
        self._slots = asyncio.Semaphore(in_flight_max)
        client: ClientConfig = {
            "timeout": timedelta(seconds=timeout_s),
            "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT_S, timeout_s)),
            "pool_idle_timeout": timedelta(seconds=IDLE_MAX_S),
            "allow_http": endpoint is not None and endpoint.startswith("http://"),
        }
        more = {"endpoint": endpoint, "region": region}
        given_options = {name: value for name, value in more.items() if value is not None}
        if scheme == "s3":
            # Servers are known that take an upload which was cut off for a whole one, unless they must check.
            given_options["checksum_algorithm"] = "sha256"
        never: RetryConfig = {"max_retries": 0}
        bounded: RetryConfig = {
            "max_retries": READ_TRIES_MAX - 1,
            "retry_timeout": timedelta(seconds=READ_RETRIES_MAX_S),
        }
        self._writes, self._reads = (
            self._open_client(
                bucket, unquote(prefix), client_options=client, retry_config=retry, **given_options
            )
            for retry in (never, bounded)
        )

    def _open_client(self, bucket: str, prefix: str, **options: Any) -> Any:
        stores = self._obstore.store
        make = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[self._scheme]
        try:
            return make(bucket, prefix=prefix or None, **options)
        except (self._errors.BaseError, TypeError, ValueError):
            # Its own words may repeat what it was given, keys from the environment among it.
            raise InvalidRequest(
                f"{self.url} cannot be opened with these options and this environment"
            ) from None

    async def get(self, key: str) -> TaggedContent | None:
        async with self._slots:
            try:
                answer = await self._obstore.get_async(self._reads, key)
                data = await answer.bytes_async()
            except FileNotFoundError as problem:
                self._check_bucket(problem, "read")
                return None
            except self._errors.BaseError as problem:
                raise self._explain_failure(problem, "read") from None
            return TaggedContent(data.to_bytes(), _make_tag(answer.meta))

    async def head(self, key: str) -> BucketEntry | None:
        async with self._slots:
            try:
                return _make_bucket_entry(await self._obstore.head_async(self._reads, key))
            except FileNotFoundError:
                return None
            except self._errors.BaseError as problem:
                raise self._explain_failure(problem, "read") from None

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        if not length:  # nobody can be asked for no bytes
            return None if await self.size(key) is None else b""
        async with self._slots:
            try:
                buffer = await self._obstore.get_range_async(self._reads, key, start=start, length=length)
            except FileNotFoundError as problem:
                self._check_bucket(problem, "read")
                return None
            except self._errors.BaseError as problem:
                if _is_beyond(problem):
                    return b""
                raise self._explain_failure(problem, "read") from None
            return bytes(buffer)

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        async with self._slots:
            try:
                result = await self._obstore.put_async(
                    self._writes, key, data, mode=_make_put_mode(condition), use_multipart=False
                )
            except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
                raise WriteRefused from None
            except FileNotFoundError as problem:
                self._check_bucket(problem, "write")
                raise WriteRefused from None  # what was to be replaced is gone
            except self._errors.BaseError as problem:
                raise self._write_error(problem, "write") from None
        return _make_tag(result)

    async def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        async with self._slots:
            try:
                await self._obstore.put_async(
                    self._reads,  # which tries again: nobody else writes the key
                    key,
                    _each_in_a_thread(pieces),
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_AT_ONCE,
                )
            except FileNotFoundError as problem:
                self._check_bucket(problem, "write")
                raise self._write_error(problem, "write") from None
            except self._errors.BaseError as problem:
                raise self._write_error(problem, "write") from None

    async def delete(self, keys: Sequence[str]) -> None:
        import asyncio

        if self._scheme == "s3":
            pages = [keys[start : start + DELETE_PAGE] for start in range(0, len(keys), DELETE_PAGE)]
        else:
            pages = [[key] for key in keys]  # of several, they stop at the first that is not there
        await asyncio.gather(*map(self._delete_keys, pages))

    async def _delete_keys(self, keys: Sequence[str]) -> None:
        async with self._slots:
            try:
                await self._obstore.delete_async(self._writes, keys)
            except FileNotFoundError as problem:
                self._check_bucket(problem, "delete")
            except self._errors.BaseError as problem:
                raise self._write_error(problem, "delete") from None

    async def list(self, folder: str, after: str = "") -> AsyncIterator[BucketEntry]:
        pages = self._obstore.list(self._reads, folder or None, offset=after or None, chunk_size=DELETE_PAGE)
        while True:
            try:
                page = await anext(pages, None)
            except FileNotFoundError as problem:
                self._check_bucket(problem, "list")
                return
            except self._errors.BaseError as problem:
                raise self._explain_failure(problem, "list") from None
            if page is None:
                return
            for meta in page:
                yield _make_bucket_entry(meta)

    def _check_bucket(self, problem: Exception, right: str) -> None:
        if any(name in str(problem) for name in _NO_BUCKET):
            raise self._explain_failure(problem, right) from None

    def _write_error(self, problem: Exception, right: str) -> Exception:
        """A write that failed: surely without effect, or nobody knows."""
        text = str(problem)
        status = _STATUS.search(text)
        is_refusal = status is not None and status[1].startswith("4") and status[1] not in ("408", "429")
        is_full = _is_storage_full_answer(status, _CODE.search(text))
        if is_refusal or is_full or _NOT_SENT.search(text) or self._is_denied(problem):
            return self._explain_failure(problem, right)
        return UnansweredWrite(self._explain_failure(problem, right).message)

    def _is_denied(self, problem: Exception) -> bool:
        if isinstance(problem, self._errors.PermissionDeniedError | self._errors.UnauthenticatedError):
            return True
        text = str(problem)
        status, code = _STATUS.search(text), _CODE.search(text)
        is_about_keys = code is not None and (_EXPIRED.search(code[1]) or _UNKNOWN_KEYS.search(code[1]))
        return bool(is_about_keys) or (status is not None and status[1] in _REFUSED)

    def _explain_failure(self, problem: Exception, right: str) -> PenstockError:
        """An error of ours: the library's own message holds the whole request, and may hold a signature."""
        text = str(problem)
        status, code = _STATUS.search(text), _CODE.search(text)
        reason = " ".join(match[1] for match in (status, code) if match is not None)
        if self._is_denied(problem):
            code_text = code[1] if code is not None else ""
            return self._refused_error(
                f"does not let this process {right}", reason, _explain_refusal(code_text, right), right
            )
        if any(name in text for name in _NO_BUCKET):
            if self.part:
                return self._refused_error(
                    "cannot be used", reason, "there is no such bucket; create it", right
                )
            return LakeNotFound(f"there is no such bucket: {self.url}; create it first", url=self.url)
        if _is_storage_full_answer(status, code):
            return storage_full_error(self.url, f"it answered {reason}", url=self.url, **self._part_detail)
        if status is not None:
            return Unavailable(f"{self.url} answered {reason}", url=self.url, **self._part_detail)
        return Unavailable(f"{self.url} does not answer", url=self.url, **self._part_detail)

    def _refused_error(self, subject: str, reason: str, mending: str, right: str) -> StorageRefused:
        return StorageRefused(
            f"{self.url} {subject} ({reason or 'no valid keys'}): {mending}. Nothing was changed; trying "
            "again "
            "does not help until that is fixed",
            url=self.url,
            right=right,
            **self._part_detail,
        )


def _explain_refusal(code: str, right: str) -> str:
    """Why storage refuses a process, and what whoever runs it can do."""
    if _SKEWED.search(code):
        return "this machine's clock differs too much from that of the storage; correct it"
    if _EXPIRED.search(code):
        return "the access keys have expired; set new ones and restart the program"
    if _UNKNOWN_KEYS.search(code):
        return "the access keys or their secret are wrong; correct them"
    return f"its access keys lack the permission to {right} there; grant it, or use other keys"


async def _each_in_a_thread(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Pieces that take their time to come, while other requests go on."""
    import asyncio

    waiting, loop = iter(pieces), asyncio.get_running_loop()
    while (piece := await loop.run_in_executor(None, next, waiting, None)) is not None:
        yield piece


def _load_library() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise InvalidRequest(
            "object storage needs the library obstore: pip install 'penstock[objectstore]'",
            extra="objectstore",
        ) from None
    return obstore


def _is_storage_full_answer(status: re.Match[str] | None, code: re.Match[str] | None) -> bool:
    """Whether a server said that it has no room, or a quota is used up, as HTTP, MinIO or Ceph say it."""
    return (status is not None and status[1] == "507") or (code is not None and code[1] in _FULL)


def _is_beyond(problem: Exception) -> bool:
    """Whether bytes were asked for that begin where a key has none any more."""
    status = _STATUS.search(str(problem))
    return status is not None and status[1] == "416"


def _make_put_mode(condition: Condition) -> PutMode:
    if condition is None:
        return "overwrite"
    if condition == "absent":
        return "create"
    assert isinstance(condition, EntityTag)
    return {name: value for name, value in zip(("e_tag", "version"), condition, strict=True) if value}  # type: ignore[return-value]


def _make_tag(meta: Any) -> EntityTag:
    return EntityTag(meta["e_tag"], meta["version"])


def _make_bucket_entry(meta: ObjectMeta) -> BucketEntry:
    # Listings are finer than single answers on some servers; whole seconds are what all agree on.
    return BucketEntry(
        meta["path"], meta["size"], int(meta["last_modified"].timestamp()) * SECOND_US, _make_tag(meta)
    )
