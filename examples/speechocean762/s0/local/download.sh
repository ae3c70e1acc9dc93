#!/usr/bin/env bash
# Downloads speechocean762 (OpenSLR 101) to a folder: 520 MB. OpenSLR publishes no digest; the recordings are counted
# instead.
#
#   local/download.sh data/corpus

set -euo pipefail

download.py --unpack --count 'WAVE/*/*.WAV=5000' https://www.openslr.org/resources/101/speechocean762.tar.gz "$1"
