#!/usr/bin/env bash
# Makes .venvs/vllm-router: the Rust router that benchmarks/gateway.py compares with.
set -euo pipefail
cd -P "$(dirname "$0")/.."
. scripts/venv.sh

venv=.venvs/vllm-router
packages=(vllm-router==0.1.17)

key=$(fingerprint "${packages[@]}")
begin $venv router "$key"
say "installing ${packages[*]} into $venv"
pip_install $venv "${packages[@]}"
mark_current $venv router "$key"
