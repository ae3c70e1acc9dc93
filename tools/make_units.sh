#!/usr/bin/env bash
# Makes the units of data/train/text: DICT/units.txt, and for BPE pieces the sentencepiece model DICT/bpe.model.
#
#   make_units.sh --dict data/dict                  # characters
#   make_units.sh --dict data/dict --bpe 5000       # BPE pieces

set -euo pipefail
. recipe.sh

dict=                     # output folder
bpe=                      # number of BPE pieces; default: the units are characters
non_lang_syms=            # file of symbols that are units, such as <NOISE>, one on each line
parse_options "$@"

require data/train/text
symbols=()
if [[ -n $non_lang_syms ]]; then symbols=(--non-lang-syms "$non_lang_syms"); fi
model=()
if [[ -n $bpe ]]; then
  spm_train.py "${symbols[@]}" --input data/train/text --skip-ncols 1 --vocab_size "$bpe" --model_prefix "$dict/bpe"
  model=(--bpe-model "$dict/bpe.model")
fi
make_dict.py "${model[@]}" "${symbols[@]}" data/train/text "$dict/units.txt"
