"""A server behind TLS: its certificate is checked, against those that one trusts."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from penstock.errors import InvalidRequest, Unavailable
from penstock.lake.calls import CreateReference, GetOutcome
from penstock.lake.remote import RemoteCatalogue
from tests.remote.scripted import Said, scripted

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for localhost that nobody trusts, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    subprocess.run([*made, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    certificate.write_text(certificate.read_text() + key.read_text())
    return certificate


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_certificate_that_is_not_trusted_is_refused(tls: ssl.SSLContext) -> None:
    with scripted(Said(200, b"null"), tls=tls) as server:
        remote = RemoteCatalogue(server.url, "penstock_0123456789ab_s3cr3t")
        with pytest.raises(Unavailable, match=r"certificate is not trusted .*SSL_CERT_FILE"):
            remote.do(GetOutcome(key="k"))
        remote.close()
    assert server.asked == []


def test_a_certificate_of_ones_own_is_trusted_if_one_says_so(
    tls: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with scripted(Said(200, b"null"), tls=tls) as server:
        remote = RemoteCatalogue(server.url, "penstock_0123456789ab_s3cr3t")
        assert remote.do(GetOutcome(key="k")) is None
        remote.close()
    assert server.asked[0].headers["authorization"] == "Bearer penstock_0123456789ab_s3cr3t"


def test_a_certificate_for_another_name_is_refused(
    tls: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with scripted(Said(200, b"null"), tls=tls) as server:
        remote = RemoteCatalogue(server.url.replace("localhost", "127.0.0.1"))
        with pytest.raises(Unavailable, match="certificate is not trusted"):
            remote.do(GetOutcome(key="k"))
        remote.close()
    assert server.asked == []


def test_a_server_that_does_not_speak_tls_is_told_at_once() -> None:
    with scripted(Said(200, b"null")) as server:
        plain = server.url
        remote = RemoteCatalogue(plain.replace("http://", "https://"))
        with pytest.raises(
            InvalidRequest, match=f"does not speak TLS; use {plain}, or the address of a proxy"
        ):
            remote.do(CreateReference(name="dev"))
        remote.close()
    assert server.asked == []


def test_a_write_before_which_tls_was_not_agreed_on_was_not_sent(
    tls: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    tls.set_ciphers("NULL-SHA256:@SECLEVEL=0")  # nothing that a client would take
    with scripted(Said(200, b"null"), tls=tls) as server:
        remote = RemoteCatalogue(server.url)
        with pytest.raises(Unavailable, match=r"cannot connect to .*: TLS failed \(.*handshake failure\)"):
            remote.do(CreateReference(name="dev"))
        remote.close()
    assert server.asked == []
