"""Functions of Spark's SQL that Arrow computes as Spark does."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import find_arrow_type, pa, pc
from penstock.formats.rows.conversions import REAL, TIMES, VOID, WHOLE, is_number, may_cast
from penstock.formats.rows.row_expressions import Conversion, FunctionCall, LiteralValue, RowExpression
from penstock.formats.rows.schema import Type

Compute = Callable[..., Any]


class SqlFunction(NamedTuple):
    """What a function takes, what it gives, and how that is computed."""

    takes: tuple[str, ...]
    gives: str
    """A type; ``same`` for that of the first argument."""
    compute: Compute
    """From an array for each argument, and after these from the literals."""
    fewest: int | None = None
    """How many arguments there must be, if not all."""


def call_function(name: str, arguments: tuple[RowExpression, ...]) -> RowExpression:
    """A call of a function. ``InvalidRequest`` if there is none, or not with such arguments."""
    if name in ("current_timestamp", "now", "current_date") and not arguments:
        now = datetime.now(UTC)
        return LiteralValue(now.date(), "date") if name == "current_date" else LiteralValue(now, "timestamp")
    function = _FUNCTIONS.get(_ALIASES.get(name, name))
    if function is None:
        names = ", ".join(sorted({*_FUNCTIONS, *_CHOICES}))
        raise InvalidRequest(
            f"the function '{name}' is not supported without Spark; the functions are {names}"
        )
    takes = function.takes
    fewest = len(takes) if function.fewest is None else function.fewest
    if not fewest <= len(arguments) <= len(takes):
        number = f"{fewest}" if fewest == len(takes) else f"{fewest} to {len(takes)}"
        raise InvalidRequest(
            f"the function '{name}' takes {number} argument{'' if number == '1' else 's'}, got "
            f"{len(arguments)}"
        )
    values, literals = [], []
    for argument, argument_kind in zip(arguments, takes, strict=False):
        if argument_kind in _LITERALS:
            literals.append(_require_literal(name, argument, argument_kind))
        else:
            values.append(_convert_argument(name, argument, argument_kind))
    if name in ("date", "to_date"):
        return values[0] if values[0].kind == "date" else Conversion(values[0], "date")
    kind: Type = values[0].kind if function.gives == "same" else function.gives
    compute = function.compute
    return FunctionCall(name, tuple(values), kind, lambda *arrays: compute(*arrays, *literals))


def _require_literal(name: str, argument: RowExpression, expected_type: str) -> Any:
    is_fit, words = _LITERALS[expected_type]
    if not isinstance(argument, LiteralValue) or not is_fit(argument):
        raise InvalidRequest(f"the function '{name}' needs {words}")
    return argument.value


def _convert_argument(name: str, argument: RowExpression, expected_type: str) -> RowExpression:
    """An argument as a function takes it, converted where Spark does so by itself."""
    kind = argument.kind
    if kind == VOID:
        return LiteralValue(
            None, {"number": "double", "real": "double"}.get(expected_type, _KINDS[expected_type])
        )
    if expected_type == "text" and kind != "string" and may_cast(kind, "string"):
        return Conversion(argument, "string")
    if expected_type in ("date", "day") and kind == "string":
        return Conversion(argument, "date")
    if expected_type == "time" and kind == "date":
        return Conversion(argument, "timestamp_ntz")
    is_fit = {
        "number": is_number(kind),
        "real": kind in (*WHOLE, *REAL),
        "date": kind in TIMES,
        "time": kind in ("timestamp", "timestamp_ntz"),
        "ordered": isinstance(kind, str) and kind not in REAL and kind != "boolean",
    }.get(expected_type, kind == _KINDS[expected_type])
    if not is_fit:
        raise InvalidRequest(f"the function '{name}' expects {_KINDS[expected_type]}, got {kind}; cast it")
    return argument


def _change_case(arrow: Compute, python: Callable[[str], str]) -> Compute:
    """Letters that become several, such as a sharp s, are left to Python, which has Java's rule."""

    def change_texts(texts: Any) -> Any:
        if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
            return arrow(texts)
        changed = [None if text is None else python(text) for text in texts.to_pylist()]
        return pa.array(changed, texts.type)

    return change_texts


def _slice_texts(texts: Any, start: int, length: int | None = None) -> Any:
    """From a place on, counted from 1, or from the end if it is negative."""
    if length is not None and length <= 0:
        return pc.if_else(pc.is_valid(texts), pa.scalar("", texts.type), pa.scalar(None, texts.type))

    def cut_text(text: str) -> str:
        begin = start + len(text)
        return text[max(0, begin) : len(text) if length is None else max(0, begin + length)]

    if start >= 0:
        begin = max(0, start - 1)
        return pc.utf8_slice_codeunits(texts, begin, None if length is None else begin + length)
    return pa.array([None if text is None else cut_text(text) for text in texts.to_pylist()], texts.type)


def _round_to_integers(compute: Compute) -> Compute:
    def round_values(numbers: Any) -> Any:
        is_whole = pa.types.is_integer(numbers.type)
        return (numbers if is_whole else compute(numbers)).cast(pa.int64())

    return round_values


def _trim(function: Compute) -> Compute:
    return lambda texts: function(texts, characters=" ")


def _extract_part(function: Compute, expected_type: str = "date") -> SqlFunction:
    return SqlFunction(
        (expected_type,), "integer", lambda times: function(times).cast(find_arrow_type("integer"))
    )


def _replace_texts(*arrays: Any) -> Any:
    texts, searched, replacements = (array.to_pylist() for array in arrays)
    values = [
        None if None in row else row[0] if not row[1] else row[0].replace(row[1], row[2])
        for row in zip(texts, searched, replacements, strict=True)
    ]
    return pa.array(values, arrays[0].type)


def _concatenate_texts(*arrays: Any) -> Any:
    return pc.binary_join_element_wise(*arrays, "", null_handling="emit_null")


def _truncate_times(times: Any, unit: str) -> Any:
    return pc.floor_temporal(times, unit=_UNITS[unit.lower()]).cast(times.type)


def _format_times(times: Any, pattern: str) -> Any:
    spelled = "".join(_FORMATS.get(word, sign) for word, sign in _FORMAT.findall(pattern))
    return pc.strftime(times.cast(pa.timestamp("us")), format=spelled, locale="C")


def _is_format(literal: LiteralValue) -> bool:
    parts = _FORMAT.findall(str(literal.value))
    return literal.kind == "string" and "".join(word + sign for word, sign in parts) == literal.value


_MANY: Final = 1000
_FORMATS: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}
_FORMAT: Final = re.compile(r"(yyyy|MM|dd|HH|mm)|([-/_. :])")
_LONG_UNITS: Final = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mm": "month",
    "mon": "month", "week": "week",
}  # fmt: skip
_UNITS: Final = {**_LONG_UNITS, "day": "day", "dd": "day", "hour": "hour", "minute": "minute"}
_KINDS: Final = {
    "text": "string", "number": "a number", "real": "a number other than a decimal", "date": "date",
    "day": "date", "time": "timestamp", "instant": "timestamp", "ordered": "string",
}  # fmt: skip
_LITERALS: Final[dict[str, tuple[Callable[[LiteralValue], bool], str]]] = {
    "place": (lambda literal: literal.kind in WHOLE, "place and length as whole numbers"),
    "unit": (lambda literal: str(literal.value).lower() in _UNITS, "the name of a unit as a literal"),
    "long unit": (
        lambda literal: str(literal.value).lower() in _LONG_UNITS,
        "the name of a unit that is longer than a day",
    ),
    "format": (_is_format, "a format of yyyy, MM, dd, HH and mm"),
}
_ALIASES: Final = {
    "substr": "substring",
    "char_length": "length",
    "ucase": "upper",
    "lcase": "lower",
    "ceiling": "ceil",
    "dayofmonth": "day",
    "date": "to_date",
}
_CHOICES: Final = ("coalesce", "ifnull", "nvl", "if", "nullif", "current_date", "current_timestamp")
_FUNCTIONS: Final = {
    "upper": SqlFunction(("text",), "string", _change_case(pc.utf8_upper, str.upper)),
    "lower": SqlFunction(("text",), "string", _change_case(pc.utf8_lower, str.lower)),
    "trim": SqlFunction(("text",), "string", _trim(pc.utf8_trim)),
    "ltrim": SqlFunction(("text",), "string", _trim(pc.utf8_ltrim)),
    "rtrim": SqlFunction(("text",), "string", _trim(pc.utf8_rtrim)),
    "length": SqlFunction(("text",), "integer", pc.utf8_length),
    "substring": SqlFunction(("text", "place", "place"), "string", _slice_texts, 2),
    "left": SqlFunction(("text", "place"), "string", lambda texts, count: _slice_texts(texts, 1, count)),
    "concat": SqlFunction(("text",) * _MANY, "string", _concatenate_texts, 1),
    "replace": SqlFunction(("text",) * 3, "string", _replace_texts),
    "abs": SqlFunction(("number",), "same", pc.abs_checked),
    "negative": SqlFunction(("number",), "same", pc.negate_checked),
    "floor": SqlFunction(("real",), "long", _round_to_integers(pc.floor)),
    "ceil": SqlFunction(("real",), "long", _round_to_integers(pc.ceil)),
    "greatest": SqlFunction(("ordered",) * _MANY, "same", pc.max_element_wise, 2),
    "least": SqlFunction(("ordered",) * _MANY, "same", pc.min_element_wise, 2),
    "year": _extract_part(pc.year),
    "quarter": _extract_part(pc.quarter),
    "month": _extract_part(pc.month),
    "day": _extract_part(pc.day),
    "dayofyear": _extract_part(pc.day_of_year),
    "hour": _extract_part(pc.hour, "time"),
    "minute": _extract_part(pc.minute, "time"),
    "to_date": SqlFunction(("date",), "date", _truncate_times),
    "date_trunc": SqlFunction(("unit", "instant"), "timestamp", _truncate_times),
    "trunc": SqlFunction(("day", "long unit"), "date", _truncate_times),
    "date_format": SqlFunction(("date", "format"), "string", _format_times),
}
