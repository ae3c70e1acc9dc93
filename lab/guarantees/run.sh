#!/usr/bin/env bash
# Runs the same trials over several data loaders and prints the table; see lab/guarantees/README.md.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/run.py" "$@"
