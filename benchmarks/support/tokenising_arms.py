"""Ways to count a prompt's tokens, each on an event loop whose delays are watched."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

from mileage.gateway.counting_metrics import CountingMetrics
from mileage.gateway.counting_pool import CountingPool
from mileage.gateway.prompt_counter import PromptCounter
from mileage.gateway.tokenizer_config import TokenizerConfig
from mileage.gateway.tokenizer_file import load_tokenizer

__all__ = ["ARMS", "Arm", "LoopWatch", "Prompts", "make_arm", "write_tokenizer"]

ARMS: Final = ("estimate", "in_loop", "threads", "processes")
"""No count at all; in the event loop; as the gateway does; in another process."""
MODEL: Final = "m"
VOCABULARY: Final = 8000
WORDS: Final = 6000

_counter: PromptCounter | None = None
"""Of a process of the pool."""


def _words(random_: random.Random) -> list[str]:
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    weights = range(len(letters), 0, -1)
    return [
        "".join(random_.choices(letters, weights, k=random_.randint(2, 10))) for _ in range(WORDS)
    ]


class Prompts:
    """Bodies of about so many tokens, no two alike, so that nothing of them is known before."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._words = _words(random.Random(0))
        self.tokens_per_word = 1.0

    def text(self, words: int) -> str:
        """So many words."""
        return " ".join(self._random.choices(self._words, k=words))

    def body(self, tokens: int) -> bytes:
        """A chat request with one message."""
        text = self.text(max(1, round(tokens / self.tokens_per_word)))
        messages = [{"role": "user", "content": text}]
        return json.dumps({"model": MODEL, "messages": messages}).encode()

    def calibrate(self, counter: PromptCounter) -> None:
        """Make bodies have the tokens that are asked for."""
        self.tokens_per_word = 1.0
        self.tokens_per_word = (counter.count("chat", self.body(5000)) or 5000) / 5000


def write_tokenizer(path: Path) -> None:
    """A byte-level BPE, the kind that most models have, trained on made-up text."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False, initial_alphabet=ByteLevel.alphabet()
    )
    prompts = Prompts(1)
    texts: Iterator[str] = (prompts.text(500) for _ in range(100))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


class Arm(Protocol):
    """One way; `count` is awaited in the loop that is watched."""

    async def count(self, body: bytes) -> int | None:
        """Tokens of the prompt; None where it only estimates."""
        ...

    def close(self) -> None:
        """End what works for it."""
        ...


class _Estimate:
    async def count(self, body: bytes) -> int | None:
        return None

    def close(self) -> None:
        pass


class _InLoop:
    def __init__(self, place: Path) -> None:
        self._counter = PromptCounter(load_tokenizer("tokenizer", str(place)))

    async def count(self, body: bytes) -> int | None:
        return self._counter.count("chat", body)

    def close(self) -> None:
        pass


class _Threads:
    """The gateway's own pool, with bounds that nothing meets here."""

    def __init__(self, place: Path) -> None:
        config = TokenizerConfig(
            models={MODEL: str(place)}, bytes_min=0, wait_max_s=60.0, waiting_max=100_000
        )
        self._pool = CountingPool(config, CountingMetrics())

    async def count(self, body: bytes) -> int | None:
        told: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._pool.count(MODEL, "chat", body, told.set_result)
        return await told

    def close(self) -> None:
        self._pool.close()


class _Processes:
    """As many processes as the pool has threads: one."""

    def __init__(self, place: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(
            1, mp_context=context, initializer=_begin, initargs=(str(place),)
        )

    async def count(self, body: bytes) -> int | None:
        return await asyncio.get_running_loop().run_in_executor(self._executor, _count, body)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


def _begin(place: str) -> None:
    global _counter
    _counter = PromptCounter(load_tokenizer("tokenizer", place))


def _count(body: bytes) -> int | None:
    assert _counter is not None
    return _counter.count("chat", body)


def make_arm(name: str, place: Path) -> Arm:
    """By its name in ARMS."""
    if name == "estimate":
        return _Estimate()
    made: dict[str, Callable[[Path], Any]] = {
        "in_loop": _InLoop,
        "threads": _Threads,
        "processes": _Processes,
    }
    arm: Arm = made[name](place)
    return arm


class LoopWatch:
    """How late a timer of the loop is, asked each millisecond: what any client would wait."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []
        self._due_s = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """In the running loop."""
        self._due_s = time.perf_counter() + 0.001
        self._handle = asyncio.get_running_loop().call_later(0.001, self._tick)

    def stop(self) -> None:
        """End."""
        if self._handle is not None:
            self._handle.cancel()

    def _tick(self) -> None:
        self.delays_s.append(max(0.0, time.perf_counter() - self._due_s))
        self.start()
