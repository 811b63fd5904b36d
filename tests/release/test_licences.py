"""A release fails if a library comes under a licence that does not fit Penstock's own."""

from __future__ import annotations

import io
import zipfile

import pytest

from release import bill, licences


def component(name: str, *said: str) -> dict[str, object]:
    return {"name": name, "version": "1.0", "licenses": [{"license": {"name": one}} for one in said]}


@pytest.mark.parametrize(
    "licence",
    [
        "MIT",
        "Apache-2.0 OR BSD-3-Clause",
        "GPL-3.0-only OR MIT",
        "BSD-3-Clause AND 0BSD",
        "LGPL-3.0-only",
        "(MIT)",
    ],
)
def test_a_licence_fits(licence: str) -> None:
    assert licences.judge_licence(licence).is_fit


@pytest.mark.parametrize(
    "licence",
    [
        "",
        "GPL-2.0-only",
        "AGPL-3.0-only",
        "MIT AND GPL-3.0-or-later",
        "BUSL-1.1",
        "SSPL-1.0",
        "a licence of our own",
    ],
)
def test_a_licence_does_not_fit(licence: str) -> None:
    verdict = licences.judge_licence(licence)
    assert not verdict.is_fit
    assert verdict.reason


def test_an_identifier_counts_more_than_a_classifier_beside_it() -> None:
    classifier = "License :: OSI Approved :: BSD License"
    listed = licences.judge(
        {"components": [component("b", "BSD-2-Clause", classifier), component("a", classifier)]}
    )
    assert [(one.name, one.licence) for one in listed] == [("a", "BSD-3-Clause"), ("b", "BSD-2-Clause")]
    assert licences.render(listed) == "a 1.0  BSD-3-Clause\nb 1.0  BSD-2-Clause\n"


def test_a_library_that_says_nothing_is_refused_by_name() -> None:
    [listed] = licences.judge({"components": [component("silent")]})
    assert (listed.verdict.is_fit, listed.verdict.reason) == (False, "says nothing of its licence")


def jar(*names: str) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return whole.getvalue()


def test_a_jar_with_classes_of_others_is_refused() -> None:
    assert bill.own_component(jar("META-INF/MANIFEST.MF", "io/penstock/spark/Footer.class"))["hashes"]
    with pytest.raises(SystemExit, match=r"org/slf4j/Logger\.class"):
        bill.own_component(jar("io/penstock/spark/Footer.class", "org/slf4j/Logger.class"))
