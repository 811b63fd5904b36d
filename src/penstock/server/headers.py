"""The headers of a request."""

from __future__ import annotations

from collections.abc import Iterable


class Headers(dict[str, str]):
    """Headers by names in lower case. Several values of one name are joined, as HTTP says."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__()
        self._several: dict[str, list[str]] = {}
        for raw_name, raw_value in raw:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            if name in self:
                self._several.setdefault(name, [self[name]]).append(value)
                self[name] = f"{self[name]}, {value}"
            else:
                self[name] = value

    def get_values(self, name: str) -> tuple[str, ...]:
        """Every value of a name as it was sent: a comma inside one is not a border between two."""
        if name in self._several:
            return tuple(self._several[name])
        return (self[name],) if name in self else ()
