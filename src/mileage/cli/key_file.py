"""KeyFile: the tenants' keys in a configuration file; its comments and layout stay as they are."""

from __future__ import annotations

import fcntl
import os
import tomllib
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from mileage.cli.config import Config, load_config
from mileage.cli.config_source import check_exposure
from mileage.core.errors import ConfigError

__all__ = ["KeyFile", "key_entry"]

Tree: TypeAlias = MutableMapping[str, Any]


class KeyFile:
    """One configuration file. Every change is checked as a whole before it replaces the file, which
    has the old content or the new one at any moment.

    All methods raise ConfigError: where the file cannot be read or written, is not in order before
    the change, or would not be after it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self) -> Config:
        """The configuration that it holds; flags and environment do not matter here."""
        return load_config(self.path, {}, {})

    def add(self, tenant: str, digest: str, name: str | None = None) -> None:
        """Give the tenant, which is new perhaps, one more key."""
        entry = key_entry(digest, name)

        def edit(tree: Tree, table: Callable[[], Tree], array: Callable[[], list[Any]]) -> None:
            if "tenants" not in tree:
                tree["tenants"] = table()
            tenants = tree["tenants"]
            if tenant not in tenants:
                tenants[tenant] = table()
            if "key_hashes" not in tenants[tenant]:
                tenants[tenant]["key_hashes"] = array()
            tenants[tenant]["key_hashes"].append(entry)

        self._change(edit)

    def remove(self, tenant: str, digest: str) -> None:
        """Take a key from the tenant, whose other settings stay."""

        def edit(tree: Tree, table: Callable[[], Tree], array: Callable[[], list[Any]]) -> None:
            entries = tree["tenants"][tenant]["key_hashes"]
            entries.remove(next(each for each in entries if each.endswith(digest)))

        self._change(edit)

    def _change(
        self, edit: Callable[[Tree, Callable[[], Tree], Callable[[], list[Any]]], None]
    ) -> None:
        with self._locked():
            self.config()
            text = _read(self.path)
            expected = tomllib.loads(text)
            edit(expected, dict, list)
            edited = _edited(text, edit)
            if edited is None or tomllib.loads(edited) != expected:
                hint = "tenants in tables of their own ([tenants.NAME]); change it by hand"
                raise ConfigError("--config", str(self.path), hint)
            self._replace(edited)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep others out who change it so; where one has replaced it, lock the new one."""
        while True:
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                expected = f"a readable file ({error.strerror})"
                raise ConfigError("--config", str(self.path), expected) from None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if _is(fd, self.path):
                    yield
                    return
            finally:
                os.close(fd)

    def _replace(self, text: str) -> None:
        target = self.path.resolve()  # a link stays one
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            stat = target.stat()
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with suppress(PermissionError):
                    os.fchown(fd, stat.st_uid, stat.st_gid)
                os.fchmod(fd, stat.st_mode & 0o7777)
                with open(fd, "w", encoding="utf-8", newline="") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                check_exposure(load_config(draft, {}, {}))
                os.replace(draft, target)
            except BaseException:
                # Not after it was put in place: from then on the name may be another change's.
                draft.unlink(missing_ok=True)
                raise
        except OSError as error:
            expected = f"a file that can be written ({error.strerror})"
            raise ConfigError("--config", str(self.path), expected) from None


def key_entry(digest: str, name: str | None) -> str:
    """How a key is written in `key_hashes`."""
    return digest if name is None else f"{name}={digest}"


def _is(fd: int, path: Path) -> bool:
    """The open file is the one that has the path now."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _read(path: Path) -> str:
    """The text as it is, with its line ends."""
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def _edited(
    text: str, edit: Callable[[Tree, Callable[[], Tree], Callable[[], list[Any]]], None]
) -> str | None:
    """The text after the change; None where its layout is one that the library cannot keep."""
    import tomlkit  # here, for it takes longer to load than all other commands need
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import InlineTable

    try:
        document = tomlkit.parse(text)
        tenants = document.get("tenants")

        def table() -> Tree:
            if "tenants" not in document:
                return tomlkit.table(is_super_table=True)
            return tomlkit.inline_table() if isinstance(tenants, InlineTable) else tomlkit.table()

        edit(document, table, tomlkit.array)
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, KeyError):
        return None
