"""The decoders of all types: the only module that makes them.

msgspec keeps a table with every struct: how each of its fields is read. The first decoder of a struct fills
the table, and other threads see it before it is complete: a thread that decodes by it crashes the process.
So all tables are filled under one lock, and a decoder is returned when the tables that it reads are complete.
Encoding needs no table.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, overload

import msgspec

T = TypeVar("T")

_filling: Final = threading.RLock()
_decoders: Final[dict[Any, Any]] = {}
_filled: Final[set[Any]] = set()
"""The types that values are converted to, whose tables are complete."""

if hasattr(os, "register_at_fork"):
    # A child of this process would keep a table as it is at the fork, and a lock that nobody there releases.
    os.register_at_fork(
        before=_filling.acquire, after_in_parent=_filling.release, after_in_child=_filling.release
    )


@overload
def get_json_decoder(
    kind: type[T],
    *,
    dec_hook: Callable[[type, Any], Any] | None = None,
    float_hook: Callable[[str], Any] | None = None,
) -> msgspec.json.Decoder[T]: ...
@overload
def get_json_decoder(
    kind: Any,
    *,
    dec_hook: Callable[[type, Any], Any] | None = None,
    float_hook: Callable[[str], Any] | None = None,
) -> msgspec.json.Decoder[Any]: ...
def get_json_decoder(
    kind: Any,
    *,
    dec_hook: Callable[[type, Any], Any] | None = None,
    float_hook: Callable[[str], Any] | None = None,
) -> msgspec.json.Decoder[Any]:
    """The decoder of JSON of a type, for all threads: the same one for the same type and hooks."""
    return _make_once(
        ("json", kind, dec_hook, float_hook),
        lambda: msgspec.json.Decoder(kind, dec_hook=dec_hook, float_hook=float_hook),
    )


def make_own_json_decoder(
    kind: Any, *, float_hook: Callable[[str], Any] | None = None
) -> msgspec.json.Decoder[Any]:
    """A decoder of JSON of a type that its caller made and nobody else decodes: it goes with the caller."""
    with _filling:
        return msgspec.json.Decoder(kind, float_hook=float_hook)


@overload
def get_msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def get_msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def get_msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of MessagePack of a type, for all threads: the same one for the same type."""
    return _make_once(("msgpack", kind), lambda: msgspec.msgpack.Decoder(kind))


@overload
def convert_value(
    value: Any,
    kind: type[T],
    *,
    strict: bool = True,
    from_attributes: bool = False,
    builtin_types: Iterable[type] | None = None,
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> T: ...
@overload
def convert_value(
    value: Any,
    kind: Any,
    *,
    strict: bool = True,
    from_attributes: bool = False,
    builtin_types: Iterable[type] | None = None,
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> Any: ...
def convert_value(
    value: Any,
    kind: Any,
    *,
    strict: bool = True,
    from_attributes: bool = False,
    builtin_types: Iterable[type] | None = None,
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> Any:
    """A value as one of another type; ``msgspec.ValidationError`` if it cannot be one."""
    if kind not in _filled:
        with _filling:
            # Of all decoders, the one that takes every type that a value can be converted to.
            msgspec.msgpack.Decoder(kind)
            _filled.add(kind)
    return msgspec.convert(
        value,
        kind,
        strict=strict,
        from_attributes=from_attributes,
        builtin_types=builtin_types,
        dec_hook=dec_hook,
    )


def _make_once(key: tuple[Any, ...], make: Callable[[], T]) -> T:
    decoder: T | None = _decoders.get(key)
    if decoder is None:
        with _filling:
            decoder = _decoders.get(key)
            if decoder is None:
                decoder = _decoders[key] = make()
    return decoder
