#!/usr/bin/env bash
# Downloads AN4 to a folder: 64 MB, from NVIDIA's mirror, because CMU offers only http. CMU publishes no digest; ours is of
# the mirror's file.
#
#   local/download.sh data/corpus

set -euo pipefail

download.py --unpack --count 'wav/an4_clstk/*/*.sph=948' --count 'wav/an4test_clstk/*/*.sph=130' \
  --sha256 a0525579493735d32b60fb6fa5975dd0eaacde087b0a4eeb7f13b7ef33077b12 \
  https://dldata-public.s3.us-east-2.amazonaws.com/an4_sphere.tar.gz "$1"
