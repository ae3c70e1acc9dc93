#!/usr/bin/env bash
# Downloads FSDD 1.0.10 to a folder: 16 MB. GitHub generates the archive on request, so the digest is that
# of the recordings.
#
#   local/download.sh data/corpus

set -euo pipefail

download.py --unpack --count 'recordings/*.wav=3000' \
  --files_sha256 'recordings/*.wav=04e1baae96c6a26e39c623f2b01d0182ddae627ba0ac02a3cdc17ba2af99fd9b' \
  https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz "$1"
