"""Filters: expressions in CEL, the Common Expression Language, that choose what a list shows.

An expression comes from a client, and the library that evaluates it stops all threads meanwhile. Hence what
it may cost is decided before it runs: by its length, by how deeply its brackets and its loops nest, and by
the most that one evaluation can amount to with the lists that it is given. Loops over the operations of a
commit, which may be thousands, go through them in pieces, so that other threads run in between and the
time limit acts.

The library differs from the language in three places, which are put right in the expression: ``size`` counts
characters and not bytes, ``has`` is false for a field without a value, and the patterns of ``matches`` are
bounded.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeAlias

import msgspec

from penstock.errors import InvalidRequest
from penstock.server.nessie.cel_bindings import VARIABLES, FilterKind, measure_sizes, select_mentioned_fields
from penstock.server.nessie.cel_tokens import (
    LOOP,
    MATCHES,
    SIZE,
    CelToken,
    TooCostly,
    WordShape,
    measure_shape,
    rewrite_tokens,
    separate_loops,
    split_tokens,
)

Functions: TypeAlias = Mapping[str, Callable[..., Any]]

EXPRESSION_MAX_CHARS: Final = 4_000
WORK_MAX: Final = 2_000_000
"""How many steps the library may take at once: at most about 0.1 s, and a few megabytes."""
PIECE: Final = 50
"""How many operations a loop over them goes through at once."""
PATTERN_MAX_CHARS: Final = 500
REPETITIONS_MAX: Final = 100
"""What the counts of a pattern, such as ``{3,20}``, may multiply to."""
PATTERN_WORK_MAX: Final = 20_000_000
"""What the characters of a pattern, its repetitions and the characters of a text may multiply to."""
EVALUATION_MAX_S: Final = 2.0
"""How much computing time the patterns and pieces of one evaluation may take."""
FILTER_MAX_S: Final = 10.0
"""How much computing time a filter may take for one answer, over all items."""

_TYPES: Final = frozenset(
    ("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint")
)
_FUNCTIONS: Final = _TYPES | {
    *("contains", "duration", "dyn", "endsWith", "matches", "size", "startsWith", "timestamp"),
    *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours"),
    *("getMilliseconds", "getMinutes", "getMonth", "getSeconds"),
}
_CHEAP: Final = (
    "operations.exists(…) and operations.all(…) accept any number of operations if the filter mentions "
    "'operations' only once"
)
_FAILURES: Final = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
"""What the library raises for an expression that cannot be read or evaluated."""


def compile_filter(kind: FilterKind, expression: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an item is to be shown; ``cel_items`` makes them. Use it for one answer only.

    An expression that cannot be read, names something that is not there, costs too much, fails on an item or
    does not come to true or false is refused with ``InvalidRequest``.
    """
    script = _compile_script(kind, expression)
    spent_s = 0.0

    def matches_filter(item: Mapping[str, Any]) -> bool:
        nonlocal spent_s
        if spent_s > FILTER_MAX_S:
            raise _refused_error(expression, f"it takes longer than {FILTER_MAX_S:g} s")
        start = time.thread_time()
        try:
            return script.holds_for(item)
        finally:
            spent_s += time.thread_time() - start

    return matches_filter


class CelPart(msgspec.Struct, frozen=True, kw_only=True):
    """An expression, or one loop of it, that was read and found fit."""

    text: str
    program: Any
    shape: WordShape
    names: tuple[str, ...]
    """The variables that it is given."""

    def evaluate(self, item: Mapping[str, Any], functions: Functions) -> Any:
        """What it comes to; one of ``_FAILURES`` if that costs too much or cannot be said."""
        values = {name: select_mentioned_fields(item[name], self.text) for name in self.names}
        if self.shape.estimate_steps(measure_sizes(values)) > WORK_MAX:
            many = len(values.get("operations", ()))
            raise ValueError(
                "evaluating it costs too much" + (f" with {many} operations; {_CHEAP}" if many else "")
            )
        return self.program.execute(_load_library().Context(values, dict(functions)))


class CompiledFilter(msgspec.Struct, frozen=True, kw_only=True):
    """An expression in parts. Evaluating it changes nothing, so that threads share it."""

    expression: str
    main: CelPart
    loops: tuple[CelPart, ...]
    """Loops over operations, which the main part calls by their number."""

    def holds_for(self, item: Mapping[str, Any]) -> bool:
        """Whether it is true of the item."""
        deadline = time.thread_time() + EVALUATION_MAX_S
        functions: Functions = {
            SIZE: partial(_measure_size, deadline),
            MATCHES: partial(_find_pattern, deadline),
        }
        loop = partial(self._run_loop, item, functions, deadline)
        try:
            result = self.main.evaluate(item, {**functions, LOOP: loop})
        except _FAILURES as problem:
            raise _refused_error(self.expression, _describe_problem(problem)) from None
        if not isinstance(result, bool):
            raise _refused_error(self.expression, "it must return true or false")
        return result

    def _run_loop(self, item: Mapping[str, Any], functions: Functions, deadline: float, number: int) -> bool:
        """What a loop comes to over all operations; a failure reaches the caller through the library."""
        loop, operations = self.loops[number], item["operations"]
        for_all = loop.text.startswith("operations.all(")
        try:
            for start in range(0, len(operations), PIECE):
                _check_time(deadline)
                piece = {**item, "operations": operations[start : start + PIECE]}
                if bool(loop.evaluate(piece, functions)) is not for_all:
                    return not for_all
        except _FAILURES as problem:
            raise ValueError(_describe_problem(problem)) from None
        return for_all


@lru_cache(maxsize=256)
def _compile_script(kind: FilterKind, expression: str) -> CompiledFilter:
    """The script of an expression; the last ones are kept, as clients page with the same one."""
    if len(expression) > EXPRESSION_MAX_CHARS:
        raise InvalidRequest(f"a filter can have at most {EXPRESSION_MAX_CHARS} characters")
    program = _compile_expression(expression, expression)
    rest, loops = separate_loops(tuple(split_tokens(expression)), "operations")
    try:
        parts = [_compile_part(kind, expression, tokens) for tokens in (rest, *loops)]
    except TooCostly as problem:
        raise _refused_error(expression, str(problem)) from None
    _check_names(kind, expression, program, [part.shape for part in parts])
    return CompiledFilter(expression=expression, main=parts[0], loops=tuple(parts[1:]))


def _compile_part(kind: FilterKind, expression: str, tokens: Sequence[CelToken]) -> CelPart:
    shape = measure_shape(tokens)
    program = _compile_expression("".join(rewrite_tokens(tokens)), expression)
    names = VARIABLES[kind].keys() & set(program.variables())
    if not names <= {name for name, _ in shape.mentions}:
        raise _refused_error(expression, "it cannot be parsed")
    text = "".join(token.text for token in tokens)
    return CelPart(text=text, program=program, shape=shape, names=tuple(names))


def _compile_expression(text: str, expression: str) -> Any:
    try:
        return _load_library().compile(text)
    except _FAILURES as problem:
        raise _refused_error(expression, _describe_problem(problem)) from None


@cache
def _load_library() -> Any:
    """Loaded when the first filter comes: it takes half a second, and most servers never see one.

    It logs what it raises as well; a client's mistakes do not belong into a server's log.
    """
    import cel

    logging.getLogger("cel").disabled = True
    return cel


def _check_names(kind: FilterKind, expression: str, program: Any, shapes: Sequence[WordShape]) -> None:
    """Refuse variables, fields and functions that there are not, also where they would never be reached."""
    declared = VARIABLES[kind]
    bound = frozenset[str]().union(*(shape.bound for shape in shapes))
    for name in program.variables():
        if name not in declared and name not in bound and name not in _TYPES:
            raise _refused_error(expression, f"undeclared reference to '{name}'")
    for name, field in (mention for shape in shapes for mention in shape.mentions):
        fields = declared.get(name) if name not in bound else None
        if fields is not None and field and field not in fields:
            raise _refused_error(expression, f"undefined field '{field}' of '{name}'")
    for name in program.functions():
        if name.isidentifier() and not name.startswith("_") and name not in _FUNCTIONS:
            raise _refused_error(expression, f"undeclared function '{name}'")


def _check_time(deadline: float) -> None:
    if time.thread_time() > deadline:
        raise ValueError(f"it takes longer than {EVALUATION_MAX_S:g} s for one item")


def _measure_size(deadline: float, value: Any) -> int:
    """How many characters, elements or keys there are."""
    _check_time(deadline)
    return len(value)


def _find_pattern(deadline: float, text: str, pattern: str) -> bool:
    """Whether the pattern is found in the text, in time proportional to both.

    The library reads the pattern each time, which may take a millisecond: hence the deadline.
    """
    _check_time(deadline)
    if len(pattern) > PATTERN_MAX_CHARS:
        raise ValueError(f"a pattern has at most {PATTERN_MAX_CHARS} characters")
    repetitions = 1
    for count in re.findall(r"\{[\d,]*?(\d+),?\}", pattern):
        repetitions *= max(int(count), 1)
    if repetitions > REPETITIONS_MAX or len(pattern) * repetitions * len(text) > PATTERN_WORK_MAX:
        raise ValueError("a pattern with these repetition counts costs too much on a text of this length")
    return bool(_load_library_matches().execute({"text": text, "pattern": pattern}))


@cache
def _load_library_matches() -> Any:
    return _load_library().compile("text.matches(pattern)")


def _describe_problem(problem: Exception) -> str:
    """What the library says, in one line, without the expression that it repeats."""
    if isinstance(problem, KeyError):
        return f"there is no {problem}"
    text = " ".join(line.strip() for line in str(problem).splitlines() if not line.startswith("|"))
    _, _, syntax = text.partition("ERROR: <input>:")
    if syntax:
        return f"at {syntax}"
    _, separator, own = text.rpartition("Error: ")
    return (own if separator else text).partition(". ")[0]


def _refused_error(expression: str, why: str) -> InvalidRequest:
    shown = expression if len(expression) <= 200 else expression[:200] + "…"
    return InvalidRequest(f"filter {shown!r} is refused: {why}", filter=shown)
