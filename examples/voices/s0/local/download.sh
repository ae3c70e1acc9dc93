#!/usr/bin/env bash
# Downloads the three voices to a folder: 1.2 GB. GitHub generates the archives on request, so they have no digest:
# download.py notes that of the first download, such as data/corpus/kathleen.sha256. Of kerstin and nathalie no commit is
# known to us.
#
#   local/download.sh data/corpus

set -euo pipefail

# voice, branch or commit
versions="
kathleen c51cb971036a127359b43c621f26ca5081eab13e
kerstin refs/heads/master
nathalie refs/heads/master
"
while read -r voice version; do
  if [[ -z $voice ]]; then continue; fi
  download.py --unpack "https://github.com/rhasspy/dataset-voice-$voice/archive/$version.tar.gz" "$1/$voice"
done <<<"$versions"
