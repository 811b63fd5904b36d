"""What all calls share: how they travel, and everything that is known about a call wherever it goes.

A call class carries that knowledge itself: how it may be sent again, what an earlier try of it came to, which
fields make it the same request. Catalogues, the client and the server read it from the class, and none of
them has a list of calls. A class that leaves out something where a default could be wrong cannot be defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from inspect import get_annotations
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypedDict, TypeVar

import msgspec

from penstock.errors import InvalidRequest
from penstock.model.clock import to_microseconds
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId, encode, hash_object

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.lake.answers import LandedRequest

R = TypeVar("R")

PAGE_MAX: Final = 1000
"""How many items a call asks for at once, where it goes through a list page by page."""


class RetrySafety(Enum):
    """What it means to send a call again whose answer was lost."""

    READ = auto()
    """It changes nothing."""
    SAFE = auto()
    """It is done again, and comes to the same."""
    BY_KEY = auto()
    """The lake recognises it by its idempotency key, and does it once."""
    ONCE = auto()
    """It may be done twice, or be answered otherwise the second time."""


class Call(msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all calls share: how they travel, the type of their answer, and what is known about them."""

    method: ClassVar[str] = "GET"
    path: ClassVar[str]
    answer: ClassVar[Any]
    retry: ClassVar[RetrySafety]
    """A ``GET`` is a read; every other call says it. See ``find_retry_safety``."""
    makes_lake: ClassVar[bool]
    """Whether it brings something into the lake, so that one is made for it where there is none yet. No
    ``GET`` does; every other call says it. See ``adds``."""
    counted: ClassVar[tuple[str, ...]]
    """Fields with one item for each thing that it does: a server limits how many. A call that is no ``GET``
    and has fields of many items says it."""
    pinned_by: ClassVar[tuple[str, ...]] = ()
    """Fields that, if each is the whole id of a commit, make the answer one that never changes."""
    location_fields: ClassVar[tuple[str, ...]] = ()
    """Those of its fields that are locations, or addresses of files below one."""
    is_long: ClassVar[bool] = False
    """Whether it takes as long as the lake is large, and tells how far it is."""
    is_vital: ClassVar[bool] = False
    """Whether it gets a server out of trouble that its writers are in."""
    goes_on: ClassVar[bool] = False
    """Whether it is done to its end though nobody waits for its answer any more."""

    @classmethod
    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "path"):  # others are bases of calls, or do not travel
            _check_class(cls)

    def adds_anything(self) -> bool:
        """Whether it adds anything. What only removes makes no lake: one that is not there cannot have it."""
        return True

    def check_sendable(self) -> None:
        """Raise what the lake itself would raise for values that cannot be sent, where that is known."""

    def look_up_before(self, ask: Ask) -> Any:  # noqa: ARG002
        """What the answer needs that no repetition could find out any more; asked before it is first sent."""
        return None

    def answer_if_done_before(self, ask: Ask, refused: PenstockError, seen: Any) -> R:  # noqa: ARG002
        """The answer if a repetition was refused because an earlier try did it; raises ``refused`` if not.

        ``seen`` is what ``look_up_before`` gave. For a call without an idempotency key.
        """
        raise refused


Ask: TypeAlias = Callable[[Call[Any]], Any]
"""Answers calls, to find out what came of another one."""


class WriteCall(Call[R], frozen=True, kw_only=True):
    """A call that changes a branch or tag, once, however often it is sent with the same key."""

    method: ClassVar[str] = "POST"
    retry: ClassVar[RetrySafety] = RetrySafety.BY_KEY
    target: ClassVar[str]
    """The field that names the reference it is about; nothing there is the default branch."""
    moves: ClassVar[bool] = False
    """Whether it moves the reference itself, and so has keys apart from what brings commits to it."""
    unhashed: ClassVar[tuple[str, ...]]
    """Fields that do not make it another request, beside those that all writes have. As a rule the branch:
    each branch has keys of its own."""
    revisions: ClassVar[tuple[str, ...]]
    """Fields that name revisions which decide what it comes to. See ``list_named_revisions``."""

    idempotency_key: str | None = None
    """The same request under the same key is done once. A remote client makes one if it is not given."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""
    asked: ObjectId | None = None
    """A hash of the original request, if it was changed since. It is not sent to a server."""

    @property
    def target_name(self) -> str | None:
        """The reference that it is about; ``None`` for the default branch."""
        name: str | None = getattr(self, self.target)
        return name

    @property
    def fixed_key(self) -> str | None:
        """The one key that it can have, where that is not for its sender to choose.

        Then something other than the branch remembers what it came to.
        """
        return None

    @property
    def is_checked_again(self) -> bool:
        """Whether its handler answers a repetition, which it may refuse although the first try landed."""
        return False

    def list_named_revisions(self) -> Iterator[str]:
        """The revisions that decide what it comes to, as far as they are given."""
        for field in self.revisions:
            if (revision := getattr(self, field)) is not None:
                yield revision

    def replace_unhashed_values(self) -> dict[str, Any]:
        """What takes the place of fields that do not make it another request."""
        return {"who": "", "idempotency_key": None, **dict.fromkeys(self.unhashed)}

    def recover(self, ask: Ask, landing: LandedRequest) -> R:
        """The answer, if it is known to have landed: with as much as can still be found out."""
        raise NotImplementedError


def find_retry_safety(call: Call[Any]) -> RetrySafety:
    """What it means to send this call again: a dry run changes nothing."""
    return RetrySafety.READ if getattr(call, "dry_run", False) else call.retry


def _check_class(kind: type[Call[Any]]) -> None:
    """``TypeError`` for a call class that does not say what nobody else can know."""
    if kind.method == "GET":
        if getattr(kind, "retry", RetrySafety.READ) is not RetrySafety.READ or getattr(
            kind, "makes_lake", False
        ):
            raise TypeError(f"{kind.__name__} is a GET, so it must not change anything")
        kind.retry, kind.makes_lake, kind.counted = RetrySafety.READ, False, ()
    types = {
        name: str(annotation) for base in kind.__mro__ for name, annotation in get_annotations(base).items()
    }
    fields = {name: annotation for name, annotation in types.items() if "ClassVar" not in annotation}
    required = ["answer", "retry", "makes_lake"]
    if any(annotation.startswith(("tuple[", "dict[")) for annotation in fields.values()):
        required.append("counted")
    else:
        kind.counted = ()
    if issubclass(kind, WriteCall):
        required += ["target", "unhashed", "revisions"]
    if missing := [name for name in required if not hasattr(kind, name)]:
        raise TypeError(f"{kind.__name__} does not declare its {' and '.join(missing)}")
    if issubclass(kind, WriteCall) != (kind.retry is RetrySafety.BY_KEY):
        raise TypeError(f"{kind.__name__}: a call has an idempotency key if and only if it is a Write")
    named = [*kind.counted, *kind.pinned_by]
    if issubclass(kind, WriteCall):
        if kind.recover is WriteCall.recover:
            raise TypeError(
                f"{kind.__name__} must define recover(): the answer to a request that turns out "
                "to have landed already"
            )
        named += [kind.target, *kind.unhashed, *kind.revisions]
    if unknown := [name for name in named if name not in fields]:
        raise TypeError(f"{kind.__name__} has no field {' nor '.join(unknown)}")


class CommitDescription(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a writer says about a commit."""

    message: str | None = None
    """The message; if left out, one is generated from what was done."""
    authors: tuple[str, ...] | None = None
    """The authors; the caller if left out."""
    signed_off_by: tuple[str, ...] = ()
    author_time_us: int = 0
    """As ``author_time``, in microseconds since 1970. Clients of the first release send 0 for nothing."""
    properties: dict[str, tuple[str, ...]] = {}
    author_time: datetime | None = None
    """When it was written; the time of the commit if left out."""


class CommitOptions(TypedDict, total=False):
    """What a program may say with any write."""

    message: str | None
    """The commit message; by default one that names the operation."""
    author: str | None
    """The author of the commit; by default that of the opened lake."""
    idempotency_key: str | None
    """An idempotency key: the same request under the same key is done once."""


class CommitFields(TypedDict):
    """The same, as the fields of a call."""

    said: CommitDescription
    idempotency_key: str | None


def commit_fields(
    properties: Mapping[str, str | Sequence[str]] | None = None,
    *,
    message: str | None = None,
    author: str | None = None,
    idempotency_key: str | None = None,
) -> CommitFields:
    """What a program says with a write, as the fields of a call. ``TypeError`` for any other option."""
    return {"said": describe_commit(message, author, properties), "idempotency_key": idempotency_key}


def describe_commit(
    message: str | None,
    author: str | None = None,
    properties: Mapping[str, str | Sequence[str]] | None = None,
) -> CommitDescription:
    """What a program says about a commit, as a call carries it."""
    lists = {
        name: tuple(values) if isinstance(values, list | tuple) else (values,)
        for name, values in (properties or {}).items()
    }
    authors = None if author is None else (author,) if author else ()
    return CommitDescription(message=message, authors=authors, properties=lists)


class ReadAt(Call[R], frozen=True, kw_only=True):
    """A call that reads the lake at a commit."""

    at: str | None = None
    """A revision; the default branch's head if nothing is given."""
    via: str | None = None
    """The reference by which the commit was found, if ``at`` is only its id: whoever may read the reference
    may read this."""


# What the handlers of calls share: what a commit says of itself, how a list is limited, what is refused.


T = TypeVar("T")


def commit_meta(description: CommitDescription, who: str, message: str) -> CommitMeta:
    """What a commit says of itself: ``message``, unless its writer gave one."""
    return CommitMeta(
        message=message if description.message is None else description.message,
        authors=description.authors if description.authors is not None else ((who,) if who else ()),
        author_time_us=description.author_time_us
        if description.author_time is None
        else to_microseconds(description.author_time),
        signed_off_by=description.signed_off_by,
        properties=description.properties,
        committer=who,
        is_dated=description.author_time is not None,
    )


def take_first(items: Iterable[T], limit: int | None) -> Iterator[T]:
    if limit is not None and limit < 0:
        raise InvalidRequest(f"limit must be 0 or greater, got {limit}")
    return islice(items, limit)


def in_transaction_error(name: str) -> InvalidRequest:
    """The error for taking over what is in a transaction."""
    return InvalidRequest(
        f"'{name}' is the branch of a transaction, and cannot be read from before the transaction is "
        "committed",
        name=name,
    )


# A request as it was asked: what tells a repetition from another request under the same idempotency key.


AFTER_DOUBT: Final = "after_doubt"
"""In an error's ``details``: it is of a later try, and nobody heard what came of the one before."""


class _FirstCommitDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A description with the fields that it had in the first release, so that a request keeps its hash."""

    message: str | None
    authors: None = None
    signed_off_by: tuple[()] = ()
    author_time_us: int = 0
    properties: dict[str, tuple[str, ...]]


def request_digest(call: WriteCall[Any]) -> bytes:
    """A hash of a request as its writer put it, with the names that it had, wherever they lead by now.

    Neither who sends it matters, nor which branch it is for: each has keys of its own.
    """
    if call.asked is not None:
        return call.asked
    try:
        replaced = call.replace_unhashed_values()
        if isinstance(said := getattr(call, "said", None), CommitDescription):
            replaced["said"] = _FirstCommitDescription(message=said.message, properties=said.properties)
        plain = msgspec.structs.replace(call, **replaced)
        return hash_object(encode((type(call).__name__, plain)))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as problem:
        raise InvalidRequest(f"invalid request: {problem}") from None
