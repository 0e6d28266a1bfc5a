"""vLLM's own parser of `vllm serve`'s command line: to be run by vLLM's Python.

Reads a JSON list of command lines from stdin, each a list of words behind `vllm serve`, and prints
a JSON list of what vLLM's EngineArgs are of each. A line that vLLM refuses ends the process.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import json
import sys

_FIELDS = (
    "model",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "quantization",
    "dtype",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "block_size",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "cudagraph_capture_sizes",
    "enforce_eager",
    "enable_lora",
    "max_loras",
    "max_lora_rank",
    "speculative_config",
    "served_model_name",
)


def main() -> None:
    """Read, parse, print."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    found = []
    for words in json.load(sys.stdin):
        arguments = parser.parse_args(words)
        validate_parsed_serve_args(arguments)
        if arguments.model_tag is not None:
            arguments.model = arguments.model_tag
        engine = AsyncEngineArgs.from_cli_args(arguments)
        read = {name: getattr(engine, name) for name in _FIELDS}
        modules = [[each.name, each.path] for each in arguments.lora_modules or ()]
        read |= {"host": arguments.host, "port": arguments.port, "lora_modules": modules}
        found.append(read)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
