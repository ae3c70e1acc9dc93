#!/usr/bin/env bash
# Downloads AN4 to a folder: 64 MB. CMU gives no digest; the recordings are counted.
#
#   local/download.sh data/corpus

set -euo pipefail

download.py --unpack --count 'wav/an4_clstk/*/*.sph=948' --count 'wav/an4test_clstk/*/*.sph=130' \
  http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz "$1"
