"""The installation: which libraries are there, and whether Penstock was tested with their versions."""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.resources import files
from importlib.util import find_spec
from typing import Final, NamedTuple, TypeAlias

import msgspec

from penstock.errors import InvalidRequest
from penstock.spark import jar
from penstock.spark.java import find_java

PACKAGE: Final = "penstock"
TESTED: Final = "constraints.txt"
"""In the package: the versions that its tests ran with, as pip reads them."""
CORE: Final = ""
"""Stands for the libraries that Penstock needs without any extra."""

_REQUIREMENT: Final = re.compile(r"([\w.-]+)(?:\[[\w,.-]+\])?\s*([^;]*)(?:;\s*extra == ['\"]([\w-]+)['\"])?")
_BOUND: Final = re.compile(r"(>=|<)([\d.]+)")
_TESTED: Final = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)


class DoctorLine(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the doctor looked at."""

    name: str
    """What was looked at."""
    state: str
    """`ok`, `warning` or `failed`."""
    finding: str
    """What was found."""
    advice: str
    """What to do about it, if anything."""


Versions: TypeAlias = Mapping[str, str]
"""The version of each library that is installed, by its name."""


class LibraryRequirement(NamedTuple):
    """A library that Penstock, or one of its extras, needs."""

    name: str
    bounds: tuple[tuple[str, str], ...]
    """Each an operator, ``>=`` or ``<``, and a version."""
    extra: str

    def allows_version(self, version: str) -> bool:
        installed = parse_release(version)
        return all(
            installed >= parse_release(bound) if sign == ">=" else installed < parse_release(bound)
            for sign, bound in self.bounds
        )

    @property
    def version_range(self) -> str:
        return ", ".join(f"{sign} {bound}" for sign, bound in self.bounds)


def parse_release(version: str) -> tuple[int, ...]:
    """The numbers of a version that decide which is newer, without zeros at the end."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def parse_requirement(text: str) -> LibraryRequirement:
    """A line of the package's metadata; ``ValueError`` if it holds more than Penstock's own lines do."""
    match = _REQUIREMENT.fullmatch(text.strip())
    bounds = [_BOUND.fullmatch(part.strip()) for part in match[2].split(",")] if match else [None]
    if match is None or None in bounds:
        raise ValueError(f"the package's metadata has a requirement that cannot be parsed: {text}")
    return LibraryRequirement(
        match[1], tuple((bound[1], bound[2]) for bound in bounds if bound), match[3] or CORE
    )


@cache
def read_requirements() -> Mapping[str, Sequence[LibraryRequirement]]:
    """What Penstock needs, by extra, as the installed package says."""
    needed: dict[str, list[LibraryRequirement]] = {CORE: []}
    for text in metadata.requires(PACKAGE) or ():
        requirement = parse_requirement(text)
        needed.setdefault(requirement.extra, []).append(requirement)
    return needed


@cache
def read_tested_versions() -> Versions:
    """The newest version of each library that Penstock's tests ran with."""
    tested: dict[str, str] = {}
    for name, version in _TESTED.findall(files(PACKAGE).joinpath(TESTED).read_text("utf-8")):
        tested[name] = max(version, tested.get(name, version), key=parse_release)
    return tested


def find_installed_versions() -> Versions:
    """The versions of the libraries that Penstock can use, of those that are installed."""
    versions: dict[str, str] = {}
    for needed in read_requirements().values():
        for requirement in needed:
            try:
                versions[requirement.name] = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                continue
    return versions


def check_installation() -> Iterator[DoctorLine]:
    """One check for Penstock itself, for each extra that is installed, for Spark and for Java."""
    versions = find_installed_versions()
    yield check_program()
    yield check_libraries(versions)
    absent = []
    for extra in read_requirements():
        if extra == CORE:
            continue
        if is_extra_begun(extra, versions):
            yield check_extra(extra, versions)
        else:
            absent.append(extra)
    if absent:
        yield check_build("extras", "ok", f"not installed: {', '.join(absent)}")
    if find_spec("pyspark") is not None:
        yield check_spark()
        yield check_java()


def check_program() -> DoctorLine:
    program = f"Penstock {metadata.version(PACKAGE)}, Python {platform.python_version()}, {sys.prefix}"
    return check_build("versions", "ok", program)


def check_libraries(versions: Versions) -> DoctorLine:
    """The libraries without which no command works."""
    state, finding = describe_libraries(read_requirements()[CORE], versions)
    remedy = f"pip install '{PACKAGE}'" if state != "ok" else ""
    return check_build("libraries", "failed" if remedy else "ok", finding, remedy)


def is_extra_begun(extra: str, versions: Versions) -> bool:
    """Whether an extra is installed, or a part of it that no other extra has."""
    users = Counter(requirement.name for needed in read_requirements().values() for requirement in needed)
    needed = read_requirements()[extra]
    return all(requirement.name in versions for requirement in needed) or any(
        requirement.name in versions and users[requirement.name] == 1 for requirement in needed
    )


def check_extra(extra: str, versions: Versions) -> DoctorLine:
    """Whether all libraries of an extra are there, in versions that it can use."""
    state, finding = describe_libraries(read_requirements()[extra], versions)
    return check_build(
        f"extra {extra}", state, finding, suggest_install_command(extra) if state != "ok" else ""
    )


def describe_libraries(needed: Sequence[LibraryRequirement], versions: Versions) -> tuple[str, str]:
    """The state of libraries, and their versions; what is wrong with one is said beside it."""
    parts, is_sound = [], True
    for requirement in needed:
        version = versions.get(requirement.name)
        if version is None:
            parts.append(f"{requirement.name} is missing")
            is_sound = False
        elif not requirement.allows_version(version):
            parts.append(f"{requirement.name} {version} does not work: needs {requirement.version_range}")
            is_sound = False
        elif parse_release(version) > parse_release(
            tested := read_tested_versions().get(requirement.name, version)
        ):
            parts.append(f"{requirement.name} {version} (newer than the tested {tested})")
        else:
            parts.append(f"{requirement.name} {version}")
    return ("ok" if is_sound else "warning"), ", ".join(parts)


def check_spark() -> DoctorLine:
    text = f"PySpark {metadata.version('pyspark')}"
    if jar.find_jar() is None:
        lack = jar.lack_of_package()
        return check_build(
            "Spark",
            "warning",
            f"{text}, and Penstock was built without its jar for it ({lack.reason})",
            f"writes take longer; {lack.remedy}",
        )
    return check_build("Spark", "ok", f"{text}, and Penstock's jar for it")


def check_java() -> DoctorLine:
    try:
        java = find_java()
    except InvalidRequest as error:
        return check_build("Java", "warning", error.message)
    return check_build("Java", "ok", f"Java {java.version} of {java.origin}, {java.executable}")


def suggest_install_command(extra: str) -> str:
    return f"pip install '{PACKAGE}[{extra}]'"


def check_build(name: str, state: str, finding: str, advice: str = "") -> DoctorLine:
    return DoctorLine(name=name, state=state, finding=finding, advice=advice)
