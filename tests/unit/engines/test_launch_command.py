"""Command lines of engines that are launched, and the shapes that warm them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.engines.launch.launch_command import launch_command
from mileage.engines.launch.warm_up import WarmShape, default_shapes, parse_shape


@pytest.mark.parametrize(
    ("kind", "words", "options", "expected"),
    [
        pytest.param(
            "vllm",
            ["--max-num-seqs", "8"],
            {"model": "m"},
            "vllm serve m --max-num-seqs 8 --host 127.0.0.1 --port 8000",
            id="vllm on the path",
        ),
        pytest.param(
            "vllm",
            ["m", "--port=9"],
            {"python": "/v/python"},
            "/v/python -m vllm.entrypoints.openai.api_server --model m --port=9 --host 127.0.0.1",
            id="vllm of an environment, its own port",
        ),
        pytest.param(
            "sglang",
            [],
            {"model": "m", "python": "/v/python", "port": 7},
            "/v/python -m sglang.launch_server --model-path m --host 127.0.0.1 --port 7",
            id="sglang",
        ),
        pytest.param(
            "sglang",
            ["--model", "m"],
            {},
            "python3 -m sglang.launch_server --model m --host 127.0.0.1 --port 30000",
            id="sglang of the python on the path",
        ),
        pytest.param(
            "llamacpp",
            ["-m", "m.gguf"],
            {"executable": "/b/llama-server"},
            "/b/llama-server -m m.gguf --host 127.0.0.1 --port 8090",
            id="llama-server, its own model",
        ),
        pytest.param(
            "command",
            ["serve", "--at", "{host}:{port}"],
            {"port": 5},
            "serve --at 127.0.0.1:5",
            id="any other",
        ),
    ],
)
def test_the_command(kind: Any, words: list[str], options: dict[str, Any], expected: str) -> None:
    assert " ".join(launch_command(kind, words, **options).words) == expected


@pytest.mark.parametrize(
    ("kind", "words", "options", "key"),
    [
        ("vllm", ["--port", "9"], {"port": 8}, "--port"),
        ("vllm", ["--port", "x"], {}, "--port"),
        ("vllm", ["--host", "::"], {"host": "127.0.0.1"}, "--host"),
        ("vllm", ["m"], {"model": "n"}, "--model"),
        ("vllm", ["m", "--ssl-keyfile", "k"], {}, "--ssl-keyfile"),
        ("vllm", ["m", "--ssl_keyfile=k"], {}, "--ssl-keyfile"),
        ("vllm", ["m", "--uds", "/tmp/socket"], {}, "--uds"),
        ("vllm", ["m", "--uds=/tmp/socket"], {}, "--uds"),
        ("vllm", ["m", "--headless"], {}, "--headless"),
        ("llamacpp", ["-m", "m"], {"model": "n"}, "--model"),
        ("llamacpp", [], {"python": "p"}, "--python"),
        ("vllm", [], {"python": "p", "executable": "e"}, "--python"),
        ("command", [], {}, "COMMAND"),
        ("command", ["serve", "--port", "{prot}"], {}, "COMMAND"),
        ("command", ["serve", "--at={hots}:{port}"], {}, "COMMAND"),
        ("command", ["serve", "{model}"], {}, "COMMAND"),
        ("llamacpp", ["-m", "m", "--api-key-file", "/nowhere/keys"], {}, "--api-key-file"),
        ("llamacpp", ["-m", "m", "--api-key-file=/dev/null"], {}, "--api-key-file"),
        ("command", ["a"], {"executable": "e"}, "--executable"),
    ],
)
def test_what_contradicts_itself_is_refused(
    kind: Any, words: list[str], options: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        launch_command(kind, words, **options)
    assert caught.value.key == key


def test_what_is_known_of_it() -> None:
    words = ["m", "--max-num-seqs=4", "--max-num-seqs", "8", "--api-key", "k", "--host", "0.0.0.0"]
    command = launch_command("vllm", words, port=6)
    assert command.number("--max-num-seqs") == 8
    assert command.number("--max-model-len") is None
    assert command.api_key == "k"
    assert "--api-key *** --host" in " ".join(command.shown)
    assert launch_command("vllm", ["m", "--api-key=k"]).shown[3] == "--api-key=***"
    several = launch_command("vllm", ["m", "--api-key", "k", "l", "--seed", "1"]).shown
    assert several[3:8] == ("--api-key", "***", "***", "--seed", "1")
    assert command.url == "http://127.0.0.1:6"
    assert command.model == "m"
    assert launch_command("vllm", ["m", "--host", "::"]).url == "http://[::1]:8000"
    assert launch_command("command", ["a"], port=0).port > 0
    with_keys = launch_command("llamacpp", ["-m", "m"], environ={"LLAMA_API_KEY": "a,b"})
    assert with_keys.api_key == "a"
    assert launch_command("vllm", ["m"], environ={}).api_key is None


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("vllm", "m --hf-token SECRET"),
        ("vllm", "m --hf_token=SECRET"),
        ("vllm", "m --api_key SECRET"),
        ("vllm", "m --api-key SECRET SECRET"),
        ("vllm", "m --api-k SECRET SECRET"),
        ("vllm", "m --api_k=SECRET"),
        ("vllm", "m --hf-t SECRET"),
        ("sglang", "--model m --admin SECRET"),
        ("sglang", "--model m --ssl-keyfile-p=SECRET"),
        ("sglang", "--model m --admin-api-key SECRET"),
        ("sglang", "--model m --ssl-keyfile-password SECRET"),
        ("llamacpp", "-m m -hft SECRET"),
        ("llamacpp", "-m m --hf-token SECRET"),
        ("command", "./serve --api-key SECRET"),
        ("command", "./serve --auth-token=SECRET"),
        ("command", "./serve --admin_password SECRET"),
        ("command", "env HF_TOKEN=SECRET OPENAI_API_KEY=SECRET ./serve"),
        (
            "command",
            "env MILEAGE_CONTROL_TOKEN=SECRET GITHUB_TOKEN=SECRET DB_PASSWD=SECRET ./serve",
        ),
    ],
)
def test_secrets_are_not_shown(kind: Any, words: str) -> None:
    command = launch_command(kind, [*words.split(), "--seed", "1"])
    shown = " ".join(command.shown)
    assert "SECRET" not in shown
    assert "***" in shown
    assert "--seed 1" in shown
    assert "SECRET" in " ".join(command.words)


@pytest.mark.parametrize(
    ("kind", "words", "environ", "key"),
    [
        pytest.param("vllm", ["m", "--api_key", "k"], {}, "k", id="vLLM takes underscores"),
        pytest.param("vllm", ["m"], {"VLLM_API_KEY": "a,b"}, "a,b", id="vLLM's is one key"),
        pytest.param("vllm", ["m", "--api-key", "a,b"], {}, "a,b", id="and so by its flag"),
        pytest.param("llamacpp", ["--api-key", "a,b"], {}, "a", id="llama.cpp: several"),
        pytest.param("command", ["serve", "--api-key", "k"], {}, "k", id="any other"),
        pytest.param("vllm", ["m", "--api-k", "k"], {"VLLM_API_KEY": "a"}, "k", id="abbreviated"),
        pytest.param("sglang", ["--model", "m", "--api_k=k"], {}, "k", id="so by SGLang"),
        pytest.param(
            "llamacpp", ["--api-k", "k"], {"LLAMA_API_KEY": "a"}, "a", id="not by llama.cpp"
        ),
    ],
)
def test_the_key_that_it_is_asked_with(
    kind: Any, words: list[str], environ: dict[str, str], key: str
) -> None:
    assert launch_command(kind, words, environ=environ).api_key == key


def test_other_flags_are_no_beginning_of_a_secret_one() -> None:
    words = ["m", "--host", "h", "--api-server-count", "2", "--hf-overrides", "{}", "--", "x"]
    assert "***" not in launch_command("vllm", words).shown


def test_what_is_no_secret_of_any_command_is_shown() -> None:
    words = [
        "./serve",
        "--pad-token",
        "5",
        "--key-bits",
        "8",
        "--tokenizer",
        "t",
        "secret",
        "--kv-cache-dtype=fp8",
        "tokenizer_key=t",
        "MAX_TOKENS=5",
    ]
    assert launch_command("command", words).shown == tuple(words)


@pytest.mark.parametrize(
    "word", ["${HOME}/x", '{"a":{"b":1}}', "{{bos_token}}", "{ print }", "{}", "{0}", "a{,b}"]
)
def test_braces_that_are_no_places_are_left_alone(word: str) -> None:
    assert launch_command("command", ["serve", word], port=5).words == ("serve", word)


def test_an_unknown_place_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"\{prot\}.*\{host\} and \{port\}"):
        launch_command("command", ["serve", "{prot}"])


def test_the_key_of_llama_cpps_file(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\nfirst\nsecond\n")
    words = ["-m", "m", "--api-key-file", str(tmp_path / "keys")]
    command = launch_command("llamacpp", words, environ={})
    assert command.api_key == "first"
    assert "first" not in " ".join(command.words)
    assert launch_command("llamacpp", words, environ={"LLAMA_API_KEY": "k"}).api_key == "k"


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("vllm", "--python"), ("llamacpp", "llama-server by --executable"), ("command", "after --")],
)
def test_where_a_missing_program_may_be_named(kind: Any, hint: str) -> None:
    assert hint in launch_command(kind, ["m"]).missing_hint


def test_shapes_up_to_the_active_limit_and_the_models_length() -> None:
    assert default_shapes(2048, 16, 4096) == ((1, 1), (2048, 1), (16, 16))
    assert default_shapes(2048, 256, 300) == ((1, 1), (284, 1), (16, 32))
    assert default_shapes(None, None, None) == ((1, 1), (512, 1), (16, 8))
    assert default_shapes(1, 1, 8) == ((1, 1),)
    assert parse_shape("100x3") == WarmShape(100, 3)
    for text in ("100", "0x1", "1x0", "1x257", "ax1", "-1x1"):
        with pytest.raises(ConfigError, match="PROMPTxBATCH"):
            parse_shape(text)
