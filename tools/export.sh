#!/usr/bin/env bash
# Exports the averaged model of an experiment to DIR/final.zip and int8 DIR/final_quant.zip for WeNet's C++ runtime, and
# to DIR/onnx for the same with ONNX and for sherpa-onnx. Each file is checked on test data before it is written.
#
#   export.sh --dir exp/conformer
#   export.sh --dir exp/u2++ --onnx true --chunk_size 16 --num_left_chunks 4

set -euo pipefail
. recipe.sh

dir=                      # of the experiment
data_type=raw             # of the list
check_part="test"         # part of data/ that the exported model is checked on
onnx=false                # true: ONNX too
chunk_size=               # of streaming ONNX models, in encoder frames; default: 16 where the model can stream
num_left_chunks=4         # chunks that they see to the left
parse_options "$@"

require "data/$check_part/data.list" "$dir/avg.pt"
python -m wenet_uio.bin.export_jit --config "$dir/train.yaml" --checkpoint "$dir/avg.pt" \
  --output_file "$dir/final.zip" --output_quant_file "$dir/final_quant.zip" \
  --check_data "data/$check_part/data.list" --data_type "$data_type"

if [[ $onnx == true ]]; then
  need_extra onnx
  python -m wenet_uio.bin.export_onnx --config "$dir/train.yaml" --checkpoint "$dir/avg.pt" --output_dir "$dir/onnx" \
    ${chunk_size:+--chunk_size "$chunk_size"} --num_decoding_left_chunks "$num_left_chunks" \
    --check_data "data/$check_part/data.list" --data_type "$data_type"
fi
