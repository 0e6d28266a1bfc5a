#!/usr/bin/env bash
# Makes .venvs/vllm-router: the Rust router that benchmarks/gateway.py compares with.
set -euo pipefail
cd -P "$(dirname "$0")/.."
. scripts/venv.sh

venv=.venvs/vllm-router
packages=(vllm-router==0.1.17)

key=$(fingerprint "${packages[@]}")
if is_current $venv router "$key"; then exit 0; fi
lock_venv $venv
make_venv $venv
say "installing ${packages[*]} into $venv"
pip_install $venv "${packages[@]}"
mark_current $venv router "$key"
