"""`mileage engine config`: plans from files and options, what is printed, and what is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mileage.cli.engine import engine
from mileage.core.errors import ConfigError
from tests.support.option_table import parse_options

PAGE = Path(__file__).parents[3] / "docs/how-to/generate-engine-configuration.md"
PLAN = """\
model = "/models/llama"
architecture = "llama-3.1-8b"
running_max = 64
kv_dtype = "fp8"

[lora]
slots = 4
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(engine, ["config", *words])


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def test_a_command_line_is_printed_that_a_shell_takes(plan: Path) -> None:
    done = run("vllm", str(plan), "--set", "model=/models/a b", "--set", "lora.slots=2")
    assert done.exit_code == 0, done.output
    line, header, *_ = done.stdout.splitlines()
    variable, *words = shlex.split(line)
    assert variable == "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
    assert words[:3] == ["vllm", "serve", "/models/a b"]
    assert parse_options("vllm", words[3:])["--max-loras"] == 2
    assert header == "# config.yaml"


def test_the_page_s_own_plan_goes_through_each_of_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text()
    (tmp_path / "plan.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    monkeypatch.chdir(tmp_path)
    lines = [
        line.removeprefix("mileage engine config ")
        for line in page.splitlines()
        if line.startswith("mileage engine config ")
    ]
    assert {line.split()[0] for line in lines} >= {"vllm", "trtllm", "triton", "llamacpp", "onnx"}
    for line in lines:
        done = run(*shlex.split(line))
        assert done.exit_code == 0, (line, done.exception)


def test_the_document_has_commands_files_and_the_cache(plan: Path) -> None:
    done = run("trtllm", str(plan), "--json", "--set", "gpu=h100")
    document = json.loads(done.stdout)
    assert document["engine"] == "trtllm"
    assert document["commands"][0]["argv"][0] == "trtllm-serve"
    assert shlex.split(document["commands"][0]["line"]) == document["commands"][0]["argv"]
    tokens = document["kv_cache"]["blocks"] * document["kv_cache"]["block_tokens"]
    assert f"max_tokens: {tokens}\n" in document["files"]["config.yaml"]


def test_warnings_name_the_field_and_can_be_made_to_fail(plan: Path) -> None:
    words = ("sglang", str(plan), "--set", "step_tokens_max=512")
    done = run(*words)
    assert done.exit_code == 0
    assert "mileage: step_tokens_max: " in done.stderr
    assert "step_tokens_max" not in done.stdout
    assert run(*words, "--strict").exit_code == 1


def test_files_are_written_where_asked(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("triton", str(plan), "--out", str(out))
    assert done.exit_code == 0, done.output
    assert 'name: "llama"' in (out / "model_repository/llama/config.pbtxt").read_text()


@pytest.mark.parametrize(
    ("name", "option", "file"),
    [
        ("trtllm", "--config {}/config.yaml", "config.yaml"),
        ("triton", "--model-repository={}/model_repository", "model_repository/llama/config.pbtxt"),
    ],
)
def test_commands_name_the_files_where_they_were_written(
    plan: Path, tmp_path: Path, name: str, option: str, file: str
) -> None:
    out = tmp_path / "out"
    done = run(name, str(plan), "--out", str(out), "--json")
    document = json.loads(done.stdout)
    assert option.format(out) in document["commands"][0]["line"]
    assert document["files"] == [str(out / file)]
    assert option.format(out) in run(name, str(plan), "--out", str(out)).stdout


def test_tokens_and_shape_come_from_config_json(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "bos_token_id": 1,
        "eos_token_id": [2, 3],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run("onnx", "--set", f"model={tmp_path}", "--set", "context_max_tokens=512", "--json")
    model = json.loads(json.loads(done.stdout)["files"]["genai_config.json"])["model"]
    assert (model["type"], model["bos_token_id"], model["eos_token_id"]) == ("llama", 1, [2, 3])
    assert model["decoder"]["num_key_value_heads"] == 2


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        pytest.param(
            PLAN.replace("slots", "slotz"),
            ("vllm",),
            "plan.toml:7: lora.slotz: got '(present)', expected a key such as slots; "
            "see docs/reference/engine-plan.md",
            id="a key that is none",
        ),
        pytest.param(
            PLAN.replace("running_max = 64", 'running_max = "many"'),
            ("vllm",),
            "plan.toml:3: running_max: got 'many', expected a whole number",
            id="no number",
        ),
        pytest.param(
            PLAN,
            ("llamacpp",),
            "plan.toml:4: kv_dtype: got 'fp8', expected one of bf16, fp16, int8, int4, "
            "for llama.cpp",
            id="a cache that the engine has not",
        ),
        pytest.param(
            PLAN,
            ("vllm", "--set", "step_tokens_max=8"),
            "the command line: step_tokens_max: got 8, expected at least 64 (running_max)",
            id="a contradiction",
        ),
        pytest.param(
            PLAN,
            ("vllm", "--set", "gpu=h1000"),
            "the command line: gpu: got 'h1000', expected a known name (nearest: H100",
            id="an unknown card",
        ),
        pytest.param(PLAN, ("vlm",), "ENGINE: got 'vlm', expected one of vllm", id="no engine"),
        pytest.param(PLAN, ("vllm", "--set", "x"), "--set: got 'x', expected KEY=VALUE", id="=?"),
        pytest.param("model = ", ("vllm",), "plan.toml:1: PLAN: ", id="no TOML"),
        pytest.param("port = 1", ("vllm",), "model: got '(absent)'", id="no model"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, text: str, words: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    done = run(words[0], str(path), *words[1:])
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param('{"model": "m",\n"slots": 4}', "plan.json: slots: ", id="a key that is none"),
        pytest.param('{"model": "m",\n4}', "plan.json:2: PLAN: ", id="no JSON"),
        pytest.param("[1]", "a JSON object", id="a list"),
        pytest.param("[" * 100_000, "PLAN: ", id="too deep"),
    ],
)
def test_json_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    done = run("vllm", str(path))
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)


def test_json_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"model": "m", "lora": {"slots": 2}}')
    done = run("vllm", str(path), "--json")
    assert "--max-loras" in json.loads(done.stdout)["commands"][0]["argv"]
