#!/usr/bin/env bash
# Averages the best checkpoints of an experiment or takes its running average, decodes and scores the test sets, and adds the error rates to its
# report.html and model card. By default it decodes with the modes that the family of the model names for recipes and that
# the model is trained for (decoding_defaults.py).
#
#   decode.sh --dir exp/conformer --average_num 5 --decode_modes "ctc_greedy_search attention_rescoring"
#   decode.sh --dir exp/u2++ --result_dir exp/u2++/chunk16 --decode_options "--decoding_chunk_size 16"

set -euo pipefail
. recipe.sh

dir=                      # experiment folder
data_type=raw             # type of the data lists: raw or shard
average_num=5             # number of checkpoints to average: those with the lowest validation loss
avg=best                  # best: mean of average_num checkpoints; with_start: with the model before fine-tuning; running: see model_avg
decode_modes=auto         # separated by spaces; auto: those of the family that the model is trained for
tests="test"              # parts of data/ to decode; with several, each has its own result folder
result_dir=               # folder of the results; default: the experiment folder
before=true               # of a run that started --from a model: compare with it on data/dev, and decode it too, into before/; false: neither
char=0                    # 1: error rate of ideographs and Latin words (CER of Mandarin); 0: of words (WER), and of characters (CER)
language=                 # ISO 639-1 code for the model card, and for models that are told one language: en; several: en,zh
ignored_words=            # file of words that scoring removes from references and hypotheses
nproc=                    # decoding processes; default: one for each GPU, or one
examples=true             # false: no examples.yaml, in which the page of the server finds sentences of data/dev for its visitors
trust_code=false          # true: run any code that a train.yaml names; false: only that of local/ and conf/*.yaml of this recipe
lm_order=0                # above 0: beam search also uses an n-gram model of data/train/text, with n-grams of up to so many units
decode_options=           # more options of recognize.py: "--context_list_path 'my names' --lm_weight 0.4 --length_bonus 0.8"
parse_options "$@"

words "$tests"
parts=("${WORDS[@]}")
for part in "${parts[@]}"; do require "data/$part/data.list"; done
require "$dir/train.yaml"
config=$dir/train.yaml
trusting
defaults=$(decoding_defaults.py "${TRUST[@]}" "$config")
mapfile -t defaults <<<"$defaults" # the modes, the options of the family, the modes with a language model
if [[ $decode_modes == auto ]]; then decode_modes=${defaults[0]}; fi
words "$decode_modes"
modes=("${WORDS[@]}")
words "$decode_options"
more=("${WORDS[@]}")
more+=("${TRUST[@]}")
if [[ " ${defaults[1]-} " == *" language "* && $language =~ ^[a-z]+$ ]]; then more=(--language "$language" "${more[@]}"); fi
if ((lm_order > 0)); then
  scored=
  for mode in "${modes[@]}"; do
    if [[ " ${defaults[2]-} " == *" $mode "* ]]; then scored=$mode; fi
  done
  [[ -n $scored ]] ||
    die "--lm_order $lm_order: no mode of '$decode_modes' uses a language model; this model has ${defaults[2]:-none that does}"
  require data/train/text
  need_extra lm
fi
case $avg in
  best) chosen=(--num "$average_num" --val_best) ;;
  with_start) chosen=(--num "$average_num" --val_best --with_start) ;;
  running) chosen=(--running) ;;
  *) die "--avg $avg: expected best, with_start or running" ;;
esac
# SIGTERM lets training end with status 0 before its last epoch.
[[ -e $dir/final.pt ]] || log "warning: $dir: training is not complete (no final.pt); stage 4 resumes it"
if [[ $before == true && -e $dir/init.yaml ]]; then # validation before the first step writes init.yaml
  if [[ -e data/dev/data.list ]]; then
    chosen+=(--dev_data data/dev/data.list --data_type "$data_type" --char "$char" "${TRUST[@]}")
    if [[ -n $language ]]; then chosen+=(--language "$language"); fi
  else
    log "data/dev/data.list is missing, so the model before fine-tuning is not compared with the average"
  fi
fi
python -m wenet_uio.bin.average_model --dst_model "$dir/avg.pt" --src_path "$dir" "${chosen[@]}"
[[ -n $nproc ]] || nproc=$(num_gpus)
# recognise CONFIG WEIGHTS LIST FOLDER OPTION…: decodes a data list
recognise() {
  local config=$1 weights=$2 list=$3 out=$4
  shift 4
  python -m wenet_uio.bin.recognize --modes "${modes[@]}" --config "$config" --checkpoint "$weights" \
    --data_type "$data_type" --test_data "$list" --beam_size 10 --batch_size 32 --ctc_weight 0.3 \
    --nproc "$((nproc > 0 ? nproc : 1))" --result_dir "$out" "${more[@]}" "$@"
}

# decode CONFIG WEIGHTS FOLDER: decodes and scores each part; with several parts, each has its own folder in FOLDER
decode() {
  local part out lm=()
  if ((lm_order > 0)); then # of the units of this model: the one before fine-tuning may have others
    lm=(--lm_path "$3/lm.arpa")
    make_lm.py --config "$1" --order "$lm_order" "${TRUST[@]}" data/train/text "${lm[1]}"
  fi
  for part in "${parts[@]}"; do
    out=$3
    if ((${#parts[@]} > 1)); then
      log "$part"
      out+=/$part
    fi
    recognise "$1" "$2" "data/$part/data.list" "$out" "${lm[@]}"
    score.sh --ref "data/$part/text" --dir "$out" --modes "${modes[*]}" --char "$char" --language "$language" \
      --ignored_words "$ignored_words"
  done
}

# unchanged MARK CALL FILE…: whether MARK holds CALL and is newer than each file
unchanged() {
  local mark=$1 call=$2 file
  shift 2
  [[ -e $mark && $(<"$mark") == "$call" ]] || return 1
  for file in "$@"; do [[ $mark -nt $file ]] || return 1; done
}

results=${result_dir:-$dir}
if [[ $before == true && -e $dir/init.yaml ]]; then
  # A model of another package decodes as it was converted: Whisper with padding to 30 s, for example.
  source=$dir/from/train.yaml weights=$dir/from/final.pt
  [[ -e $source ]] || source=$config weights=$dir/init.pt
  mark=$results/before/decoded
  lists=("${parts[@]/#/data/}")
  files=("$source" "$weights" "${lists[@]/%//data.list}")
  if ((lm_order > 0)); then files+=(data/train/text); fi
  for word in "${more[@]}"; do # such as the file of hot words
    if [[ -f $word ]]; then files+=("$word"); fi
  done
  call=$(printf '%q ' "${parts[@]}" "${modes[@]}" "$data_type" "$char" "$language" "$ignored_words" "$lm_order" "${more[@]}")
  if unchanged "$mark" "$call" "${files[@]}"; then
    log "before fine-tuning: decoded already ($results/before)"
  else
    log "before fine-tuning ($results/before)"
    decode "$source" "$weights" "$results/before"
    printf '%s\n' "$call" >"$mark"
  fi
  log "after fine-tuning ($results)"
fi
decode "$config" "$dir/avg.pt" "$results"
if [[ $examples == false ]]; then rm -f "$dir/examples.yaml"; fi
if python -c 'import wenet_uio.addons.publish' 2>/dev/null; then # the add-on that writes reports may be gone
  if [[ -e data/dev/data.list && -e data/dev/text ]]; then # the first of dev tell how far confidences are to be trusted
    sample=$results/calibration
    mkdir -p "$sample"
    if [[ $data_type == raw ]]; then first=100; else first=1; fi # utterances, or tar archives
    head -n "$first" data/dev/data.list >"$sample/data.list"
    cp data/dev/text "$sample/text"
    log "confidences of dev ($sample)"
    recognise "$config" "$dir/avg.pt" "$sample/data.list" "$sample" --token_times
  fi
  examples_of=()
  if [[ $examples == true && -e data/dev/text && -e data/dev/data.list ]] && python -c 'import wenet_uio.addons.listen' 2>/dev/null; then
    examples_of=(--examples_of data/dev --data_type "$data_type")
  fi
  report_run.py "${TRUST[@]}" --char "$char" ${language:+--language "$language"} "${examples_of[@]}" "$dir"
fi
