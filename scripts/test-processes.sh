#!/usr/bin/env bash
# pytest over tests of real processes. What fails is run once more with nothing beside it: failing
# twice fails; passing then is told, as a test or a fault that hangs on the machine's load and is to
# be mended. More than a few failures hang on no load, and stand as they are.
set -euo pipefail
cd -P "$(dirname "$0")/.."
readonly again_max=3

cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
status=0
.venv/bin/python -m pytest -o cache_dir="$cache" "$@" || status=$?
((status == 1)) || exit "$status"
failed=$(.venv/bin/python -c 'import json, sys; print(len(json.load(open(sys.argv[1]))))' \
    "$cache/v/cache/lastfailed")
((failed <= again_max)) || exit "$status"
printf '\n=== %d failed; once more, with nothing beside\n' "$failed"
.venv/bin/python -m pytest -o cache_dir="$cache" "$@" --last-failed --last-failed-no-failures none -n 0
printf '\n=== %d FAILED FIRST AND PASSED ALONE: see above, and mend what hangs on the load\n' "$failed"
