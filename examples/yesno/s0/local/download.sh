#!/usr/bin/env bash
# Downloads yesno (OpenSLR 1) to a folder: 4.7 MB.
#
#   local/download.sh data/corpus

set -euo pipefail

download.py --unpack --count '*.wav=60' \
  --sha256 c3f49e0cca421f96b75b41640749167b52118f232498667ca7a5f9416aef8e73 \
  https://www.openslr.org/resources/1/waves_yesno.tar.gz "$1"
