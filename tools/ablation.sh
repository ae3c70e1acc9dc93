#!/usr/bin/env bash
# Trains and scores one model for each row of an ablation and each seed, and writes a table and a plot of the results.
#
#   cd examples/voices/s0; . ../../../path.sh; bash run.sh --stop_stage 3
#   ablation.sh --seeds "1 2 3" conf/train_conformer.yaml conf/train_cr_ctc.yaml half=conf/train_cr_ctc.yaml,max_epoch=10
#
# It is called in the folder of a recipe whose stages 0 to 3 are done. A row is [NAME=]CONFIG[,KEY=VALUE…]; the values
# change the config as --override does; commas in brackets belong to a value. A second call goes on where the first one
# stopped, also inside an epoch if the config has save_interval; with more parts in --tests or other --decode_modes it
# decodes what is missing. DIR/table.md, table.json and table.html are written after each model. A row that fails is named at
# the end; its output is in DIR/ROW/seed_N/log. A row whose config has model_avg is also decoded with the running average.
# The CPU time of a row has all starts of its training that ended by themselves or by Ctrl-C.

set -euo pipefail
. recipe.sh

dir=exp/ablation          # folder of the results
seeds="1 2 3"             # all rows are run with the first seed, then all with the second, and so on
tests="test"              # parts of data/ to score; a part with utt2lang is also scored by language
decode_modes="ctc_greedy_search attention_rescoring"  # separated by spaces
rnnt_modes="rnnt_greedy_search"  # decode modes of the rows whose model is a transducer
ROWS=() OPTIONS=()        # the rows are the arguments without --
while (($#)); do
  if [[ $1 == --*=* || $1 == --help || $1 == -h ]]; then
    OPTIONS+=("$1")
  elif [[ $1 == --* ]]; then
    OPTIONS+=("$1" "${2-}")
    (($# == 1)) || shift
  else
    ROWS+=("$1")
  fi
  shift
done
parse_options "${OPTIONS[@]}"
((${#ROWS[@]})) || die "name the configs of the rows: ablation.sh conf/a.yaml conf/b.yaml"
[[ -e run.sh ]] || die "$PWD has no run.sh: call ablation.sh in the folder of a recipe"

# read_row ROW: sets name, config and override
read_row() {
  local fields=("") place depth=0
  for ((place = 0; place < ${#1}; place++)); do
    case ${1:place:1} in
      '[' | '{') ((++depth)) ;;
      ']' | '}') ((depth--)) || true ;;
      ,)
        if ((depth == 0)); then
          fields+=("")
          continue
        fi
        ;;
    esac
    fields[-1]+=${1:place:1}
  done
  config=${fields[0]}
  name=$(basename "${1#*=}" .yaml)
  name=${name/.yaml,/,}
  if [[ $config == *=* ]]; then
    name=${config%%=*}
    config=${config#*=}
  fi
  override=${fields[*]:1}
  [[ -e $config ]] || die "row $1: $config is missing"
}

# trained SEED: trains a row; the row and its config must be those of an earlier call
trained() {
  local row TIMEFORMAT='%U %S'
  row="$config $override $(sha256sum <"$config")"
  mkdir -p "$to"
  if [[ -e $to/row && $(<"$to/row") != "$row" ]]; then
    die "$to is of another config or other values; remove it, or name this row differently: NAME=$config"
  fi
  echo "$row" >"$to/row"
  [[ ! -e $to/final.pt ]] || return 0
  log "$name, seed $1"
  { time bash run.sh "${options[@]}" --stage 4 --stop_stage 4 >>"$to/log" 2>&1; } 2>>"$to/cpu_seconds" || return 1
  # SIGTERM lets training end with status 0 before its last epoch.
  [[ -e $to/final.pt ]] || { echo "error: the training was stopped; call ablation.sh again" >>"$to/log" && return 1; }
}

# scored PART RESULTS OPTION…: decodes a part, unless RESULTS has it in the same modes
scored() {
  local result=$2/$1
  if [[ -e $result/scored && $(<"$result/scored") == "$modes" ]]; then return 0; fi
  bash run.sh "${options[@]}" --stage 5 --stop_stage 5 --decode_modes "$modes" --tests "$1" --result_dir "$result" "${@:3}" \
    >>"$to/log" 2>&1 || return 1
  echo "$modes" >"$result/scored"
  news=true
}

# trained_and_scored SEED: runs a row
trained_and_scored() {
  local to=$dir/$name/seed_$1 modes=$decode_modes part
  local options=(--config "$config" --override "$override" --dir "$to" --seed "$1")
  trained "$1" || return 1
  [[ $(config_value model) != transducer ]] || modes=$rnnt_modes
  words "$tests"
  for part in "${WORDS[@]}"; do
    # The best epochs come last, so that avg.pt is their mean.
    if compgen -G "$to/running_*.pt" >/dev/null; then scored "$part" "$to/running" --avg running || return 1; fi
    scored "$part" "$to" || return 1
  done
  if [[ -n $news ]]; then ablation_table.py --trust_recipe . --tests "$tests" "$dir" "${names[@]}"; fi
  news=
}

names=()
for row in "${ROWS[@]}"; do
  read_row "$row"
  [[ " ${names[*]} " != *" $name "* ]] || die "two rows are named $name: NAME=$config"
  names+=("$name")
done
failed=() stopped='' news=''
trap 'stopped=true' INT
for seed in $seeds; do
  for row in "${ROWS[@]}"; do
    read_row "$row"
    trained_and_scored "$seed" || failed+=("$dir/$name/seed_$seed/log")
    [[ -z $stopped ]] || die "stopped; another call goes on here"
  done
done
ablation_table.py --trust_recipe . --tests "$tests" "$dir" "${names[@]}" # other rows, or another order, than in the last call
((!${#failed[@]})) || die "failed: ${failed[*]}"
log "all rows are scored: $dir/table.md"
