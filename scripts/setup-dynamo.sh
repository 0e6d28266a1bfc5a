#!/usr/bin/env bash
# Makes .venvs/dynamo: the offline replay that benchmarks/simulate.py compares with.
set -euo pipefail
cd -P "$(dirname "$0")/.."
. scripts/venv.sh

venv=.venvs/dynamo
# The runtime holds the replay, in Rust; ai-dynamo itself asks for packages that PyPI does not have.
packages=(ai-dynamo-runtime==1.6.1)

key=$(fingerprint "${packages[@]}")
begin $venv dynamo "$key"
say "installing ${packages[*]} into $venv"
pip_install $venv "${packages[@]}"
mark_current $venv dynamo "$key"
