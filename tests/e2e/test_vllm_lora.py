"""LoRA adapters on a real vLLM: loaded through the gateway when asked for, used, unloaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.lora_files import lora_peft
from tests.support.vllm_server import VllmServer, tiny_model

SLOTS, RANK_MAX = 2, 8
WAIT_S = 120.0
PROMPT = "The capital of France is"
ARGUMENTS = (
    *("--load-format", "dummy", "--max-model-len", "1024", "--max-num-seqs", "4"),
    *("--enable-lora", "--max-loras", str(SLOTS), "--max-lora-rank", str(RANK_MAX)),
)

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[VllmServer]:
    directory = tmp_path_factory.mktemp("vllm-lora")
    for number, seed in enumerate((1, 2, 4)):  # some others do not change what is said
        lora_peft(directory / f"a{number}", seed)
    lora_peft(directory / "wide", 9, rank=2 * RANK_MAX)
    model = tiny_model(vllm_python, directory)
    runtime = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with VllmServer(
        vllm_python, model, directory, *ARGUMENTS, name="tiny", environment=runtime
    ) as made:
        yield made


def config(server: VllmServer, paths: dict[str, Path], more: str = "") -> str:
    lines = [
        f'[[engines]]\nkind = "vllm"\nname = "v"\nurl = "{server.url}"\nlora_slots = {SLOTS}\n',
        f"{more}\n[lora]\nprefetch = false\nresidence_ratio = 0.0\n",
    ]
    for name, path in paths.items():
        lines.append(f'[[adapters]]\nname = "{name}"\npath = "{path}"\nbase = "tiny"\n')
    return "\n".join(lines)


@pytest.fixture(scope="module")
def gateway(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    files = server.directory
    paths = {name: files / name for name in ("a0", "a1", "a2", "wide", "absent")}
    paths["model"] = files / "tiny"
    with Gateway(tmp_path_factory.mktemp("gateway"), config=config(server, paths)) as made:
        yield made


def listed(server: VllmServer) -> set[str]:
    models = httpx.get(f"{server.url}/v1/models", timeout=WAIT_S).json()["data"]
    return {model["id"] for model in models} - {"tiny"}


def complete(client: openai.OpenAI, model: str) -> str:
    answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=8, temperature=0)
    return answer.choices[0].text


def test_adapters_are_loaded_used_and_make_room(server: VllmServer, gateway: Gateway) -> None:
    with gateway.client(timeout=WAIT_S) as client:
        plain, first, second = (complete(client, name) for name in ("tiny", "a0", "a1"))
        assert listed(server) == {"a0", "a1"}
        third = complete(client, "a2")
        assert len({plain, first, second, third}) == 4, "each changes the answer in its own way"
        assert len(listed(server)) == SLOTS, "one has made room"
        assert [complete(client, name) for name in ("a0", "tiny", "a1")] == [first, plain, second]
        assert len(listed(server)) == SLOTS


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("absent", "No adapter found", id="a path that does not exist"),
        pytest.param("model", "No adapter found", id="a directory that is no adapter"),
        pytest.param("wide", "rank 16 is greater than", id="a rank above the engine's"),
    ],
)
def test_what_cannot_be_loaded_is_told_and_takes_nobodys_place(
    server: VllmServer, gateway: Gateway, name: str, reason: str
) -> None:
    with gateway.client(timeout=WAIT_S) as client:
        complete(client, "a0")
        before = listed(server)
        with pytest.raises(openai.InternalServerError, match=reason) as raised:
            complete(client, name)
        assert (raised.value.status_code, raised.value.code) == (503, "load_failed")
        assert listed(server) == before
        assert complete(client, "a0") != complete(client, "tiny")


def test_what_is_unloaded_is_loaded_again_when_asked_for(
    server: VllmServer, gateway: Gateway
) -> None:
    with gateway.client(timeout=WAIT_S) as client:
        before = complete(client, "a1")
        admin = ("--admin", gateway.listening.admin_url or "", "--json", "--wait", "60")
        told = run_mileage("engine", "lora", "unload", "a1", *admin, state=gateway.state)
        assert told.returncode == 0, told.stderr
        (found,) = (each for each in json.loads(told.stdout)["adapters"] if each["name"] == "a1")
        assert found["resident"] == []
        wait_until(lambda: "a1" not in listed(server), "the engine lists it no more", WAIT_S)
        assert complete(client, "a1") == before


def test_what_the_engine_has_lost_costs_no_request(server: VllmServer, gateway: Gateway) -> None:
    with gateway.client(timeout=WAIT_S) as client:
        before = complete(client, "a1")
        for _ in range(3):
            gone = httpx.post(
                f"{server.url}/v1/unload_lora_adapter", json={"lora_name": "a1"}, timeout=WAIT_S
            )
            assert gone.status_code == 200, gone.text
            assert complete(client, "a1") == before, "the gateway had not heard of it"


def test_the_next_gateway_knows_what_was_read_from_elsewhere_and_what_is_nobodys(
    server: VllmServer, gateway: Gateway, tmp_path: Path
) -> None:
    with gateway.client(timeout=WAIT_S) as client:
        said = {name: complete(client, name) for name in ("a2", "a0", "a1")}
        assert listed(server) == {"a0", "a1"}
    gateway.stop()
    other = config(server, {"a0": server.directory / "a2"}, 'models = ["tiny"]')
    with Gateway(tmp_path, config=other) as following, following.client(timeout=WAIT_S) as client:
        assert {model.id for model in client.models.list()} == {"tiny", "a0"}
        assert complete(client, "a0") == said["a2"]
        with pytest.raises(openai.NotFoundError):
            complete(client, "a1")
        assert "a1" in following.log
