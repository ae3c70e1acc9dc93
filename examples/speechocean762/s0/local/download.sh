#!/usr/bin/env bash
# Downloads speechocean762 (OpenSLR 101) to a folder: 520 MB. OpenSLR publishes no digest, and none is known to us: the
# recordings are counted, and download.py notes the digest of the first download in data/corpus.sha256.
#
#   local/download.sh data/corpus

set -euo pipefail

download.py --unpack --count 'WAVE/*/*.WAV=5000' https://www.openslr.org/resources/101/speechocean762.tar.gz "$1"
