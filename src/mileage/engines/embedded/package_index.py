"""Finds a wheel's URL: in the package indexes and link directories that pip or uv are set to."""

from __future__ import annotations

import configparser
import html.parser
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from mileage.engines.embedded.web_source import ByteSource, OpenUrl, SourceError

__all__ = ["IndexSettings", "find_wheel", "pip_config_files", "read_settings"]

PYPI = "https://pypi.org/simple"
_PAGE_BYTES_MAX = 8 * 1024 * 1024
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
_LISTS = frozenset({"extra-index-url", "find-links"})


class IndexSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where packages come from on this machine."""

    indexes: tuple[str, ...] = (PYPI,)
    """Simple indexes (PEP 503, 691), the main one first."""
    find_links: tuple[str, ...] = ()
    """Directories, or pages of links."""
    ca_file: str | None = None
    proxy: str | None = None


class _File(msgspec.Struct):
    filename: str
    url: str


class _Project(msgspec.Struct):
    """A project's page of a simple index, as JSON (PEP 691)."""

    files: list[_File] = []


def pip_config_files(environ: Mapping[str, str]) -> list[Path]:
    """The places where pip keeps its configuration, the weakest first."""
    own = environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    home = Path.home()
    xdg_dirs = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    xdg_home = environ.get("XDG_CONFIG_HOME")
    files = [Path(d) / "pip" / "pip.conf" for d in reversed(xdg_dirs.split(os.pathsep)) if d]
    files += [
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        (Path(xdg_home) if xdg_home else home / ".config") / "pip" / "pip.conf",
        Path(sys.prefix) / "pip.conf",
    ]
    if own:
        files.append(Path(own))
    return files


def read_settings(environ: Mapping[str, str], config_files: Iterable[Path]) -> IndexSettings:
    """Merge pip's configuration files, pip's environment and uv's; an unreadable file counts not.

    As in pip, the environment wins over files and a later file over an earlier one.
    """
    options: dict[str, str] = {}
    for path in config_files:
        options.update(_file_options(path))
    for key in ("index-url", "extra-index-url", "find-links", "no-index", "cert", "proxy"):
        if value := environ.get(f"PIP_{key.upper().replace('-', '_')}"):
            options[key] = value
    main = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL")
    indexes = [
        options.get("index-url") or (main and _uv_url(main)) or PYPI,
        *options.get("extra-index-url", "").split(),
        *(_uv_url(e) for e in environ.get("UV_INDEX", "").split()),
        *environ.get("UV_EXTRA_INDEX_URL", "").split(),
    ]
    if options.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        indexes = []
    links = [
        *options.get("find-links", "").split(),
        *environ.get("UV_FIND_LINKS", "").replace(",", " ").split(),
    ]
    certificates = options.get("cert") or environ.get("SSL_CERT_FILE")
    return IndexSettings(
        indexes=tuple(dict.fromkeys(indexes)),
        find_links=tuple(dict.fromkeys(links)),
        ca_file=certificates or environ.get("REQUESTS_CA_BUNDLE"),
        proxy=options.get("proxy"),
    )


def _uv_url(value: str) -> str:
    """uv allows NAME=URL."""
    name, equals, url = value.partition("=")
    return url if equals and "/" not in name else value


def _file_options(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    options: dict[str, str] = {}
    for section in ("global", "download"):
        if parser.has_section(section):
            options.update((k.replace("_", "-"), v) for k, v in parser.items(section))
    return options


def find_wheel(
    settings: IndexSettings, project: str, filename: str, *, open_url: OpenUrl
) -> Iterator[tuple[str, str | SourceError]]:
    """Yield (place, URL of the wheel, or why the place gives none), in the order to try them."""
    for place in settings.find_links:
        yield place, _find(_link_page(place, filename), place, filename, open_url)
    for index in settings.indexes:
        page = f"{index.rstrip('/')}/{project}/"
        if page.startswith("file:"):
            page += "index.html"
        yield index, _find(page, index, filename, open_url)


def _link_page(place: str, filename: str) -> str:
    """The file itself where the place is a directory that has it, else a page of links."""
    directory = Path(unquote(place.removeprefix("file://")) if "://" in place else place)
    if (directory / filename).is_file():
        return (directory / filename).absolute().as_uri()
    return place


def _find(page: str, place: str, filename: str, open_url: OpenUrl) -> str | SourceError:
    if page.endswith(f"/{filename}"):
        return page
    if "://" not in page:
        return SourceError("has no such file", retryable=False)
    try:
        source = open_url(page, accept=_ACCEPT)
        try:
            content = _read_page(source)
        finally:
            source.close()
        # Links are relative to where redirects ended.
        link = dict(_links(content, source.content_type)).get(filename)
        if link is None:
            return SourceError(f"does not list {filename}", retryable=False)
        return _with_credentials(urljoin(source.url, link), place)
    except SourceError as error:
        return error
    except ValueError as error:  # of urllib, about a link
        return SourceError(f"its page has a malformed link: {error}", retryable=False)


def _read_page(source: ByteSource) -> bytes:
    content = bytearray()
    while chunk := source.read(1 << 16):
        content += chunk
        if len(content) > _PAGE_BYTES_MAX:
            raise SourceError(f"its page has more than {_PAGE_BYTES_MAX} bytes", retryable=False)
    return bytes(content)


def _links(content: bytes, content_type: str) -> Iterator[tuple[str, str]]:
    """(file name, URL) of each file on a page."""
    if content_type.endswith("json"):
        try:
            project = msgspec.json.decode(content, type=_Project)
        except msgspec.MsgspecError as error:
            raise SourceError(f"its page is no index page: {error}", retryable=False) from error
        for file in project.files:
            yield file.filename, file.url
        return
    parser = _Anchors()
    parser.feed(content.decode("utf-8", "replace"))
    for target in parser.targets:
        yield unquote(urlsplit(target).path.rpartition("/")[2]), target


class _Anchors(html.parser.HTMLParser):
    """Collects the targets of links."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [v for k, v in attrs if tag == "a" and k == "href" and v]


def _with_credentials(url: str, index: str) -> str:
    """Give the index's credentials to a file on the index's own host, and to no other."""
    userinfo, at, host = urlsplit(index).netloc.rpartition("@")
    parts = urlsplit(url)
    if not at or parts.netloc != host:
        return url
    return parts._replace(netloc=f"{userinfo}@{host}").geturl()
