"""Commits as programs and people see them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.model.clock import TIME_MAX_US, TIME_MIN_US, to_utc_datetime
from penstock.model.encoding import NO_COMMIT, ObjectId, encode, hash_parts, make_decoder
from penstock.model.objects import CommitObject

MESSAGE_MAX_CHARS: Final = 16_384
PROPERTIES_MAX_CHARS: Final = 16_384
PROPERTIES_MAX: Final = 1_000
AUTHOR_MAX_CHARS: Final = 256


class CommitMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer says about a commit."""

    message: str = ""
    authors: tuple[str, ...] = ()
    author_time_us: int = 0
    """When it was written. 0 is the beginning of 1970 only if it is dated, otherwise nothing is said."""
    signed_off_by: tuple[str, ...] = ()
    properties: dict[str, tuple[str, ...]] = {}
    committer: str = ""
    is_dated: bool = False
    """Whether the author's time is given, whatever it is."""

    def get_written_time_us(self, committed_us: int) -> int:
        """When it was written; when it was committed, if nothing is said."""
        return self.author_time_us if self.is_dated or self.author_time_us else committed_us

    def check(self) -> CommitMeta:
        """Return ``self`` if a commit can carry it."""
        try:
            _decode_meta(encode(self))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as problem:
            raise InvalidRequest(f"a commit cannot carry this description: {problem}") from None
        if not TIME_MIN_US <= self.author_time_us <= TIME_MAX_US:
            raise InvalidRequest("the author time of a commit must be in the years 1 to 9999")
        if len(self.message) > MESSAGE_MAX_CHARS:
            raise InvalidRequest(f"a commit message can have at most {MESSAGE_MAX_CHARS} characters")
        for author in (*self.authors, *self.signed_off_by, self.committer):
            if len(author) > AUTHOR_MAX_CHARS:
                raise InvalidRequest(
                    f"an author can have at most {AUTHOR_MAX_CHARS} characters: {author[:40]!r}…"
                )
        if len(self.authors) + len(self.signed_off_by) > 100:
            raise InvalidRequest("a commit can have at most 100 authors and signers")
        size = sum(len(name) + sum(map(len, values)) for name, values in self.properties.items())
        if size > PROPERTIES_MAX_CHARS:
            raise InvalidRequest(
                f"the properties of a commit can have at most {PROPERTIES_MAX_CHARS} characters"
            )
        if sum(1 + len(values) for values in self.properties.values()) > PROPERTIES_MAX:
            raise InvalidRequest(f"a commit can have at most {PROPERTIES_MAX} properties and values")
        return self


_decode_meta = make_decoder(CommitMeta).decode


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit with its id."""

    id: str
    """64 hexadecimal digits."""
    parents: tuple[str, ...]
    """The previous commit first, then merged ones; empty for a first commit."""
    time: datetime
    """When it was committed."""
    author: str
    """Its first author, or its committer if it names none."""
    message: str
    """The whole message."""
    properties: dict[str, tuple[str, ...]]
    """Further facts that its writer noted."""
    generation: int
    """One more than the highest of its parents."""
    depth: int
    """How many commits lead here by first parents."""
    key: str
    """The idempotency key of the request."""
    authors: tuple[str, ...]
    """All authors."""
    author_time: datetime
    """When it was written."""
    committer: str
    """The committer: who sent the commit."""
    signed_off_by: tuple[str, ...]
    """Names of signed-off-by lines."""
    is_merge: bool
    """Whether it has further parents."""

    @classmethod
    def from_stored(cls, commit_id: ObjectId, stored: CommitObject) -> Commit:
        return cls(
            id=commit_id.hex(),
            parents=tuple(parent.hex() for parent in stored.parents),
            time=to_utc_datetime(stored.time_us),
            author=stored.authors[0] if stored.authors else stored.committer,
            message=stored.message,
            properties=stored.properties,
            generation=stored.generation,
            depth=stored.depth,
            key=remove_key_owner(stored.key),
            authors=stored.authors,
            # The first release stored any time; a log with one that nobody can hold stays readable.
            author_time=to_utc_datetime(stored.author_time_us),
            committer=stored.committer,
            signed_off_by=stored.signed_off_by,
            is_merge=bool(stored.further_parents),
        )

    @property
    def object_id(self) -> ObjectId:
        return bytes.fromhex(self.id)

    def __repr__(self) -> str:
        title = self.message.partition("\n")[0]
        return f"<Commit {self.id[:8]} {title!r} by {self.author or 'nobody'}>"


EMPTY_COMMIT_ID: Final = NO_COMMIT.hex()


# Idempotency keys: what callers name their requests by, and whose a key is.
#
# A key that a token used is stored with a mark of the token's name, so that every token has keys of its own.
# Whoever asks the store itself, or a server without tokens, has keys without a mark.


KEY_MAX_CHARS: Final = 200
MARK_DIGITS: Final = 32

_MARKED: Final = re.compile(rf"(?s:(.+))~[0-9a-f]{{{MARK_DIGITS}}}")


def add_key_owner(key: str, owner: str) -> str:
    """The key as it is stored for the token of a name."""
    return f"{key}~{hash_parts('owner of a key', owner).hex()[:MARK_DIGITS]}"


def remove_key_owner(stored: str) -> str:
    """The key as the caller gave it."""
    match = _MARKED.fullmatch(stored)
    return match[1] if match is not None else stored


def check_key(key: str) -> str:
    """``InvalidRequest`` if a key cannot be stored."""
    if (
        not isinstance(key, str)
        or not 0 < len(remove_key_owner(key)) <= KEY_MAX_CHARS
        or not key.isprintable()
    ):
        raise InvalidRequest(f"an idempotency key must have 1 to {KEY_MAX_CHARS} printable characters")
    return key
