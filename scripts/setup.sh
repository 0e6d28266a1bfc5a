#!/usr/bin/env bash
# Makes .venv and installs Mileage into it (editable); `setup.sh dev` adds the tools of its tests.
set -euo pipefail
cd -P "$(dirname "$0")/.."
. scripts/venv.sh

venv=.venv
group=${1:-run}
[[ $group == run || $group == dev ]] || fail "usage: scripts/setup.sh [dev]"

key=$(fingerprint pyproject.toml "$PWD")
begin $venv "$group" "$key"
if [[ $group == dev ]]; then
    say "installing mileage and its development tools into $venv"
    pip_install $venv --editable . --group dev
    mark_current $venv dev "$key"
else
    say "installing mileage into $venv"
    pip_install $venv --editable .
fi
mark_current $venv run "$key"
