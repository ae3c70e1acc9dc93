#!/usr/bin/env bash
# Scores the result of each decode mode and prints a table of the error rates.
#
#   score.sh --ref data/test/text --dir exp/conformer --modes "ctc_greedy_search attention_rescoring"
#
# DIR/MODE/text -> DIR/MODE/wer, with alignments; without --char 1 also DIR/MODE/cer, the error rate of characters, and
# DIR/MODE/wer_normalized, that of words of normalised texts.

set -euo pipefail
. recipe.sh

ref=          # text of the test set
dir=          # result folder of recognize.py
modes=        # decode modes, separated by spaces
char=0        # 1: each ideograph and each Latin word (CER of Mandarin, MER of mixed texts); 0: words (WER), and characters (CER)
language=     # ISO 639-1 code; en: texts are normalised as Whisper normalises English, if its package is installed
ignored_words=  # file of words that scoring removes from references and hypotheses
parse_options "$@"

# scored UNIT VERBOSITY FILE OPTION…: scores the texts of a mode
scored() {
  compute-wer.py --unit="$1" --v="$2" ${ignored_words:+--ig="$ignored_words"} "${@:4}" "$ref" "$dir/$mode/text" >"$3.part"
  mv "$3.part" "$3"
}

# measure_of FILE: prints WER, CER or MER
measure_of() {
  # Counted -> characters and words (MER)
  sed -n 's/^Counted -> .* (\(.*\))$/\1/p' "$1"
}

# rate_of FILE: prints the rate, the number of units, substitutions, deletions, insertions
rate_of() {
  # Overall -> 4.63 % N=104765 C=100098 S=4522 D=145 I=181
  sed -n 's/^Overall -> \([0-9.na/]*\) % N=\([0-9]*\) C=[0-9]* S=\([0-9]*\) D=\([0-9]*\) I=\([0-9]*\)$/\1 \2 \3 \4 \5/p' "$1"
}

normalizer=basic
if [[ $language == en ]] && ((!char)); then
  if python -c 'import whisper_normalization' 2>/dev/null; then
    normalizer=english
  else
    log "not normalised as Whisper normalises English: pip install -r requirements/normalize.txt (or wenet_uio[normalize])"
  fi
fi

words "$modes"
for mode in "${WORDS[@]}"; do
  require "$ref" "$dir/$mode/text"
  if ((char)); then
    scored auto 1 "$dir/$mode/wer"
    rm -f "$dir/$mode/cer" "$dir/$mode/wer_normalized" # of an earlier run without --char 1
  else
    scored word 1 "$dir/$mode/wer"
    scored word 0 "$dir/$mode/wer_normalized" --normalize="$normalizer"
    scored char 0 "$dir/$mode/cer"
  fi
done

rates=("$(measure_of "$dir/${WORDS[0]}/wer") %")
if ((!char)); then
  rates+=("norm. %" "CER %")
  log "norm. %: WER of texts normalised by compute-wer.py --normalize $normalizer"
fi
printf "\n%-28s$(printf ' %%8s%.0s' "${rates[@]}") %8s %6s %6s %6s\n" "decode mode" "${rates[@]}" tokens sub del ins
for mode in "${WORDS[@]}"; do
  read -r rate tokens sub del ins < <(rate_of "$dir/$mode/wer")
  rates=("$rate")
  if ((!char)); then
    for file in wer_normalized cer; do rates+=("$(rate_of "$dir/$mode/$file" | cut -d' ' -f1)"); done
  fi
  printf "%-28s$(printf ' %%8s%.0s' "${rates[@]}") %8s %6s %6s %6s\n" "$mode" "${rates[@]}" "$tokens" "$sub" "$del" "$ins"
done
