"""LoRA adapters on the embedded engine: loaded when asked for, used, unloaded again."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest

from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.lora_files import lora_gguf

START_S = 300.0
LOAD_S = 300.0
SLOTS = 2
PROMPT = "The capital of France is"

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    directory = tmp_path_factory.mktemp("adapters")
    lines = [f"[embedded]\nlora_slots = {SLOTS}\n[lora]\nprefetch = false\n"]
    for number in range(3):
        path = lora_gguf(directory / f"a{number}.gguf", number)
        lines.append(f'[[adapters]]\nname = "a{number}"\npath = "{path}"\nbase = "smollm2"\n')
    lines.append(f'[[adapters]]\nname = "bad"\npath = "{directory}/no.gguf"\nbase = "smollm2"\n')
    arguments = ("--threads", "1", "--slots", "2", "--context-tokens", "512")
    with Gateway(directory, *arguments, config="\n".join(lines), start_s=START_S) as gateway:
        yield gateway


def complete(client: openai.OpenAI, model: str) -> str:
    # Without the cache, so that the answer does not hang on how a prompt was cut into steps.
    answer = client.completions.create(
        model=model,
        prompt=PROMPT,
        max_tokens=6,
        temperature=0,
        extra_body={"cache_prompt": False},
    )
    return answer.choices[0].text


def test_an_adapter_is_loaded_used_and_unloaded(gateway: Gateway) -> None:
    with gateway.client(max_retries=0, timeout=LOAD_S) as client:
        assert {model.id for model in client.models.list()} >= {"smollm2", "a0", "a1", "a2"}
        plain = complete(client, "smollm2")
        first, second = complete(client, "a0"), complete(client, "a1")
        assert len({plain, first, second}) == 3, "each adapter changes the answer in its own way"
        assert complete(client, "smollm2") == plain, "the base model is as before"
        third = complete(client, "a2")
        assert third not in (plain, first, second)
        assert complete(client, "a0") == first, "also after others were loaded"
        assert complete(client, "smollm2") == plain


def test_what_cannot_be_loaded_is_told_and_traffic_goes_on(gateway: Gateway) -> None:
    with gateway.client(max_retries=0, timeout=LOAD_S) as client:
        with pytest.raises(openai.InternalServerError, match="does not exist"):
            complete(client, "bad")
        with pytest.raises(openai.NotFoundError):
            complete(client, "nobody")
        with pytest.raises(openai.InternalServerError, match="does not take adapters"):
            client.embeddings.create(model="a0", input="x")
        assert complete(client, "smollm2")


def test_the_command_lists_unloads_and_loads(gateway: Gateway) -> None:
    def lora(*arguments: str) -> dict[str, list[str]]:
        admin = ("--admin", gateway.listening.admin_url or "", "--json")
        told = run_mileage("engine", "lora", *arguments, *admin, state=gateway.state)
        assert told.returncode == 0, told.stderr
        found = json.loads(told.stdout)
        return {each["name"]: each["resident"] for each in found["adapters"]}

    assert set(lora("list")) == {"a0", "a1", "a2", "bad"}
    assert lora("load", "a1", "--wait", str(LOAD_S))["a1"] == ["embedded"]
    assert lora("unload", "a1", "--wait", str(LOAD_S))["a1"] == []
    wait_until(lambda: len(gateway.embedded()) == 1, "the child before has ended", LOAD_S)
    with gateway.client(max_retries=0, timeout=LOAD_S) as client:
        assert complete(client, "smollm2")
