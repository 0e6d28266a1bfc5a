"""The command line of an engine to be launched, and where it will serve."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from mileage.core.errors import ConfigError, EngineError
from mileage.engines.config import EngineKind

__all__ = ["LAUNCH_KINDS", "LaunchCommand", "LaunchKind", "free_port", "launch_command"]

LaunchKind = Literal["vllm", "sglang", "llamacpp", "command"]
LAUNCH_KINDS: Final[tuple[LaunchKind, ...]] = get_args(LaunchKind)


class _Program(NamedTuple):
    """`module`: run by a Python; `executable`: on the path, with the words that follow it.
    `model`: the flag before the model, empty where its place is the first."""

    executable: tuple[str, ...]
    module: tuple[str, ...] | None
    model: tuple[str, ...]
    port: int
    key_variable: str | None = None
    """In which it looks for its API key, where no flag has it."""
    python: str | None = None
    """That runs the module where nothing is said: not all releases have the program."""


_PLACE: Final = re.compile(r"(?<![${])\{([A-Za-z_]\w*)\}(?!\})")
"""What reads as one of ours: not `${HOME}`, nor `{{ x }}` of a template."""
_PROGRAMS: Final[dict[str, _Program]] = {
    "vllm": _Program(
        ("vllm", "serve"), ("vllm.entrypoints.openai.api_server",), (), 8000, "VLLM_API_KEY"
    ),
    "sglang": _Program(
        ("sglang", "serve"),
        ("sglang.launch_server",),
        ("--model-path", "--model"),
        30000,
        None,
        "python3",
    ),
    "llamacpp": _Program(
        ("llama-server",), None, ("--model", "-m", "--hf-repo", "-hf"), 8090, "LLAMA_API_KEY"
    ),
}
_TLS_FLAGS: Final = ("--ssl-keyfile", "--ssl-certfile", "--ssl-key-file", "--ssl-cert-file")
_NO_PORT_FLAGS: Final = ("--uds", "--headless")
"""With which vLLM listens at no port: it would never be found ready."""
_SECRET_FLAGS: Final = (
    "--api-key",
    "--admin-api-key",
    "--hf-token",
    "-hft",
    "--ssl-keyfile-password",
)
"""What vLLM, SGLang and llama.cpp take that nobody else may read."""
_SECRET_NAME: Final = re.compile(
    r"(?:^|[-_])(?:(?:hf|hub|auth|access|api|bearer|admin)[-_]?(?:key|token)|password|secret)$"
    r"|^--?token$"
    r"|(?-i:^[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD)$)",
    re.IGNORECASE,
)
"""Of a flag, or a variable before `=`, of a program that nobody knows."""
_KEY_FILE: Final = "--api-key-file"
_ABBREVIATING: Final = ("vllm", "sglang")
"""Kinds that know a flag by its beginning, as Python's argparse does."""
_WHOLE_FLAGS: Final = ("--ssl-keyfile",)
"""Flags of their own that are the beginning of a secret one."""
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- asked there, not served


class LaunchCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What is run, and what is known of it; `model` as the engine was given it."""

    kind: LaunchKind
    words: tuple[str, ...]
    host: str
    port: int
    model: str | None
    api_key: str | None = None
    environment: dict[str, str] = {}
    """Variables that it needs, beside those of the launcher."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The words without keys, tokens and passwords, to be shown and logged."""
        found = []
        hidden = False  # vLLM takes several keys after one flag
        for word in self.words:
            flag, equals, _ = word.partition("=")
            hidden = hidden and not word.startswith("-")
            secret = _is_flag(flag, _SECRET_FLAGS, abbreviated=self.kind in _ABBREVIATING) or (
                self.kind == "command"
                and (bool(equals) or flag.startswith("-"))
                and _SECRET_NAME.search(flag) is not None
            )
            found.append("***" if hidden else f"{flag}=***" if secret and equals else word)
            hidden = hidden or (secret and not equals)
        return tuple(found)

    @property
    def secrets(self) -> frozenset[str]:
        """What `shown` hides, and the key that it is asked with."""
        found = {self.api_key} if self.api_key is not None else set()
        for word, shown in zip(self.words, self.shown, strict=True):
            if shown == "***":
                found.add(word)
            elif word != shown:
                found.add(word.partition("=")[2])
        return frozenset(found)

    @property
    def url(self) -> str:
        """Where it is asked from this machine."""
        host = _ANYWHERE.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def engine_kind(self) -> EngineKind:
        """As the gateway calls it."""
        return "openai" if self.kind == "command" else self.kind

    @property
    def missing_hint(self) -> str:
        """What helps where its program is not there."""
        if self.kind == "command":
            return "give its path as the first word after --"
        program = _PROGRAMS[self.kind]
        hint = f"give the path of {program.executable[0]} by --executable"
        if program.module is not None:
            hint += ", or by --python the Python of the environment that has it"
        return hint

    def number(self, *flags: str) -> int | None:
        """The whole number of the last of these flags on the command line; None without one."""
        text = _flag(self.words, flags)
        return int(text) if text is not None and text.isdecimal() else None

    def check_port(self) -> None:
        """Raises EngineError where another program has the port."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                raise EngineError(
                    self.words[0], f"cannot serve at {self.host}:{self.port}: {error.strerror}"
                ) from None


def launch_command(
    kind: LaunchKind,
    words: Sequence[str],
    *,
    executable: str | None = None,
    python: str | None = None,
    model: str | None = None,
    host: str | None = None,
    port: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> LaunchCommand:
    """The command of an engine with its own flags `words`; of `command` they are all of it.

    In words of a command {port} and {host} are put in. A model, host or port that is among the
    words already may not be given twice. Raises ConfigError.
    """
    if kind == "command":
        return _any_command(words, executable, python, model, host, port)
    program = _PROGRAMS[kind]
    _refuse_unreachable(kind, words)
    if executable is not None and python is not None:
        raise ConfigError("--python", python, "either it or --executable")
    if executable is None and python is None:
        python = program.python
    if python is not None and program.module is None:
        raise ConfigError("--python", python, f"none for {kind}: give --executable")
    if python is not None and program.module is not None:
        start = (python, "-m", *program.module)
    else:
        start = (executable or program.executable[0], *program.executable[1:])
    stated = _flag(words, program.model)
    if not program.model and words and not words[0].startswith("-"):
        stated = words[0]
    own = [*start]
    if model is not None and stated is not None:
        raise ConfigError("--model", model, f"none beside the engine's own ({stated})")
    if not program.model and python is not None and stated is not None:
        # Not by its command line's module, which fails where the package has another name, as
        # builds for CPUs do: this module takes the model by a flag.
        words, model = words[1:], stated
    if model is not None:
        before = program.model or (("--model",) if python is not None else ())
        own += [*before[:1], model]
    where = _where(words, host, port, program.port)
    own += words
    for flag, value in (("--host", where[0]), ("--port", str(where[1]))):
        if _flag(words, (flag,)) is None:
            own += [flag, value]
    return LaunchCommand(
        kind=kind,
        words=tuple(own),
        host=where[0],
        port=where[1],
        model=model or stated,
        api_key=_api_key(kind, words, environ),
    )


def _refuse_unreachable(kind: LaunchKind, words: Sequence[str]) -> None:
    """Raises ConfigError for what would never be found ready."""
    if (tls := _flag(words, _TLS_FLAGS)) is not None:
        expected = "none: whether it is ready is asked without TLS (have a proxy in front of it)"
        raise ConfigError("--ssl-keyfile", tls, expected)
    flags = [word.partition("=")[0] for word in words]
    if kind == "vllm" and (silent := next((f for f in flags if f in _NO_PORT_FLAGS), None)):
        expected = "none: whether it is ready is asked at its host and port"
        raise ConfigError(silent, "(given)", expected)


def _api_key(kind: LaunchKind, words: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """One of its keys. llama.cpp parts them by commas, to all others a comma is part of the key.

    llama.cpp takes them out of a file as well, one a line. Raises ConfigError where that has none.
    """
    found = _flag(words, ("--api-key",), abbreviated=kind in _ABBREVIATING)
    variable = _PROGRAMS[kind].key_variable if kind in _PROGRAMS else None
    if found is None and variable is not None:
        found = environ.get(variable)
    if found and kind == "llamacpp":
        found = next((key for key in found.split(",") if key), None)
    if not found and kind == "llamacpp" and (file := _flag(words, (_KEY_FILE,))) is not None:
        found = _key_of(file)
    return found or None


def _key_of(file: str) -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(_KEY_FILE, file, f"a file with API keys, one a line ({why})") from None
    found = next((line for line in lines if line), None)  # as it is: llama.cpp strips nothing
    if found is None:
        raise ConfigError(_KEY_FILE, file, "a file with API keys, one a line: this has none")
    return found


def _any_command(
    words: Sequence[str],
    executable: str | None,
    python: str | None,
    model: str | None,
    host: str | None,
    port: int | None,
) -> LaunchCommand:
    for key, value in (("--executable", executable), ("--python", python)):
        if value is not None:
            raise ConfigError(key, value, "none for command: it is the first word after --")
    if not words:
        raise ConfigError("COMMAND", "", "after --: a program and its arguments")
    at = _where(words, host, port, 8000)
    put = {"host": at[0], "port": str(at[1])}
    made = [_PLACE.sub(lambda found: put[found[1]], _known_places(word, put)) for word in words]
    return LaunchCommand(
        kind="command",
        words=tuple(made),
        host=at[0],
        port=at[1],
        model=model,
        api_key=_api_key("command", made, {}),
    )


def _known_places(word: str, known: Collection[str]) -> str:
    """The word itself; ConfigError where it has another place than these."""
    for found in _PLACE.finditer(word):
        if found[1] not in known:
            places = " and ".join(f"{{{name}}}" for name in known)
            expected = f"{places} alone; braces of the program's own with a space in them: {{ x }}"
            raise ConfigError("COMMAND", found[0], expected)
    return word


def _where(
    words: Sequence[str], host: str | None, port: int | None, default: int
) -> tuple[str, int]:
    stated_host, stated = _flag(words, ("--host",)), _flag(words, ("--port",))
    if "{" in (stated or ""):
        stated = None
    if "{" in (stated_host or ""):
        stated_host = None
    if stated is not None and port is not None and stated != str(port):
        raise ConfigError("--port", port, f"none beside the engine's own ({stated})")
    if stated_host is not None and host is not None and stated_host != host:
        raise ConfigError("--host", host, f"none beside the engine's own ({stated_host})")
    if stated is not None and not (stated.isdecimal() and 0 < int(stated) < 65536):
        raise ConfigError("--port", stated, "1..65535")
    found = int(stated) if stated is not None else default if port is None else port
    chosen = stated_host or host or "127.0.0.1"
    return chosen, found if found else free_port(chosen)


def free_port(host: str | None = None) -> int:
    """A port that nobody listens on now, at that address of this machine. Raises ConfigError."""
    host = host or "127.0.0.1"
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise ConfigError("--host", host, f"an address of here ({error.strerror})") from None
        return int(probe.getsockname()[1])


def _flag(words: Sequence[str], flags: Sequence[str], *, abbreviated: bool = False) -> str | None:
    """The value of the last of these flags, as `--flag VALUE`, `--flag=VALUE` or `--a_flag`."""
    found = None
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not _is_flag(name, flags, abbreviated=abbreviated):
            continue
        if equals:
            found = value
        elif place + 1 < len(words):
            found = words[place + 1]
    return found


def _flag_name(name: str) -> str:
    """As engines know it: vLLM and llama.cpp take `--api_key` for `--api-key`."""
    return name.replace("_", "-") if name.startswith("--") else name


def _is_flag(name: str, flags: Sequence[str], *, abbreviated: bool) -> bool:
    """Is it one of these, or the beginning of one?

    A beginning of several flags is taken for it too: the engine refuses that, whatever it says.
    """
    name = _flag_name(name)
    if name in flags:
        return True
    if not abbreviated or name in _WHOLE_FLAGS or not name.startswith("--") or name == "--":
        return False
    return any(flag.startswith(name) for flag in flags)
