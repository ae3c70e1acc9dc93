#!/usr/bin/env bash
# Downloads the three voices to a folder: 1.2 GB. GitHub generates the archives on request, so they have no digest.
#
#   local/download.sh data/corpus

set -euo pipefail

for voice in kathleen kerstin nathalie; do
  download.py --unpack "https://github.com/rhasspy/dataset-voice-$voice/archive/refs/heads/master.tar.gz" "$1/$voice"
done
