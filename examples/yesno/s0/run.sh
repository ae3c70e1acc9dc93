#!/usr/bin/env bash
# yesno: eight words a recording, each yes or no; 60 recordings of one speaker, 8 kHz.  Results: README.md
#
#   bash run.sh                                  # downloads the corpus (5 MB) and does everything
#   bash run.sh --data /corpora/yesno/waves_yesno   # takes an existing copy
#   bash run.sh --data_type shard --stage 3 --dir exp/shard    # the same from tar archives
#
# Stages: -1 download  0 data  1 cmvn  2 dict  3 lists  4 train  5 average, decode, score  6 export

set -euo pipefail
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option: --nj 32 sets nj.
stage=-1
stop_stage=6
data=                     # folder of an existing copy; default: stage -1 downloads one to data/corpus
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=10
nj=$(nproc)               # processes that prepare data
config=conf/train_conformer.yaml
override=                 # keys of the config to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # of the experiment; default: exp/<name of config>
checkpoint=               # weights that training starts from (fine-tuning)
train_engine=torch_ddp    # torch_ddp, torch_fsdp, deepspeed
deepspeed_config=         # default: tools/ds_stage2.json
nproc=                    # training processes of each machine; default: one a GPU, or one
num_workers=1             # of each training process, for data
num_nodes=1               # machines that train together: call --stage 4 --stop_stage 4 on each, in a shared folder
node_rank=0               # this one's number among them
rdzv_endpoint=            # host:port of machine 0, where they meet
max_restarts=0            # times that training is started again when a process of it dies
average_num=10            # checkpoints with the lowest validation loss
decode_modes="ctc_greedy_search ctc_prefix_beam_search attention attention_rescoring"
onnx=false                # true: export to ONNX too
parse_options "$@"
dir=${dir:-exp/$(basename "$config" .yaml)}

if [[ -z $data ]] && stage -1 "download"; then
  local/download.sh data/corpus
fi

if stage 0 "wav.scp and text of train, dev, test"; then
  local/prepare_data.py "$(from_caller "${data:-$PWD/data/corpus}")" data
fi

if stage 1 "mean and variance of the features"; then
  require data/train/wav.scp
  compute_cmvn_stats.py --num_workers "$nj" --train_config "$config" \
    --in_scp data/train/wav.scp --out_cmvn data/train/global_cmvn
fi

if stage 2 "units"; then
  require data/train/text
  make_dict.py --split_with_space data/train/text data/dict/units.txt
fi

if stage 3 "data lists ($data_type)"; then
  make_lists.sh --data_type "$data_type" --num_utts_per_shard "$num_utts_per_shard" --nj "$nj" \
    --parts "data/train data/dev data/test"
fi

if stage 4 "train ($dir)"; then
  require data/train/global_cmvn data/dict/units.txt
  train.sh --config "$config" --override "$override" --dir "$dir" --data_type "$data_type" --checkpoint "$checkpoint" \
    --train_engine "$train_engine" --deepspeed_config "$deepspeed_config" --nproc "$nproc" --num_workers "$num_workers" \
    --num_nodes "$num_nodes" --node_rank "$node_rank" --rdzv_endpoint "$rdzv_endpoint" --max_restarts "$max_restarts"
fi

if stage 5 "average, decode, score"; then
  decode.sh --dir "$dir" --data_type "$data_type" --average_num "$average_num" --modes "$decode_modes"
fi

if stage 6 "export"; then
  export.sh --dir "$dir" --data_type "$data_type" --onnx "$onnx"
fi
