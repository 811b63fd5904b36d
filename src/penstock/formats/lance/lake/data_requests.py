"""Requests of Lance's namespaces as its models have them, and what is wrong with one in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from lance_namespace import InvalidInputError
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

INT64_MAX: Final = 2**63 - 1
SHOWN_MAX: Final = 3
"""Of several things that are wrong, so many are told."""

_KINDS: Final = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "model_attributes": "an object",
}


def read_request(kind: type[M], request: Any) -> M:
    """A request as its model, from the model itself or what has the same fields.

    ``InvalidInputError`` names each field that is wrong.
    """
    if isinstance(request, kind):
        return request
    values = request.model_dump(by_alias=True) if isinstance(request, BaseModel) else request
    if not isinstance(values, Mapping):
        raise InvalidInputError(f"a {kind.__name__} is an object, not a {type(values).__name__}")
    for name, value in values.items():
        if _is_too_large(value):
            raise InvalidInputError(f"'{name}' has a number that is too large for 64 bits")
    try:
        return kind.model_validate(dict(values))
    except ValidationError as problem:
        raise InvalidInputError(
            _describe_problems(problem.errors(include_url=False, include_context=True))
        ) from None
    except RecursionError:
        raise InvalidInputError(f"the {kind.__name__} is nested too deeply") from None


def require_table_id(table_id: Iterable[str] | None) -> list[str]:
    """The table id of a request. ``InvalidInputError`` if it is missing."""
    parts = list(table_id or ())
    if not parts:
        raise InvalidInputError("the request lacks 'id', the name of the table as a list of its parts")
    return parts


def normalise_mode(value: str | None, default: str, *allowed: str) -> str:
    """A mode, however it is written: ``ExistOk``, ``exist_ok``."""
    plain_mode = (value or default).replace("_", "").lower()
    for mode in allowed:
        if mode.replace("_", "") == plain_mode:
            return mode
    raise InvalidInputError(f"the mode '{value}' is not one of {', '.join(allowed)}")


def _is_too_large(value: Any) -> bool:
    values_to_check = [value]
    while values_to_check:
        item = values_to_check.pop()
        if isinstance(item, int):
            if not -INT64_MAX - 1 <= item <= INT64_MAX:
                return True
        elif isinstance(item, Mapping):
            values_to_check += item.values()
        elif isinstance(item, list | tuple):
            values_to_check += item
    return False


def _describe_problems(problems: Iterable[Any]) -> str:
    described = [_describe_problem(problem) for problem in problems]
    more = f", and {len(described) - SHOWN_MAX} more" if len(described) > SHOWN_MAX else ""
    return "; ".join(described[:SHOWN_MAX]) + more


def _describe_problem(problem: Mapping[str, Any]) -> str:
    """Describe one validation problem of a request's field."""
    kind, place = str(problem["type"]), _format_field_path(problem["loc"])
    if kind == "missing":
        return f"'{place}' is missing"
    expected = _KINDS.get(kind.removesuffix("_type").removesuffix("_parsing"))
    if expected is not None:
        return f"'{place}' must be {expected}"
    what = str(problem["msg"])
    return f"'{place}': {what[:1].lower()}{what[1:]}"


def _format_field_path(parts: Iterable[str | int]) -> str:
    """Where in a request, as people write it: ``operations[0].version``."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
