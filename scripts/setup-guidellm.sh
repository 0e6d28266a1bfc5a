#!/usr/bin/env bash
# Makes .venvs/guidellm: the load generator that benchmarks/loadgen.py compares with.
#
# MILEAGE_TORCH_INDEX_URL: where torch's CPU build comes from, if not from a configured index.
set -euo pipefail
cd -P "$(dirname "$0")/.."
. scripts/venv.sh

venv=.venvs/guidellm
# It needs torch, for nothing that the benchmark uses: plain torch would bring gigabytes of CUDA
# libraries, the CPU build does not.
packages=(guidellm==0.8.1 torch==2.13.0+cpu)
index=${MILEAGE_TORCH_INDEX_URL:-https://download.pytorch.org/whl/cpu}

key=$(fingerprint "${packages[@]}")
begin $venv guidellm "$key"
say "installing ${packages[*]} into $venv"
if $venv/bin/python -m pip install --quiet --dry-run --no-deps --ignore-installed "${packages[1]}" >/dev/null 2>&1; then
    pip_install $venv "${packages[@]}"
else
    pip_install $venv --extra-index-url "$index" "${packages[@]}"
fi
mark_current $venv guidellm "$key"
