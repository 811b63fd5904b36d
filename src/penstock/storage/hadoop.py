"""Where something is, as Hadoop's file systems spell it, and with them Spark.

The lake names a local place by its path and one in a bucket by the URL that the vendor uses. Hadoop's file
systems have schemes of their own, and take a path as it is: nothing in it is percent-encoded.
"""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.errors import InvalidRequest

ACCOUNT: Final = "AZURE_STORAGE_ACCOUNT_NAME"
"""The variable that names the account of Azure's storage, to the lake as well."""


def hadoop_address(location: str) -> str:
    """A place of the lake's for Hadoop. ``InvalidRequest`` if it cannot be told of it."""
    if "://" not in location:
        return f"file://{location}"
    parts = urlsplit(location)
    return f"{_file_system(parts.scheme, parts.netloc)}{unquote(parts.path)}"


def _file_system(scheme: str, bucket: str) -> str:
    match scheme:
        case "s3":
            return f"s3a://{bucket}"
        case "az":
            account = os.environ.get(ACCOUNT)
            if not account:
                raise InvalidRequest(
                    f"Spark must be told the account that az://{bucket} is in: set {ACCOUNT}", location=bucket
                )
            return f"abfss://{bucket}@{account}.dfs.core.windows.net"
        case _:
            return f"{scheme}://{bucket}"
