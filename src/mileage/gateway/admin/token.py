"""The admin token: read from its file, or made once and kept there for its owner only."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from mileage.core.errors import ConfigError
from mileage.gateway.admin.config import AdminConfig, check_token

__all__ = ["load_or_create_token", "resolve_token", "token_path"]

_KEY = "admin.token_file"
_FILE_BYTES_MAX = 1024


def resolve_token(config: AdminConfig, state_directory: Path) -> str:
    """The configured token, else that of the token file (by default in `state_directory`).

    Raises ConfigError.
    """
    path = token_path(config, state_directory)
    if path is not None:
        return load_or_create_token(path)
    assert config.token is not None
    return config.token


def token_path(config: AdminConfig, state_directory: Path) -> Path | None:
    """The file that holds the token; None where the configuration itself does."""
    if config.token is not None:
        return None
    if config.token_file is not None:
        return Path(config.token_file).expanduser()
    return state_directory / "admin-token"


def load_or_create_token(path: Path, key: str = _KEY) -> str:
    """Return the token in the file, which is made with mode 0600 if it is not there; `key` is the
    configuration's, for errors.

    Two processes that start together get the same token. Raises ConfigError for a file that others
    can read, that is no regular file of ours, or that holds no usable token.
    """
    try:
        return _load(path, key)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable(path, key, error) from error
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _create(path, key)
    except OSError as error:
        raise _unusable(path, key, error) from error


def _load(path: Path, key: str) -> str:
    # No link is followed: in a shared directory it could be somebody else's.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise ConfigError(key, str(path), "a regular file that this user owns")
        if status.st_mode & 0o077:
            raise ConfigError(key, str(path), f"a file for its owner only (chmod 600 {path})")
        content = file.read(_FILE_BYTES_MAX + 1)
    try:
        return check_token(key, content.decode("ascii").strip())
    except (UnicodeDecodeError, ConfigError):
        raise ConfigError(
            key,
            str(path),
            "a file that holds one token: 16..512 printable ASCII characters without spaces"
            " (remove it to get a new one)",
        ) from None


def _create(path: Path, key: str) -> str:
    token = secrets.token_urlsafe(32)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(token.encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        # A hard link never replaces: whoever comes second uses the first one's token.
        os.link(draft, path)
    except FileExistsError:
        return _load(path, key)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    return token


def _unusable(path: Path, key: str, error: OSError) -> ConfigError:
    if error.errno == errno.ELOOP:
        return ConfigError(key, str(path), "a regular file, not a symbolic link")
    return ConfigError(key, str(path), f"a file to read or create ({error.strerror})")
