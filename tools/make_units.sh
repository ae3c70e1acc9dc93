#!/usr/bin/env bash
# Makes the units of data/train/text: DICT/units.txt, and for BPE pieces the sentencepiece model DICT/bpe.model.
#
#   make_units.sh --dict data/dict                  # characters
#   make_units.sh --dict data/dict --bpe 5000       # BPE pieces
#   make_units.sh --dict data/dict --langs "en:500 zh"   # also of each language in data/train/utt2lang, for the tokenizer
#                           # aggregate: the sentencepiece model data/dict/en.model, and the characters
#                           # data/dict/zh.units.txt

set -euo pipefail
. recipe.sh

dict=                     # output folder
bpe=                      # number of BPE pieces; default: the units are characters
non_lang_syms=            # file of symbols that are units, such as <NOISE>, one on each line
langs=                    # languages of the aggregate tokenizer, each with its number of pieces or for characters
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

words "$langs"
for lang in "${WORDS[@]}"; do
  require data/train/utt2lang
  code=${lang%%:*}
  texts=$dict/$code.text
  awk -v code="$code" 'NR == FNR { if ($2 == code) kept[$1]; next } $1 in kept' data/train/utt2lang data/train/text \
    > "$texts"
  [[ -s $texts ]] || die "--langs $lang: no text in data/train/text has the language $code in data/train/utt2lang"
  if [[ $lang == *:* ]]; then
    spm_train.py --input "$texts" --skip-ncols 1 --vocab_size "${lang#*:}" --model_prefix "$dict/$code"
  else
    make_dict.py "$texts" "$dict/$code.units.txt"
  fi
done
