"""The headers of a request."""

from __future__ import annotations

from collections.abc import Iterable


class Headers(dict[str, str]):
    """Headers by names in lower case. Several values of one name are joined, as HTTP says."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__()
        self._values: dict[str, list[str]] = {}
        for name, value in raw:
            values = self._values.setdefault(name.decode("latin-1"), [])
            values.append(value.decode("latin-1"))
        self.update((name, ", ".join(values)) for name, values in self._values.items())

    def values_of(self, name: str) -> tuple[str, ...]:
        """Every value of a name as it was sent: a comma inside one is not a border between two."""
        return tuple(self._values.get(name, ()))
