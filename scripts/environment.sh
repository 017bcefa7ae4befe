# Sourced by the other scripts: the checkout's root as the working directory, its virtual environment in .venv,
# and the packages of the machine that are missing.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.."
environment=.venv

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 2
}

# Make .venv hold what this requirements file names, and the checkout itself; at once where it does already.
# Another folder gets what the file names alone.
make_environment() {
    local requirements=$1 environment=${2:-.venv} lock
    # Two scripts started together must not install into one folder.
    exec {lock}<pyproject.toml
    flock "$lock"
    if ! environment_is_made_from "$requirements"; then
        make_virtual_environment
        install_requirements "$requirements"
    fi
    exec {lock}<&-
}

environment_is_made_from() {
    [[ "$(cat "$(stamp_of "$1")" 2>/dev/null)" == "$(wanted_stamp_of "$1")" ]] &&
        "$environment/bin/python" -c '' 2>/dev/null
}

stamp_of() {
    printf '%s/made-from-%s' "$environment" "$1"
}

# pyproject.toml too: it says which commands the checkout installs.
wanted_stamp_of() {
    cat "$1" pyproject.toml | sha256sum
}

make_virtual_environment() {
    local python
    "$environment/bin/python" -m pip --version >/dev/null 2>&1 && return
    python=$(find_python) || fail "needs Python 3.11 or newer"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_venv_of "$python"
    "$python" -m venv --clear "$environment"
}

find_python() {
    local python
    for python in python3 python3.{14,13,12,11}; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$python"
            return
        fi
    done
    return 1
}

install_venv_of() {
    local package
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    install_packages "$package" || fail "needs Python's venv module: install the package $package"
}

install_requirements() {
    printf 'Installing %s into %s\n' "$1" "$environment" >&2
    run_pip --require-hashes -r "$1"
    [[ $environment != .venv ]] || run_pip --no-deps --no-build-isolation -e .
    wanted_stamp_of "$1" >"$(stamp_of "$1")"
}

run_pip() {
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" ||
        fail "pip could not install what is needed"
}

# False where packages cannot be installed; the caller then says what to do.
install_packages() {
    may_install_packages || return
    printf 'Installing %s\n' "$*" >&2
    update_package_lists
    # Never at the price of a package that the machine has, as MariaDB's is of MySQL's.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends --no-remove "$@" \
        >/dev/null
}

update_package_lists() {
    [[ -z ${package_lists_are_new-} ]] || return 0
    # One source that does not answer must not stop us while the others have the package.
    as_root apt-get update -qq >/dev/null || true
    package_lists_are_new=1
}

may_install_packages() {
    command -v apt-get >/dev/null && as_root true 2>/dev/null
}

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    else
        sudo -n "$@"
    fi
}
