#!/usr/bin/env bash
# Trains a model on data/train/data.list. A second run resumes from the newest checkpoint.
#
#   train.sh --config conf/train_conformer.yaml --dir exp/conformer --nproc 2
#   train.sh --config conf/finetune.yaml --from exp/conformer --dir exp/tuned
#   train.sh --config conf/train_conformer.yaml --dir exp/conformer --num_nodes 2 --node_rank 0 --rdzv_endpoint host0:29400
#
# With several machines, call the second form on each machine, with its own --node_rank. They share data/ and exp/.

set -euo pipefail
. recipe.sh

config=                   # train.yaml
override=                 # config keys to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # experiment folder
data_type=raw             # type of the data lists: raw or shard
from=                     # trained model to start from: folder or file, of this or another package; its units stay
units=                    # with --from: units file of other units, such as data/dict/units.txt of stage 2
trust_code=false          # true: run any code that a train.yaml names; false: only that of local/ and conf/*.yaml of this recipe
checkpoint=               # initial weights of a model of this config
train_engine=torch_ddp    # torch_ddp, torch_fsdp, deepspeed
deepspeed_config=         # default: wenet_uio/train/ds_stage2.json
hours=                    # hours of training, all starts together; default: max_hours of the config, or no limit
seed=777                  # of initial weights, order and augmentation
nproc=                    # training processes of each machine; default: one for each GPU, or one
num_workers=auto          # data workers of each training process; auto: one on a CPU, more for a GPU
prefetch=8                # batches that each data worker keeps ready
pin_memory=auto           # pinned memory for copies to a GPU: true, false, auto (if there is a GPU)
num_nodes=1               # number of machines: run stage 4 alone on each of them, in a shared folder
node_rank=0               # number of this machine, from 0
rdzv_endpoint=            # host:port of machine 0, for the rendezvous
max_restarts=0            # restarts of training after a process has failed
allow_data_changes=false  # true: resume although the training data has changed
forecast=false            # true: train some steps, say how long training will take, and write nothing
parse_options "$@"
trusting
gpus=$(num_gpus)
nproc=${nproc:-$((gpus > 0 ? gpus : 1))}
changes=()
if [[ $allow_data_changes == true ]]; then changes=(--allow_data_changes); fi
if [[ $forecast == true ]]; then changes+=(--forecast); fi
case $pin_memory in
  auto) ;;
  true) changes+=(--pin_memory) ;;
  false) changes+=(--no-pin_memory) ;;
  *) die "--pin_memory $pin_memory: expected true, false or auto" ;;
esac
[[ -z $units || -n $from ]] || die "--units $units: only a training that starts --from a model has units that can be others"
if [[ -n $units && -z $(config_value tokenizer) ]]; then override="tokenizer=char $override"; fi
override+=${hours:+ max_hours=$hours}
overriding
if ((num_nodes > 1)); then
  [[ -n $rdzv_endpoint ]] || die "--num_nodes $num_nodes needs --rdzv_endpoint host:port of machine 0"
  meet=(--rdzv_backend c10d --rdzv_endpoint "$rdzv_endpoint" --rdzv_id "${dir//\//_}" --node_rank "$node_rank"
    --rdzv_conf "is_host=$((node_rank == 0))")
else
  meet=(--standalone)
fi

# A key `data` in the config or in --override names the training data and replaces data/train/data.list.
train_data=(--train_data data/train/data.list)
if grep -qs '^data:' "$config" || [[ -n $(config_value data) ]]; then train_data=(); fi
require "${train_data[@]:1}" data/dev/data.list
# This launcher is torchrun with a short report of a failure.
exec python -m wenet_uio.bin.launch "${meet[@]}" --nnodes "$num_nodes" --nproc_per_node "$nproc" \
  --max_restarts "$max_restarts" -m wenet_uio.bin.train \
  --train_engine "$train_engine" ${deepspeed_config:+--deepspeed_config "$deepspeed_config"} \
  --config "$config" "${OVERRIDE[@]}" ${checkpoint:+--checkpoint "$checkpoint"} \
  "${TRUST[@]}" ${from:+--from "$from"} ${units:+--symbol_table "$units"} \
  --data_type "$data_type" "${train_data[@]}" --cv_data data/dev/data.list "${changes[@]}" \
  --seed "$seed" --num_workers "$num_workers" --prefetch "$prefetch" --model_dir "$dir" --tensorboard_dir "$dir/tensorboard"
