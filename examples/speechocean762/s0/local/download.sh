#!/usr/bin/env bash
# Downloads speechocean762 (OpenSLR 101) to a folder: 520 MB. OpenSLR gives no digest; the recordings are counted.
# OPENSLR names a mirror, such as https://openslr.elda.org/resources.
#
#   local/download.sh data/corpus

set -euo pipefail

download.py --unpack --count 'WAVE/*/*.WAV=5000' \
  "${OPENSLR:-https://www.openslr.org/resources}/101/speechocean762.tar.gz" "$1"
