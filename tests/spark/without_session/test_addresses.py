"""Locations of tables, as Hadoop's file systems know them."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.spark.addresses import ACCOUNT, spark_address


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("/data/a b/t%20", "file:///data/a b/t%20"),
        ("s3://bucket/dir/t", "s3a://bucket/dir/t"),
        ("s3://bucket/a%20b", "s3a://bucket/a b"),
        ("gs://bucket/t", "gs://bucket/t"),
        ("az://container/t", "abfss://container@shop.dfs.core.windows.net/t"),
    ],
)
def test_a_location_is_spelled_as_hadoop_does(
    location: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ACCOUNT, "shop")
    assert spark_address(location) == address


def test_without_its_account_a_container_of_azure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ACCOUNT, raising=False)
    with pytest.raises(InvalidRequest, match=ACCOUNT):
        spark_address("az://container/t")
