#!/usr/bin/env bash
# soak.sh MINUTES [--seed N] [--every SECONDS] [--folder FOLDER]: see tests/soak.py.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python -m tests.soak "$@"
