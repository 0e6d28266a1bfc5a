"""LoRA adapters on the embedded engine: loaded when asked for, used, unloaded again."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from benchmarks.support.adapter_world import least_recent, uses
from benchmarks.support.lora_gguf import lora_gguf
from tests.support.gateway import Gateway, run_mileage, wait_until

START_S = 300.0
LOAD_S = 300.0
ADAPTERS, SLOTS, CLIENTS = 16, 4, 4
PROMPT = "The capital of France is"
HEAD = f"[embedded]\nlora_slots = {SLOTS}\n[lora]\nprefetch = false\n"

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("adapters")
    return [lora_gguf(directory / f"a{number}.gguf", number) for number in range(ADAPTERS)]


def config(paths: dict[str, Path]) -> str:
    entry = '[[adapters]]\nname = "{}"\npath = "{}"\nbase = "smollm2"\n'
    return HEAD + "".join(entry.format(name, path) for name, path in paths.items())


@pytest.fixture(scope="module")
def catalogue(files: list[Path]) -> dict[str, Path]:
    named = {f"a{number}": path for number, path in enumerate(files)}
    directory = files[0].parent
    return named | {
        "bad": directory / "no.gguf",
        "twin": files[3],
        "gone": Path(shutil.copy(files[4], directory / "gone.gguf")),
        "narrow": lora_gguf(directory / "narrow.gguf", 0, width=64),
    }


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, catalogue: dict[str, Path]
) -> Iterator[Gateway]:
    # One thread: two wait for each other at every step, which takes for ever on a busy machine.
    arguments = ("--threads", "1", "--slots", str(CLIENTS), "--context-tokens", "512")
    directory = tmp_path_factory.mktemp("gateway")
    with Gateway(directory, *arguments, config=config(catalogue), start_s=START_S) as made:
        yield made


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with gateway.client(timeout=LOAD_S) as made:
        yield made


def complete(client: openai.OpenAI, model: str, **fields: Any) -> str:
    answer = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=6, temperature=0, extra_body=fields
    )
    return answer.choices[0].text


def adapters(gateway: Gateway) -> dict[str, dict[str, Any]]:
    found = gateway.admin("/api/v1/adapters")["adapters"]
    return {each["name"]: each for each in found}


def loads(gateway: Gateway) -> int:
    """Of all adapters so far."""
    text = httpx.get(f"{gateway.listening.admin_url}/metrics", timeout=LOAD_S).text
    lines = [line for line in text.splitlines() if line.startswith("mileage_adapter_loads_total{")]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


def test_many_adapters_on_few_slots(
    gateway: Gateway, client: openai.OpenAI, record_property: Any
) -> None:
    """Everybody is answered by the right one, with fewer loads than LRU would make."""
    plain = complete(client, "smollm2")
    sequence = uses(adapters=ADAPTERS, alpha=1.2, rate_per_s=1.0, requests=20, seed=6)
    names = [name for _, name in sequence]
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda name: complete(client, name), names))
    by_name = dict(zip(names, answers, strict=True))
    assert len({plain, *by_name.values()}) == 1 + len(by_name), "each changes it in its own way"
    assert answers == [by_name[name] for name in names], "and always in the same"
    made, lru = loads(gateway), least_recent(sequence, SLOTS)
    record_property("hit_ratio", 1 - made / len(names))
    assert made <= lru.loads
    assert max(Counter(names).values()) > 1
    resident = [name for name, each in adapters(gateway).items() if each["resident"]]
    assert 1 <= len(resident) <= SLOTS
    assert complete(client, "twin") == complete(client, "a3"), "it is the file that is used"
    assert complete(client, "smollm2") == plain


def test_a_prompt_is_taken_from_the_cache_of_the_same_adapter_only(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Tell me where the Loire flows, and since when."}]

    def ask(model: str, *, cached: bool) -> tuple[str, int]:
        answer = client.chat.completions.create(
            model=model,
            messages=messages,
            max_tokens=6,
            temperature=0,
            extra_body={} if cached else {"cache_prompt": False},
        )
        usage = answer.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        return answer.choices[
            0
        ].message.content or "", usage.prompt_tokens_details.cached_tokens or 0

    def by_anthropic() -> str:
        answer: Any = client.post(
            "/messages",
            cast_to=object,
            body={"model": "smollm2", "max_tokens": 6, "temperature": 0, "messages": messages},
        )
        return str(answer["content"][0]["text"])

    models = ("smollm2", "a0", "a1")
    fresh = {model: ask(model, cached=False) for model in models}
    assert len({text for text, _ in fresh.values()}) == 3
    assert [reused for _, reused in fresh.values()] == [0, 0, 0]
    for model in (*models, *reversed(models)):
        assert ask(model, cached=True)[0] == fresh[model][0]
        text, reused = ask(model, cached=True)
        assert (text, reused > 0) == (fresh[model][0], True)
    ask("a0", cached=True)
    assert by_anthropic() == fresh["smollm2"][0], "which cannot say for which adapter it asks"


def test_what_cannot_be_loaded_is_told_and_traffic_goes_on(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="does not exist"):
        complete(client, "bad")
    with pytest.raises(openai.InternalServerError, match="load_failed") as raised:
        complete(client, "narrow")
    assert "narrow.gguf" in raised.value.message or "wrong shape" in raised.value.message
    with pytest.raises(openai.NotFoundError):
        complete(client, "nobody")
    with pytest.raises(openai.InternalServerError, match="does not take adapters"):
        client.embeddings.create(model="a0", input="x")
    assert complete(client, "smollm2")


def test_the_command_lists_unloads_and_loads(
    gateway: Gateway, client: openai.OpenAI, catalogue: dict[str, Path]
) -> None:
    def lora(*arguments: str) -> dict[str, list[str]]:
        admin = ("--admin", gateway.listening.admin_url or "", "--json")
        told = run_mileage("engine", "lora", *arguments, *admin, state=gateway.state)
        assert told.returncode == 0, told.stderr
        found = json.loads(told.stdout)
        return {each["name"]: each["resident"] for each in found["adapters"]}

    assert set(lora("list")) == set(catalogue)
    assert lora("load", "a1", "--wait", str(LOAD_S))["a1"] == ["embedded"]
    assert lora("unload", "a1", "--wait", str(LOAD_S))["a1"] == []
    wait_until(lambda: len(gateway.embedded()) == 1, "the child before has ended", LOAD_S)
    assert complete(client, "smollm2")


def test_what_adapters_cost_is_told(gateway: Gateway, client: openai.OpenAI) -> None:
    for name in ("smollm2", "a0", "a3"):
        complete(client, name)

    def busy() -> dict[str, int]:
        arguments = ("--by", "adapter", "--since", "1h", "--json", "--ledger", gateway.ledger)
        told = run_mileage("cost", *arguments, state=gateway.state)
        accounts = json.loads(told.stdout)["accounts"] if told.returncode == 0 else []
        return {each["name"]: each["used_gpu_ns"] for each in accounts}

    names = {"a0", "a3", "(no adapter)"}
    found: dict[str, int] = {}

    def settled() -> bool:
        found.update(busy())
        return names <= found.keys()

    wait_until(settled, "all are on the bill", LOAD_S)
    assert all(found[name] > 0 for name in names)


def test_the_catalogue_changes_while_it_serves(
    gateway: Gateway, client: openai.OpenAI, catalogue: dict[str, Path], files: list[Path]
) -> None:
    def reload(paths: dict[str, Path]) -> None:
        (gateway.directory / "mileage.toml").write_text(config(paths))
        gateway.admin("/api/v1/config/reload", "POST")

    first, second, third = (complete(client, name) for name in ("a0", "a1", "a2"))
    changed = {name: path for name, path in catalogue.items() if name != "a1"}
    reload({**changed, "a0": files[2], "new": files[1]})
    assert complete(client, "a0") == third, "of another file from now on"
    assert complete(client, "new") == second
    assert complete(client, "a2") == third
    with pytest.raises(openai.NotFoundError):
        complete(client, "a1")
    assert "a1" not in {model.id for model in client.models.list()}
    assert "a1" not in adapters(gateway)

    reload(catalogue)
    assert [complete(client, name) for name in ("a1", "a0")] == [second, first]


def test_a_file_that_is_deleted_while_it_is_loaded_takes_nothing_down(
    gateway: Gateway, client: openai.OpenAI, catalogue: dict[str, Path]
) -> None:
    said = complete(client, "gone")
    catalogue["gone"].unlink()
    wait_until(lambda: len(gateway.embedded()) == 1, "the child before has ended", LOAD_S)
    (child,) = gateway.embedded()
    child.kill()
    with gateway.client(timeout=LOAD_S, max_retries=100) as patient:
        assert complete(patient, "gone") == said, "also of a child that was started since"
    other = next(name for name, each in adapters(gateway).items() if not each["resident"])
    assert complete(client, other), "and others can be loaded beside it"
