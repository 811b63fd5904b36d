"""Matching: from a request's method and path to the route that answers it.

All routes of an API and method are one regular expression, so that finding one takes a microsecond however
many there are. It is matched against the path as it was sent, since an encoded slash is not a separator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from penstock.errors import InvalidRequest, MethodNotAllowed, RouteNotFound
from penstock.server.routes import Api, Route

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_SEVERAL: Final = (
    *(msgspec.inspect.ListType, msgspec.inspect.VarTupleType, msgspec.inspect.TupleType),
    *(msgspec.inspect.SetType, msgspec.inspect.FrozenSetType),
)


class MatchedRoute(NamedTuple):
    """A route, and the values of its path's parameters."""

    api: Api
    route: Route
    label: str
    """The route as metrics name it: ``GET /trees/{ref}``."""
    path: dict[str, str]


class RouteMatcher:
    """The routes of all APIs. Of several APIs whose prefix matches, the longest prefix is meant."""

    def __init__(self, apis: Iterable[Api]) -> None:
        self._tables = [
            _RouteTable(api) for api in sorted(apis, key=lambda api: len(api.prefix), reverse=True)
        ]

    def find_api(self, path: str) -> Api:
        """The API that a path belongs to, and that says what is wrong with a request to it."""
        return self._build_table(path).api

    def find_route(self, method: str, path: str) -> MatchedRoute:
        """The route for a method and a raw path, else ``RouteNotFound`` or ``MethodNotAllowed``."""
        table = self._build_table(path)
        if method == "HEAD":
            method = "GET"
        match = table.find_route(method, path)
        if match is not None:
            return match
        allowed = [other for other in table.methods if table.find_route(other, path) is not None]
        if not allowed:
            raise RouteNotFound(f"there is nothing at {path}; / lists all addresses", path=path)
        if "GET" in allowed:
            allowed.append("HEAD")
        raise MethodNotAllowed(
            f"{path} does not support {method}, only {', '.join(sorted(allowed))}",
            allowed=tuple(sorted(allowed)),
        )

    def _build_table(self, path: str) -> _RouteTable:
        for table in self._tables:
            if f"{path}/".startswith(table.prefix):
                return table
        return self._tables[-1]


class _RouteTable:
    """The routes of one API."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.prefix = api.prefix + "/"
        self.methods = tuple(dict.fromkeys(route.method for route in api.routes))
        self._by_method = {
            method: _RouteAlternatives(api.prefix, [route for route in api.routes if route.method == method])
            for method in self.methods
        }

    def find_route(self, method: str, path: str) -> MatchedRoute | None:
        alternatives = self._by_method.get(method)
        match = alternatives.find_route(path) if alternatives is not None else None
        return MatchedRoute(self.api, *match) if match is not None else None


class _RouteAlternatives:
    """Routes of one method as one expression: a group for each, and within it one for each parameter."""

    def __init__(self, prefix: str, routes: Sequence[Route]) -> None:
        self._routes: dict[int, tuple[Route, str, tuple[str, ...]]] = {}
        expressions = []
        group = 1
        for route in routes:
            names = tuple(_PARAMETER.findall(route.path))
            self._routes[group] = (route, f"{route.method} {route.path}", names)
            expressions.append(_make_path_pattern(route))
            group += 1 + len(names)
        self._expression = re.compile(f"{re.escape(prefix)}(?:{'|'.join(expressions)})/?", re.DOTALL)
        if self._expression.groups != group - 1:
            raise ValueError(f"a path parameter's pattern below {prefix} has a group that captures")

    def find_route(self, path: str) -> tuple[Route, str, dict[str, str]] | None:
        match = self._expression.fullmatch(path)
        if match is None:
            return None
        # A route's group closes after those of its parameters, so that it is the last one.
        group = match.lastindex
        assert group is not None
        route, label, names = self._routes[group]
        return (
            route,
            label,
            {name: _decode_parameter(match[group + 1 + i], name) for i, name in enumerate(names)},
        )


def _make_path_pattern(route: Route) -> str:
    parts = _PARAMETER.split(route.path.rstrip("/"))
    return "".join(
        [
            "(",
            *(
                re.escape(p) if i % 2 == 0 else f"({_make_parameter_pattern(route, p)})"
                for i, p in enumerate(parts)
            ),
            ")",
        ]
    )


def _make_parameter_pattern(route: Route, name: str) -> str:
    return route.patterns.get(name, "[^/]+")


def _decode_parameter(raw: str, name: str) -> str:
    if "%" not in raw:
        return raw
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"'{name}' in the address is not percent-encoded UTF-8", field=name) from None


def list_parameters(query: Any) -> dict[str, bool]:
    """The names of a query type's parameters, and whether each of them may be given several times."""
    if query is None:
        return {}
    return {field.encode_name: _is_several(field.type) for field in msgspec.structs.fields(query)}


def _is_several(kind: Any) -> bool:
    type_info = msgspec.inspect.type_info(kind)
    if isinstance(type_info, msgspec.inspect.UnionType):
        return any(isinstance(member, _SEVERAL) for member in type_info.types)
    if isinstance(type_info, msgspec.inspect.Metadata):
        return isinstance(type_info.type, _SEVERAL)
    return isinstance(type_info, _SEVERAL)
