#!/usr/bin/env bash
# Trains a model on data/train/data.list; run again, it goes on from its newest checkpoint.
#
#   train.sh --config conf/train_conformer.yaml --dir exp/conformer --nproc 2
#   train.sh --config conf/train_conformer.yaml --dir exp/conformer --num_nodes 2 --node_rank 0 --rdzv_endpoint host0:29400
#
# With several machines the second is called on each of them, with its own --node_rank; they share data/ and exp/.

set -euo pipefail
. recipe.sh

config=                   # train.yaml
override=                 # keys of it to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # of the experiment
data_type=raw             # of the lists
checkpoint=               # weights that training starts from (fine-tuning)
train_engine=torch_ddp    # torch_ddp, torch_fsdp, deepspeed
deepspeed_config=         # default: wenet_uio/train/ds_stage2.json
nproc=                    # processes of each machine; default: one a GPU, or one
num_workers=1             # of each training process, for data
num_nodes=1               # machines that train together: call --stage 4 --stop_stage 4 on each, in a shared folder
node_rank=0               # this one's number among them
rdzv_endpoint=            # host:port of machine 0, where they meet
max_restarts=0            # times that training is started again when a process of it dies
allow_data_changes=false  # true: a run goes on with data that is not what it began with
parse_options "$@"
gpus=$(num_gpus)
nproc=${nproc:-$((gpus > 0 ? gpus : 1))}
changes=()
if [[ $allow_data_changes == true ]]; then changes=(--allow_data_changes); fi
if ((num_nodes > 1)); then
  [[ -n $rdzv_endpoint ]] || die "--num_nodes $num_nodes needs --rdzv_endpoint host:port of machine 0"
  meet=(--rdzv_backend c10d --rdzv_endpoint "$rdzv_endpoint" --rdzv_id "${dir//\//_}" --node_rank "$node_rank"
    --rdzv_conf "is_host=$((node_rank == 0))")
else
  meet=(--standalone)
fi

# A config may say itself what is trained on.
train_data=(--train_data data/train/data.list)
if grep -qs '^data:' "$config"; then train_data=(); fi
require "${train_data[@]:1}" data/dev/data.list
# torchrun that says a failure once.
exec python -m wenet_uio.bin.launch "${meet[@]}" --nnodes "$num_nodes" --nproc_per_node "$nproc" \
  --max_restarts "$max_restarts" -m wenet_uio.bin.train \
  --train_engine "$train_engine" ${deepspeed_config:+--deepspeed_config "$deepspeed_config"} \
  --config "$config" ${override:+--override_config $override} ${checkpoint:+--checkpoint "$checkpoint"} \
  --data_type "$data_type" "${train_data[@]}" --cv_data data/dev/data.list "${changes[@]}" \
  --num_workers "$num_workers" --model_dir "$dir" --tensorboard_dir "$dir/tensorboard"
