#!/usr/bin/env bash
# Downloads LibriSpeech (OpenSLR 12) to a folder: the named training parts, and all of dev and test. In total 60 GB.
#
#   local/download.sh data/corpus "train-clean-100 train-clean-360"

set -euo pipefail

# part, utterances, bytes, sha256
parts="
dev-clean 2703 337926286 76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3
dev-other 2864 314305928 12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365
test-clean 2620 346663984 39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23
test-other 2939 328757843 d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29
train-clean-100 28539 6387309499 d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2
train-clean-360 104014 23049477885 146a56496217e96c14334a160df97fffedd6e0a04e66b9c5af0d40be3c792ecf
train-other-500 148688 30593501606 ddb22f27f96ec163645d53215559df6aa36515f26e01dd70798188350adcb6d2
"
while read -r part utterances bytes digest; do
  if [[ -z $part || -e $1/$part || " dev-clean dev-other test-clean test-other $2 " != *" $part "* ]]; then continue; fi
  # The top folder of every archive, LibriSpeech/, becomes .$part; it holds the part and some text files.
  download.py --unpack --count "$part/*/*/*.flac=$utterances" --size "$bytes" --sha256 "$digest" \
    "https://www.openslr.org/resources/12/$part.tar.gz" "$1/.$part"
  mv "$1/.$part/$part" "$1/$part"
  rm -r "$1/.$part"
done <<<"$parts"
