"""Where something is, as Hadoop's file systems spell it, and with them Spark.

The lake names a local place by its path and one in a bucket by the URL that the vendor uses. Hadoop's file
systems have schemes of their own, and take a path as it is: nothing in it is percent-encoded. One place has
many spellings; ``parse_hadoop_path`` reads all of them as one.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import InvalidRequest

ACCOUNT: Final = "AZURE_STORAGE_ACCOUNT_NAME"
"""The variable that names the account of Azure's storage, to the lake as well."""

_SPELLED: Final = re.compile(r"(?:([A-Za-z][\w+.-]*):(?://([^/]*))?)?(/.*)?", re.DOTALL)
_NAMENODE: Final = ":8020"
"""The port of HDFS where none is said."""


class HadoopPath(msgspec.Struct, frozen=True):
    """A path, however it was spelled."""

    system: str
    """The file system that it is in."""
    names: tuple[str, ...]
    """From the top of that."""

    def find_path_below(self, top: HadoopPath) -> str | None:
        """What leads here from another path, with a slash at its end if it is any way; ``None`` if not below.

        The other one may be percent-encoded, as URLs are: whoever means that cannot mean this path otherwise.
        """
        count = len(top.names)
        if self.system != top.system or len(self.names) < count:
            return None
        above, rest = self.names[:count], self.names[count:]
        if any(here not in (name, unquote(name)) for here, name in zip(above, top.names, strict=True)):
            return None
        return "".join(f"{name}/" for name in rest)


def parse_hadoop_path(path: str, home: str = "") -> HadoopPath:
    """A path, or the URL of one, as Spark's code may spell it; ``InvalidRequest`` if it is none.

    ``home`` is the file system of paths without a scheme, and of those whose scheme is the same and that name
    no host; the local one if nothing is given.
    """
    matched = _SPELLED.fullmatch(path)
    if matched is None:
        raise InvalidRequest(
            f"'{path}' is not a path that can be written to: it must be a URL, or begin with a slash"
        )
    scheme, host, rest = matched.groups()
    is_home = scheme is None or (not host and home.lower().startswith(f"{scheme.lower()}://"))
    if is_home:
        system = parse_hadoop_path(home).system if home else "file://"
    else:
        system = _normalise_file_system(scheme.lower(), (host or "").lower())
    return HadoopPath(system, tuple(name for name in posixpath.normpath(rest or "/").split("/") if name))


def _normalise_file_system(scheme: str, host: str) -> str:
    """A file system, by one of its names."""
    match scheme:
        case "s3" | "s3a" | "s3n":
            return f"s3://{host}"
        case "az" | "abfs" | "abfss" | "wasb" | "wasbs":
            container, _, account = host.partition("@")
            return f"az://{container}@{account.partition('.')[0] or _require_account(container)}"
        case "hdfs":
            return f"hdfs://{host.removesuffix(_NAMENODE)}"
        case "file":
            return "file://"
        case _:
            return f"{scheme}://{host}"


def make_hadoop_address(location: str) -> str:
    """A place of the lake's for Hadoop. ``InvalidRequest`` if it cannot be told of it."""
    if "://" not in location:
        return f"file://{location}"
    parts = urlsplit(location)
    return f"{_write_file_system_address(parts.scheme, parts.netloc)}{unquote(parts.path)}"


def _write_file_system_address(scheme: str, bucket: str) -> str:
    match scheme:
        case "s3":
            return f"s3a://{bucket}"
        case "az":
            return f"abfss://{bucket}@{_require_account(bucket)}.dfs.core.windows.net"
        case _:
            return f"{scheme}://{bucket}"


def _require_account(container: str) -> str:
    account = os.environ.get(ACCOUNT)
    if not account:
        raise InvalidRequest(
            f"Spark needs the account of az://{container}: set {ACCOUNT}", location=container
        )
    return account.lower()
