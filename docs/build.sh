#!/usr/bin/env bash
# Builds the manual into build/docs. Every warning is an error, such as a link without a target.
#
#   bash docs/build.sh
#   bash docs/build.sh --site-dir /tmp/manual      # options of `mkdocs build`

set -euo pipefail
cd "$(dirname "$0")/.."
. ./path.sh
need_packages requirements/docs.txt
# Keeps the theme from printing an announcement about other programs.
export NO_MKDOCS_2_WARNING=1
python -m mkdocs build --quiet --strict --config-file mkdocs.yml "$@"
echo "built: open build/docs/index.html, or that of --site-dir" >&2
