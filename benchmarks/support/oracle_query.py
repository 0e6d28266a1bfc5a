"""Asks the oracle for the kernels of steps; run by the interpreter of .venvs/oracle.

`python oracle_query.py < QUERIES`: a JSON array of what `oracle_client.query` makes. Prints one
JSON object: the oracle's version, and for each query its steps, each an array of [operator,
seconds, source] or null, and beside them why. The source is `silicon` (measured), `empirical` (a
formula) or `mixed`.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import sys
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Answer what stands on standard input."""
    # It warns of every table that it fills up from another engine's.
    logging.disable(logging.CRITICAL)
    answers = [_answer(query) for query in json.load(sys.stdin)]
    version = importlib.metadata.version("aiconfigurator-core")
    sys.stdout.write(json.dumps({"version": version, "answers": answers}) + "\n")


def _answer(query: dict[str, Any]) -> dict[str, Any]:
    from aiconfigurator_core.sdk import EngineHandle

    options = query["options"]
    try:
        engine = EngineHandle.compile(query["model"], query["system"], query["backend"], **options)
    except Exception as error:  # what it lacks it tells by errors of many kinds
        return {"error": _reason(error), "steps": [None for _ in query["steps"]], "errors": []}
    steps: list[Any] = []
    errors: list[str | None] = []
    for step in query["steps"]:
        try:
            steps.append(_step(engine, **step))
            errors.append(None)
        except Exception as error:  # as above
            steps.append(None)
            errors.append(_reason(error))
    return {"error": None, "steps": steps, "errors": errors}


def _step(engine: Any, decoding: int, context_tokens: int, prompt_tokens: int) -> list[list[Any]]:
    if not prompt_tokens:
        _, found = engine.run_static_per_op(
            batch_size=decoding, isl=context_tokens, osl=2, mode="static_gen"
        )
    elif not decoding:
        found, _ = engine.run_static_per_op(
            batch_size=1, isl=prompt_tokens, osl=2, mode="static_ctx"
        )
    else:
        # Requests that decode are taken to have a prompt of this length and half of their answer.
        answer = max(2, 2 * (context_tokens - prompt_tokens))
        parts = engine.mixed_step_breakdown_per_op(prompt_tokens, decoding, prompt_tokens, answer)
        found = [operator for part in parts for operator in part]
    return [[name, milliseconds / 1e3, source] for name, milliseconds, _, source in found]


def _reason(error: Exception) -> str:
    """One line, without the place of the file that lacks it."""
    first = str(error).split("\n", 1)[0].split(" at /", 1)[0]
    return f"{type(error).__name__}: {first}"


if __name__ == "__main__":
    main()
