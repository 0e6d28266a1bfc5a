#!/usr/bin/env bash
# Makes .venvs/litellm: the Python proxy that benchmarks/gateway.py compares with.
set -euo pipefail
cd -P "$(dirname "$0")/.."
. scripts/venv.sh

venv=.venvs/litellm
# The newest whose [proxy] extra names only published packages: 1.108.13 and later ask for
# releases of litellm-proxy-extras and litellm-proxy that PyPI does not have.
packages=("litellm[proxy]==1.108.0")

key=$(fingerprint "${packages[@]}")
begin $venv litellm "$key"
say "installing ${packages[*]} into $venv"
pip_install $venv "${packages[@]}"
mark_current $venv litellm "$key"
