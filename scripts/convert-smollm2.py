"""Makes a model directory that vLLM loads (safetensors, float32) out of a GGUF file.

Usage: .venvs/vllm/bin/python scripts/convert-smollm2.py MODEL.gguf OUTPUT_DIRECTORY

The weights are the GGUF's own, dequantised: a Q4_1 file served by llama.cpp and the result served
by vLLM are the same model. Takes under a minute for SmolLM2-135M. The directory appears whole or
not at all; where it is there already, nothing is done.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
import tempfile
from pathlib import Path

USAGE = 2


def convert(gguf: Path, directory: Path) -> None:
    """Write model and tokenizer of the GGUF file into the directory."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(directory)


def main(arguments: list[str]) -> int:
    """Convert unless it is done; returns the exit status."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return USAGE
    gguf, directory = Path(arguments[0]).resolve(), Path(arguments[1]).absolute()
    if not gguf.is_file():
        print(f"error: {gguf}: no such file", file=sys.stderr)
        return USAGE
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.is_dir():
            return 0
        print(f"converting {gguf.name} into {directory}", file=sys.stderr)
        work = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
        try:
            convert(gguf, work)
            work.chmod(0o755)
            work.rename(directory)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
