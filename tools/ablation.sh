#!/usr/bin/env bash
# Trains and scores one model for each row of an ablation and each seed, and writes a table and a plot of the results.
#
#   cd examples/voices/s0; . ../../../path.sh; bash run.sh --stop_stage 3
#   ablation.sh --seeds "1 2 3" conf/train_conformer.yaml conf/train_cr_ctc.yaml half=conf/train_cr_ctc.yaml,max_epoch=10
#
# It is called in the folder of a recipe whose stages 0 to 3 are done. A row is [NAME=]CONFIG[,KEY=VALUE…]; the values
# change the config as --override does. A second call goes on where the first one stopped, also inside an epoch if the
# config has save_interval. DIR/table.md, table.json and table.png are written after each model. A row that fails is named
# at the end; its output is in DIR/ROW/seed_N/log. A row whose config has model_avg is also decoded with the running average.

set -euo pipefail
. recipe.sh

dir=exp/ablation          # folder of the results
seeds="1 2 3"             # all rows are run with the first seed, then all with the second, and so on
tests="test"              # parts of data/ to score; a part with utt2lang is also scored by language
decode_modes="ctc_greedy_search attention_rescoring"
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
  local fields
  IFS=, read -r -a fields <<<"$1"
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

# trained_and_scored SEED: runs a row; the row and its config must be those of an earlier call
trained_and_scored() {
  local to=$dir/$name/seed_$1 modes=$decode_modes row TIMEFORMAT='%U %S'
  row="$config $override $(sha256sum <"$config")"
  mkdir -p "$to"
  if [[ -e $to/row && $(<"$to/row") != "$row" ]]; then
    die "$to is of another config or other values; remove it, or name this row differently: NAME=$config"
  fi
  echo "$row" >"$to/row"
  [[ ! -e $to/scored ]] || return 0
  [[ $(config_value model) != transducer ]] || modes=$rnnt_modes
  log "$name, seed $1"
  local options=(--config "$config" --override "$override" --dir "$to" --seed "$1" --decode_modes "$modes" --tests "$tests")
  # The CPU seconds of each start are added up: those of this shell's children.
  { time bash run.sh "${options[@]}" --stage 4 --stop_stage 4 >>"$to/log" 2>&1; } 2>>"$to/cpu_seconds" || return 1
  bash run.sh "${options[@]}" --stage 5 --stop_stage 5 >>"$to/log" 2>&1 || return 1
  if compgen -G "$to/running_*.pt" >/dev/null; then
    bash run.sh "${options[@]}" --stage 5 --stop_stage 5 --avg running --result_dir "$to/running" >>"$to/log" 2>&1 || return 1
  fi
  touch "$to/scored"
  ablation_table.py --tests "$tests" "$dir" "${names[@]}"
}

names=()
for row in "${ROWS[@]}"; do
  read_row "$row"
  [[ " ${names[*]} " != *" $name "* ]] || die "two rows are named $name: NAME=$config"
  names+=("$name")
done
failed=()
for seed in $seeds; do
  for row in "${ROWS[@]}"; do
    read_row "$row"
    trained_and_scored "$seed" || failed+=("$dir/$name/seed_$seed/log")
  done
done
((!${#failed[@]})) || die "failed: ${failed[*]}"
log "all rows are scored: $dir/table.md"
