"""llama.cpp's own parser of llama-server's command line, as xllamacpp carries it.

Run as a program it reads lines of JSON, each a list of words, and prints what the parser made of
them, one line each: `{"n_ctx": ...}`, or `{"error": true}`. It is a process of its own, since the
parser prints, and ends the process where it is asked for help.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

__all__ = ["LlamaParser"]

_PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
_SERVER_EXAMPLE = 12
_OBJECT_BYTES = 16
"""Of the Python object before the C++ one that it holds."""
_FIELDS = (
    "n_ctx",
    "n_parallel",
    "n_batch",
    "n_ubatch",
    "n_cache_reuse",
    "cache_prompt",
    "kv_unified",
    "port",
    "hostnames",
    "lora_init_without_apply",
    "endpoint_metrics",
)


class LlamaParser:
    """The process, while the block lasts."""

    def __enter__(self) -> LlamaParser:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=60)

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Fields of llama.cpp's parameters; AssertionError where it refuses the line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"error": "the parser died"}
        assert "error" not in found, f"llama.cpp refuses {list(words)}"
        return found


def _serve() -> None:
    import ctypes

    import xllamacpp
    from xllamacpp import xllamacpp as library

    parse = getattr(ctypes.CDLL(library.__file__), _PARSE)
    parse.restype = ctypes.c_bool
    for line in sys.stdin:
        words = [b"llama-server", *(word.encode() for word in json.loads(line))]
        array = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        params = xllamacpp.CommonParams()
        place = ctypes.c_void_p(id(params) + _OBJECT_BYTES)
        if not parse(len(words), array, place, _SERVER_EXAMPLE, None):
            print('{"error": true}', flush=True)
            continue
        found = {name: getattr(params, name) for name in _FIELDS}
        for name in ("cache_type_k", "cache_type_v", "flash_attn_type", "split_mode"):
            found[name] = int(getattr(params, name))
        found["model_alias"] = sorted(params.model_alias)
        found["model"] = params.model.path
        found["lora"] = [adapter.path for adapter in params.lora_adapters]
        found["draft"] = params.speculative.draft.mparams.path
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    _serve()
