#!/usr/bin/env bash
# Scores the result of each decode mode (DIR/MODE/text -> DIR/MODE/wer) and prints a table of the error rates.
#
#   score.sh --ref data/test/text --dir exp/conformer --modes "ctc_greedy_search attention_rescoring"

set -euo pipefail
. recipe.sh

ref=          # text of the test set
dir=          # result folder of recognize.py
modes=        # decode modes, separated by spaces
char=0        # 1: character error rate (CER); 0: word error rate (WER)
ignored_words=  # file of words that scoring removes from references and hypotheses
parse_options "$@"

words "$modes"
for mode in "${WORDS[@]}"; do
  require "$ref" "$dir/$mode/text"
  compute-wer.py --char="$char" --v=1 ${ignored_words:+--ig="$ignored_words"} "$ref" "$dir/$mode/text" >"$dir/$mode/wer.part"
  mv "$dir/$mode/wer.part" "$dir/$mode/wer"
done

((char)) && rate=CER || rate=WER
printf '\n%-28s %8s %8s %6s %6s %6s\n' "decode mode" "$rate %" tokens sub del ins
for mode in "${WORDS[@]}"; do
  # Overall -> 4.63 % N=104765 C=100098 S=4522 D=145 I=181
  sed -n 's/^Overall -> \([0-9.]*\) % N=\([0-9]*\) C=[0-9]* S=\([0-9]*\) D=\([0-9]*\) I=\([0-9]*\)$/\1 \2 \3 \4 \5/p' \
    "$dir/$mode/wer" | {
    read -r percent tokens sub del ins
    printf '%-28s %8s %8s %6s %6s %6s\n' "$mode" "$percent" "$tokens" "$sub" "$del" "$ins"
  }
done
