# Shared by scripts/demo and scripts/test; sourced, never run. Finds a Python, makes .venv, installs into it.
# Written for bash 3.2 (macOS) as well as for current ones.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv="$top/.venv"
setup_log="$venv/setup.log"

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PYTHONUTF8=1
# An activated environment, PYTHONPATH or PYTHONHOME of the caller must not leak into ours.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV

say() { printf '\n== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }
die() {
  printf '\nerror: %s\n' "$1" >&2
  shift
  while [ $# -gt 0 ]; do
    printf '       %s\n' "$1" >&2
    shift
  done
  exit 1
}

usable_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Prints the first Python that is new enough: $PYTHON, then the user's own python3, then versioned names.
find_python() {
  local candidate found=""
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14 python; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    if usable_python "$candidate"; then
      command -v "$candidate"
      return 0
    fi
    found="$found $candidate ($("$candidate" --version 2>&1 | head -n 1))"
  done
  die "Docs Copilot needs Python 3.11 or newer; found:${found:- none on PATH}." \
    "Install one (Debian and Ubuntu: apt install python3.11 python3.11-venv; macOS: brew install python)" \
    "or name it: PYTHON=/path/to/python3.11 $0"
}

child=""
stop_child() { [ -z "$child" ] || kill "$child" 2>/dev/null || true; }
trap stop_child EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run_logged MESSAGE COMMAND…: runs it with its output in the set-up log, shows that it is alive, and the log's end on failure.
run_logged() {
  local message=$1 began=$SECONDS next=10 rc=0 elapsed
  shift
  note "$message"
  printf '\n$ %s\n' "$*" >>"$setup_log"
  "$@" >>"$setup_log" 2>&1 </dev/null &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    elapsed=$((SECONDS - began))
    if [ "$elapsed" -ge "$next" ]; then
      next=$((elapsed + (elapsed < 30 ? 10 : 30)))
      note "  … ${elapsed} s: $(tail -n 1 "$setup_log" | tr '\r\t' '  ' | sed 's/^ *//' | cut -c 1-70)"
    fi
  done
  wait "$child" || rc=$?
  child=""
  [ "$rc" -eq 0 ] && return 0
  tail -n 15 "$setup_log" >&2
  die "This step failed (exit $rc): $*" "The whole log is $setup_log" "Run $0 again to go on from here."
}

# Changes whenever what is installed could: the requirements, the pins, the place, the Python.
setup_key() {
  { cat "$top/pyproject.toml" "$top/constraints.txt" && printf '%s\n' "$venv" && "$venv/bin/python" -V; } 2>/dev/null |
    cksum | cut -d ' ' -f 1
}

# Runs in the background, so that it may take the shell's place and a kill reaches pip itself.
# Without compiling: half the time of an install goes into modules that are never imported.
pip_install() {
  exec "$venv/bin/python" -m pip install --no-compile --progress-bar off -c "$top/constraints.txt" "$@"
}

# ensure_venv product|dev: .venv holds the product, and for dev what the tests need; nothing is done when it already does.
ensure_venv() {
  local extra=$1 python key torch free_kb began=$SECONDS
  # A virtual environment is tied to its absolute path: pip of a moved one would change the old place.
  if [ -x "$venv/bin/python" ] && usable_python "$venv/bin/python" &&
    [ "$("$venv/bin/python" -c 'import os, sys; print(os.path.realpath(sys.prefix))')" = "$venv" ] &&
    head -n 3 "$venv/bin/pip" 2>/dev/null | grep -qF "$venv/bin/python"; then
    key=$(setup_key)
    if [ -f "$venv/.installed-dev" ] && [ "$(cat "$venv/.installed-dev")" = "$key" ]; then return 0; fi
    if [ "$extra" = product ] && [ -f "$venv/.installed-product" ] &&
      [ "$(cat "$venv/.installed-product")" = "$key" ]; then return 0; fi
    say "Bringing .venv up to date"
  else
    python=$(find_python) || exit 1
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
      die "$python cannot make virtual environments: its venv module is incomplete." \
        "Debian and Ubuntu: sudo apt install python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    say "Setting up .venv with $("$python" -V 2>&1) (once; one to five minutes, mostly PyTorch)"
    free_kb=$(df -Pk "$top" | awk 'NR == 2 { print $4 }')
    [ "${free_kb:-9999999}" -gt 2500000 ] || note "Only $((free_kb / 1024)) MB are free here; about 2,000 MB are needed."
    # --clear: what a moved or interrupted set-up left is not repaired but made anew.
    "$python" -m venv --clear "$venv" || die "$python -m venv failed."
    key=$(setup_key)
  fi
  rm -f "$venv/.installed-product" "$venv/.installed-dev"
  torch=$(sed -n 's/^torch==/torch==/p' "$top/constraints.txt")
  # First and by itself: asked for with its exact version, pip takes a CPU build where this machine offers one.
  run_logged "installing PyTorch" pip_install "$torch"
  if [ "$extra" = dev ]; then
    run_logged "installing Docs Copilot, and what its tests need" pip_install -e "$top[dev]"
    printf '%s\n' "$key" >"$venv/.installed-dev"
  else
    run_logged "installing Docs Copilot" pip_install -e "$top"
  fi
  printf '%s\n' "$key" >"$venv/.installed-product"
  note "set up in $((SECONDS - began)) s"
}
