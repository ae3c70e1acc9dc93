#!/usr/bin/env bash
# Averages the best checkpoints of an experiment, decodes the test sets with them and scores what came out; the error
# rates go into its report.html too.
#
#   decode.sh --dir exp/conformer --average_num 5 --decode_modes "ctc_greedy_search attention_rescoring"
#   decode.sh --dir exp/u2++ --result_dir exp/u2++/chunk16 --decode_options "--decoding_chunk_size 16"

set -euo pipefail
. recipe.sh

dir=                      # of the experiment
data_type=raw             # of the list
average_num=5             # checkpoints with the lowest validation loss
decode_modes=attention_rescoring
tests="test"              # parts of data/ that are decoded; the results of several go to folders of their own
result_dir=               # where results go; default: the experiment
char=0                    # 1: characters are counted (CER), 0: words (WER)
ignored_words=            # file of words that do not count, in references nor hypotheses
nproc=                    # processes of each machine; default: one a GPU, or one
decode_options=           # further ones of recognize.py: "--context_list_path names --lm_path lm.arpa"
parse_options "$@"

for test in $tests; do require "data/$test/data.list"; done
require "$dir/train.yaml"
python -m wenet_uio.bin.average_model --dst_model "$dir/avg.pt" --src_path "$dir" --num "$average_num" --val_best
[[ -n $nproc ]] || nproc=$(num_gpus)
for test in $tests; do
  out=${result_dir:-$dir}
  if [[ $tests != "$test" ]]; then
    log "$test"
    out+=/$test
  fi
  # shellcheck disable=SC2086 # lists
  python -m wenet_uio.bin.recognize --modes $decode_modes --config "$dir/train.yaml" --checkpoint "$dir/avg.pt" \
    --data_type "$data_type" --test_data "data/$test/data.list" --beam_size 10 --batch_size 32 --ctc_weight 0.3 \
    --nproc "$((nproc > 0 ? nproc : 1))" --result_dir "$out" $decode_options
  score.sh --ref "data/$test/text" --dir "$out" --modes "$decode_modes" --char "$char" \
    --ignored_words "$ignored_words"
done
report_run.py "$dir"
