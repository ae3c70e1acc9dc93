#!/usr/bin/env bash
# Trains a model on data/train/data.list; run again, it goes on from its newest checkpoint.
#
#   train.sh --config conf/train_conformer.yaml --dir exp/conformer --nproc 2

set -euo pipefail
. recipe.sh

config=                   # train.yaml
override=                 # keys of it to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # of the experiment
data_type=raw             # of the lists
train_engine=torch_ddp
nproc=                    # processes; default: one a GPU, or one
num_workers=1             # of each process, for data
parse_options "$@"
gpus=$(num_gpus)
nproc=${nproc:-$((gpus > 0 ? gpus : 1))}

# A config may say itself what is trained on.
train_data=(--train_data data/train/data.list)
if grep -qs '^data:' "$config"; then train_data=(); fi
require "${train_data[@]:1}" data/dev/data.list
# torchrun that says a failure once.
python -m wenet_uio.bin.launch --standalone --nnodes 1 --nproc_per_node "$nproc" -m wenet_uio.bin.train \
  --train_engine "$train_engine" --config "$config" ${override:+--override_config $override} \
  --data_type "$data_type" "${train_data[@]}" --cv_data data/dev/data.list \
  --num_workers "$num_workers" --model_dir "$dir" --tensorboard_dir "$dir/tensorboard"
