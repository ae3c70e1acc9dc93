# shellcheck shell=bash
# Sourced by path.sh: puts a Python environment on PATH that satisfies requirements.txt.
#
# The active environment is used unchanged if it satisfies all requirements. Otherwise the first run creates .venv in
# the root (or the folder WENET_UIO_VENV) and installs the requirements there. This script installs nothing into an
# environment that it did not create. Its own environments have a folder .wenet_uio, with a stamp for each requirements
# file that was installed. The scripts of an installed package use the environment of the package, and install nothing.

# need_packages [FILE…]: put an environment on PATH that satisfies requirements.txt of the project and every FILE.
need_packages() {
  local venv=${WENET_UIO_VENV:-$WENET_UIO_ROOT/.venv} active=${VIRTUAL_ENV:-${CONDA_PREFIX:-}} lacks
  set -- "$WENET_UIO_ROOT/requirements.txt" "$@"
  if _is_installed; then
    _check_installed "$@"
    return
  fi
  if [[ -z $active || $active == "$venv" ]] && _has_packages "$venv" "$@"; then
    _activate "$venv"
  elif ! lacks=$(_lacks python "$@"); then
    if [[ -n $active && $active != "$venv" ]]; then
      echo "setup_env: the active environment $active lacks $lacks; using $venv" >&2
    fi
    _has_packages "$venv" "$@" || _install "$venv" "$@" || return 1
    _activate "$venv"
  fi
}

# Whether this is not a clone, but the copy that `pip install .` made.
_is_installed() {
  [[ -e $WENET_UIO_ROOT/../__main__.py ]]
}

_check_installed() {
  local home lacks
  home=$(python -m wenet_uio recipe home 2>/dev/null) || home=none
  if [[ ! $home -ef $WENET_UIO_ROOT ]]; then
    echo "error: $(type -P python || echo python) has not the wenet_uio of $WENET_UIO_ROOT;" \
      "activate the environment where wenet_uio is installed" >&2
    return 1
  elif ! lacks=$(_lacks python "$@"); then
    echo "error: $(type -P python) lacks $lacks; pip install -r ${*: -1}" >&2
    return 1
  fi
}

_activate() {
  if [[ ${VIRTUAL_ENV:-} != "$1" || :$PATH: != *":$1/bin:"* ]]; then
    export VIRTUAL_ENV=$1 PATH="$1/bin:$PATH"
  fi
}

# Whether environment $1 satisfies the files $2…: by its stamps if this script created it, else by its packages.
_has_packages() {
  local venv=$1 file
  shift
  [[ -x $venv/bin/python ]] || return 1
  if [[ ! -d $venv/.wenet_uio ]]; then
    _lacks "$venv/bin/python" "$@" >/dev/null
    return
  fi
  for file in "$@"; do
    [[ -e $(_stamp "$venv" "$file") ]] || return 1
  done
}

_stamp() {
  local digest
  digest=$(sha256sum <"$2")
  echo "$1/.wenet_uio/${digest%% *}"
}

# Prints the requirements of the files $2… that the Python $1 lacks; fails if there are any.
_lacks() {
  "$1" "$WENET_UIO_ROOT/tools/check_requirements.py" "${@:2}" 2>/dev/null
}

_install() (
  venv=$1 mark=$1/.wenet_uio/installing
  shift
  if [[ -e $venv && ! -d $venv/.wenet_uio ]]; then
    echo "error: $venv was not created by setup_env.sh and lacks $(_lacks "$venv/bin/python" "$@");" \
      "install that there, or set WENET_UIO_VENV to a new folder" >&2
    exit 1
  fi
  mkdir -p "$(dirname "$venv")"
  exec 9>"$venv.lock"
  if ! flock --nonblock 9; then
    echo "setup_env: waiting for another run that installs into $venv" >&2
    flock 9
  fi
  if _has_packages "$venv" "$@"; then exit 0; fi
  trap 'exit 130' INT TERM # leaves the mark: the next run creates the environment again
  if [[ ! -x $venv/bin/python || -e $mark ]]; then
    python=$(_find_python) || exit 1
    echo "setup_env: creating $venv with $python" >&2
    mkdir -p "${mark%/*}"
    touch "$mark"
    find "$venv" -mindepth 1 ! -path "${mark%/*}" ! -path "$mark" -delete
    "$python" -m venv "$venv" || exit 1
  fi
  touch "$mark"
  for file in "$@"; do
    if [[ -e $(_stamp "$venv" "$file") ]]; then continue; fi
    echo "setup_env: installing $file (once; torch with CUDA libraries takes several GB)" >&2
    if ! "$venv/bin/python" -m pip install --disable-pip-version-check --quiet -r "$file" >&2; then
      rm "$mark"
      echo "error: could not install $file into $venv (see the message of pip above)" >&2
      exit 1
    fi
    touch "$(_stamp "$venv" "$file")"
  done
  rm "$mark"
)

_find_python() {
  local candidate
  for candidate in python3 python python3.{14,13,12,11,10}; do
    if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  echo "error: no Python 3.10 or newer with venv on PATH; install one (Debian, Ubuntu: apt install python3-venv)" >&2
  return 1
}

# $* are the arguments of the recipe that sources path.sh; --help needs no packages.
case " $* " in
  *" --help "* | *" -h "*) ;;
  *) need_packages ;;
esac
