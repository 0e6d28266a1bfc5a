#!/usr/bin/env bash
# Makes .venvs/oracle: the kernel database that benchmarks/oracle.py compares step times with.
set -euo pipefail
cd -P "$(dirname "$0")/.."
. scripts/venv.sh

venv=.venvs/oracle
# The core has the measured kernels (Parquet files) and their interpolation; the package around it
# searches deployments.
packages=(aiconfigurator-core==0.12.0)

key=$(fingerprint "${packages[@]}")
begin $venv oracle "$key"
say "installing ${packages[*]} into $venv"
pip_install $venv "${packages[@]}"
mark_current $venv oracle "$key"
