"""Filters: expressions in CEL, the Common Expression Language, that choose what a list shows.

An expression comes from a client, so what it may cost is decided before it runs: its length, how deeply its
brackets and its loops nest, and how much one evaluation can amount to with the lists that it is given. The
library that evaluates it differs from the language in three places, which are put right in the expression:
``size`` counts characters and not bytes, ``has`` is false for a field without a value, and the patterns of
``matches`` are bounded.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache, partial
from typing import Any, Final

from penstock.errors import InvalidRequest
from penstock.server.nessie.cel_items import VARIABLES, FilterKind, mentioned
from penstock.server.nessie.cel_words import MATCHES, SIZE, Shape, TooCostly, mended, shape_of, tokens_of

EXPRESSION_MAX_CHARS: Final = 4_000
WORK_MAX: Final = 5_000_000
"""What one evaluation may amount to: about as many steps, and far less than a second."""
PATTERN_MAX_CHARS: Final = 500
REPETITIONS_MAX: Final = 100
"""What the counts of a pattern, such as ``{3,20}``, may multiply to."""
MATCHES_MAX_S: Final = 1.0
"""How long the patterns of one evaluation may take."""
FILTER_MAX_S: Final = 10.0
"""How long a filter may run for one answer, over all items."""

_TYPES: Final = frozenset(
    ("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint")
)
_FUNCTIONS: Final = _TYPES | {
    *("contains", "duration", "dyn", "endsWith", "matches", "size", "startsWith", "timestamp"),
    *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours"),
    *("getMilliseconds", "getMinutes", "getMonth", "getSeconds"),
}
_FAILURES: Final = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
"""What the library raises for an expression that cannot be read or evaluated."""


def filter_for(kind: FilterKind, expression: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an item is to be shown; ``cel_items`` makes them. Use it for one answer only.

    An expression that cannot be read, names something that is not there, costs too much, fails on an item or
    does not come to true or false is refused with ``InvalidRequest``.
    """
    script = _script(kind, expression)
    spent_s = 0.0

    def keep(item: Mapping[str, Any]) -> bool:
        nonlocal spent_s
        if spent_s > FILTER_MAX_S:
            raise _refused(expression, f"it takes longer than {FILTER_MAX_S:g} s")
        start = time.perf_counter()
        try:
            return script.holds_for(item)
        finally:
            spent_s += time.perf_counter() - start

    return keep


class Script:
    """An expression that was read and found fit. Evaluating it changes nothing, so that threads share it."""

    def __init__(self, expression: str, program: Any, shape: Shape, names: Iterable[str]) -> None:
        self._expression = expression
        self._program = program
        self._shape = shape
        self._names = tuple(names)

    def holds_for(self, item: Mapping[str, Any]) -> bool:
        """Whether it is true of the item."""
        values = {name: mentioned(item[name], self._expression) for name in self._names}
        operations = values.get("operations", ())
        work = self._shape.work(len(operations), _longest(values))
        if work > WORK_MAX:
            raise _refused(self._expression, "it costs too much: its loops go through too much")
        try:
            result = self._program.execute(_context(values))
        except _FAILURES as problem:
            raise _refused(self._expression, _told(problem)) from None
        if not isinstance(result, bool):
            raise _refused(self._expression, "it must come to true or false")
        return result


@lru_cache(maxsize=256)
def _script(kind: FilterKind, expression: str) -> Script:
    """The script of an expression; the last ones are kept, as clients page with the same one."""
    if len(expression) > EXPRESSION_MAX_CHARS:
        raise InvalidRequest(f"a filter has at most {EXPRESSION_MAX_CHARS} characters")
    program = _compiled(expression, expression)
    tokens = tuple(tokens_of(expression))
    try:
        shape = shape_of(tokens)
    except TooCostly as problem:
        raise _refused(expression, str(problem)) from None
    _check_names(kind, expression, program, shape)
    program = _compiled("".join(mended(tokens)), expression)
    return Script(expression, program, shape, VARIABLES[kind].keys() & set(program.variables()))


def _compiled(text: str, expression: str) -> Any:
    try:
        return _library().compile(text)
    except _FAILURES as problem:
        raise _refused(expression, _told(problem)) from None


@cache
def _library() -> Any:
    """Loaded when the first filter comes: it takes half a second, and most servers never see one.

    It logs what it raises as well; a client's mistakes do not belong into a server's log.
    """
    import cel

    logging.getLogger("cel").disabled = True
    return cel


def _check_names(kind: FilterKind, expression: str, program: Any, shape: Shape) -> None:
    """Refuse variables, fields and functions that there are not, also where they would never be reached."""
    declared = VARIABLES[kind]
    for name in program.variables():
        if name not in declared and name not in shape.bound and name not in _TYPES:
            raise _refused(expression, f"undeclared reference to '{name}'")
    for name, field in shape.mentions:
        fields = declared.get(name) if name not in shape.bound else None
        if fields is not None and field and field not in fields:
            raise _refused(expression, f"undefined field '{field}' of '{name}'")
    for name in program.functions():
        if name.isidentifier() and not name.startswith("_") and name not in _FUNCTIONS:
            raise _refused(expression, f"undeclared function '{name}'")


def _context(values: dict[str, Any]) -> Any:
    """The values and functions of one evaluation."""
    matches = partial(_matches, time.perf_counter() + MATCHES_MAX_S)
    return _library().Context(values, {SIZE: _size, MATCHES: matches})


def _size(value: Any) -> int:
    """How many characters, elements or keys there are."""
    return len(value)


def _matches(deadline: float, text: str, pattern: str) -> bool:
    """Whether the pattern is found in the text, in time proportional to both.

    The library reads the pattern each time, which may take a millisecond: hence the deadline.
    """
    if time.perf_counter() > deadline:
        raise ValueError(f"its patterns take longer than {MATCHES_MAX_S:g} s")
    if len(pattern) > PATTERN_MAX_CHARS:
        raise ValueError(f"a pattern has at most {PATTERN_MAX_CHARS} characters")
    repetitions = 1
    for count in re.findall(r"\{[\d,]*?(\d+),?\}", pattern):
        repetitions *= max(int(count), 1)
    if repetitions > REPETITIONS_MAX:
        raise ValueError("a pattern that counts so far costs too much")
    return bool(_library_matches().execute({"text": text, "pattern": pattern}))


@cache
def _library_matches() -> Any:
    return _library().compile("text.matches(pattern)")


def _longest(values: Mapping[str, Any]) -> int:
    """The longest of the lists and maps in the values, apart from ``operations``."""
    fields = (field for value in values.values() if isinstance(value, dict) for field in value.values())
    return max((len(field) for field in fields if isinstance(field, list | dict)), default=20)


def _told(problem: Exception) -> str:
    """What the library says, in one line, without the expression that it repeats."""
    if isinstance(problem, KeyError):
        return f"there is no {problem}"
    text = " ".join(line.strip() for line in str(problem).splitlines() if not line.startswith("|"))
    _, _, syntax = text.partition("ERROR: <input>:")
    if syntax:
        return f"at {syntax}"
    _, found, own = text.rpartition("Error: ")
    return (own if found else text).partition(". ")[0]


def _refused(expression: str, why: str) -> InvalidRequest:
    shown = expression if len(expression) <= 200 else expression[:200] + "…"
    return InvalidRequest(f"filter {shown!r} is refused: {why}", filter=shown)
