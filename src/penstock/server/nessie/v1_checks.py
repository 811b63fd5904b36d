"""Paths: version 1 has a name and a commit in two parameters, and needs the commit for every write."""

from __future__ import annotations

from penstock.server.nessie.violations import bad_hash, bad_name, bad_spec, null, refuse


def expected_path(
    name: str, expected_hash: str | None, operation: str, parameter: str, *violations: str | None
) -> str:
    """A reference that is to be written and its expected hash, as version 2 has them in paths.

    ``violations`` are those of the request's body, which are told first.
    """
    given = f"{operation}.expectedHash"
    refuse(
        *violations,
        bad_name(name, f"{operation}.{parameter}"),
        null(expected_hash, given),
        bad_hash(expected_hash, given),
    )
    return f"{name}@{expected_hash}"


def read_path(name: str | None, spec: str, parameters: tuple[str, str], *violations: str | None) -> str:
    """A reference and a commit that are to be read, as version 2 has them in paths.

    Without a name the default branch is meant. ``parameters`` are what Nessie calls the two, ``violations``
    are those of the rest of the request, which are told first.
    """
    refuse(*violations, bad_name(name, parameters[0]), bad_spec(spec, parameters[1]))
    return f"{name or '-'}@{spec}" if spec else name or "-"
