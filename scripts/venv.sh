# shellcheck shell=bash
# Virtual environments for the setup scripts beside this file: made once, kept current by a stamp.
# Sourced, not run. The caller is bash with `set -euo pipefail`, in the repository's root.

# The interpreters to try, in this order, unless PYTHON names one.
PYTHONS=(python3 python3.13 python3.12 python3.11 python3.14)

say() { printf '==> %s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Prints an interpreter of 3.11 or newer that can make virtual environments, or explains what to do.
find_python() {
    local candidate too_old="" no_ensurepip=""
    for candidate in ${PYTHON:-"${PYTHONS[@]}"}; do
        # Run it: a name on PATH may be a version manager's shim for a version that is not active.
        if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            if "$candidate" -c '' 2>/dev/null; then too_old+=" $candidate"; fi
        elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            no_ensurepip=${no_ensurepip:-$candidate}
        else
            printf '%s\n' "$candidate"
            return
        fi
    done
    if [[ -n $no_ensurepip ]]; then
        # Debian keeps ensurepip in a package of its own, named after the interpreter's version.
        local package
        package=$("$no_ensurepip" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        if scripts/setup-debian.sh "$package" >&2; then
            printf '%s\n' "$no_ensurepip"
            return
        fi
        fail "$no_ensurepip cannot make virtual environments: install $package"
    fi
    fail "no Python 3.11 or newer found${too_old:+ (too old:$too_old)};" \
        "install one (Debian 12 or newer: apt-get install python3 python3-venv) or name it: PYTHON=..."
}

# Fingerprint of the arguments and of the files among them.
fingerprint() {
    local item
    for item in "$@"; do
        if [[ -f $item ]]; then cat -- "$item"; else printf '%s\n' "$item"; fi
    done | sha256sum | cut -d' ' -f1
}

# is_current VENV NAME KEY: the step NAME was done in VENV for this KEY.
is_current() {
    [[ -x $1/bin/python && -f $1/.done-$2 && $(<"$1/.done-$2") == "$3" ]]
}

# mark_current VENV NAME KEY
mark_current() { printf '%s\n' "$3" >"$1/.done-$2"; }

# Waits until no other setup script works on VENV; the lock ends with the calling script.
lock_venv() {
    command -v flock >/dev/null || return 0
    mkdir -p .cache
    exec 9>".cache/${1//\//-}.lock"
    if ! flock --nonblock 9; then
        say "waiting for another set-up of $1"
        flock 9
    fi
}

# make_venv VENV: makes it, unless it is there and works where it lies, and brings a recent pip.
make_venv() {
    local venv=$1 python
    # Its commands and editable installs name the directory that it was made in.
    if grep -qs '^command = ' "$venv/pyvenv.cfg" && ! grep -qxE "command = .* $PWD/$venv" "$venv/pyvenv.cfg"; then
        say "$venv was made elsewhere: making it anew"
        rm -rf -- "$venv"
    fi
    if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        python=$(find_python)
        say "making $venv with $("$python" --version 2>&1)"
        rm -rf -- "$venv"
        "$python" -m venv "$PWD/$venv"
    fi
    # Older ones do not know dependency groups.
    if ! "$venv/bin/python" -c 'import pip; exit(tuple(map(int, pip.__version__.split(".")[:2])) < (25, 1))'; then
        say "bringing pip up to date in $venv"
        "$venv/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'
    fi
}

# begin VENV NAME KEY: ends the script if the step is done; else leaves VENV made, and locked.
begin() {
    if is_current "$@"; then exit 0; fi
    lock_venv "$1"
    if is_current "$@"; then exit 0; fi # another script did it meanwhile
    make_venv "$1"
}

# pip_install VENV ARGUMENTS...: pip install, with one line of progress instead of a wall of text.
pip_install() {
    local venv=$1
    shift
    "$venv/bin/python" scripts/pip-progress.py "$@"
}
