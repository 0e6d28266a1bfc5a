#!/usr/bin/env bash
# Installs the Debian packages named that are missing. Exits 3, and says what to do, where it may not.
set -euo pipefail

# A command of the package's name serves as well: not every machine has it from Debian's package.
have() {
    command -v "$1" >/dev/null || dpkg-query --show --showformat='${Status}' "$1" 2>/dev/null |
        grep -q '^install ok installed$'
}

missing=()
for package in "$@"; do
    have "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then exit 0; fi

if ! command -v apt-get >/dev/null; then
    echo "missing here, and there is no apt-get to install it: ${missing[*]}" >&2
    exit 3
fi
if ((EUID != 0)); then
    echo "missing: ${missing[*]}; install with: sudo apt-get install ${missing[*]}" >&2
    exit 3
fi

echo "==> installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Quiet unless it fails, and patient with another apt that holds the lock.
apt() { apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null; }
install() { apt install --yes --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
# A fresh machine has no package lists, and old lists name files that are gone: then fetch them.
if ! install; then
    apt update
    if ! install; then
        tail -n 20 "$log" >&2
        exit 1
    fi
fi
