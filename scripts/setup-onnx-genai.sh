#!/usr/bin/env bash
# Makes .venvs/onnx-genai: ONNX Runtime GenAI, whose own reader of genai_config.json a test asks.
set -euo pipefail
cd -P "$(dirname "$0")/.."
. scripts/venv.sh

venv=.venvs/onnx-genai
packages=(onnxruntime-genai==0.18.0)

key=$(fingerprint "${packages[@]}")
begin $venv onnx-genai "$key"
say "installing ${packages[*]} into $venv (190 MB)"
pip_install $venv "${packages[@]}"
mark_current $venv onnx-genai "$key"
