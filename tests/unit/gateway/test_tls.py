"""TLS of the data plane: files that cannot be used are refused by their name, at once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mileage.core.errors import ConfigError
from mileage.gateway.config import ServerConfig
from mileage.gateway.tls import tls_context
from tests.support.certificate import write_certificate


def config(certificate: Path, key: Path) -> ServerConfig:
    return ServerConfig(tls_cert=str(certificate), tls_key=str(key))


def test_without_a_certificate_there_is_no_tls() -> None:
    assert tls_context(ServerConfig()) is None


def test_a_certificate_and_its_key_are_used(tmp_path: Path) -> None:
    assert tls_context(config(*write_certificate(tmp_path))) is not None


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    missing = tmp_path / "missing.pem"
    with pytest.raises(ConfigError, match=r"server\.tls_cert: got '.*missing\.pem'"):
        tls_context(config(missing, key))
    with pytest.raises(ConfigError, match=r"server\.tls_key: got '.*missing\.pem'"):
        tls_context(config(certificate, missing))


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    _, key = write_certificate(tmp_path)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    with pytest.raises(ConfigError, match="a PEM certificate that fits"):
        tls_context(config(garbage, key))


def test_the_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    certificate, _ = write_certificate(tmp_path / "a")
    _, key = write_certificate(tmp_path / "b")
    with pytest.raises(ConfigError, match="KEY_VALUES_MISMATCH"):
        tls_context(config(certificate, key))


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-in", str(key), "-aes256", "-passout", "pass:secret"]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True, timeout=60)
    with pytest.raises(ConfigError, match="needs a password"):
        tls_context(config(certificate, locked))
