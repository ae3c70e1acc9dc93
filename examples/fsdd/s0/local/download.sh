#!/usr/bin/env bash
# Downloads FSDD 1.0.10 to a folder: 16 MB. GitHub generates the archive on request, so it has no
# digest; the recordings are counted instead.
#
#   local/download.sh data/corpus

set -euo pipefail

download.py --unpack --count 'recordings/*.wav=3000' \
  https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz "$1"
