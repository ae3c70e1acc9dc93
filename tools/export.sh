#!/usr/bin/env bash
# Exports the averaged model of an experiment: DIR/final.zip and DIR/final_quant.zip (int8) for WeNet's C++ runtime, and
# with --onnx true DIR/onnx for its ONNX runtime and for sherpa-onnx. Each model is checked on test data before it is
# written. A model that WeNet's runtime does not run, such as a Whisper, has no final.zip.
#
#   export.sh --dir exp/conformer
#   export.sh --dir exp/u2++ --onnx true --chunk_size 16 --num_left_chunks 4

set -euo pipefail
. recipe.sh

dir=                      # experiment folder
data_type=raw             # type of the data list: raw or shard
check_part="test"         # part of data/ for the check of the exported models
onnx=false                # true: export to ONNX too
chunk_size=               # chunk of streaming ONNX models, encoder frames; default: 16 if the model can stream
num_left_chunks=4         # chunks of left context of streaming ONNX models
trust_code=false          # true: run any code that a train.yaml names; false: only that of local/ and conf/*.yaml of this recipe
parse_options "$@"
trusting

require "data/$check_part/data.list" "$dir/avg.pt"
python -m wenet_uio.bin.export_jit --config "$dir/train.yaml" --checkpoint "$dir/avg.pt" \
  --output_file "$dir/final.zip" --output_quant_file "$dir/final_quant.zip" \
  --check_data "data/$check_part/data.list" --data_type "$data_type" --if_possible "${TRUST[@]}"

if [[ $onnx == true ]]; then
  need_extra onnx
  python -m wenet_uio.bin.export_onnx --config "$dir/train.yaml" --checkpoint "$dir/avg.pt" --output_dir "$dir/onnx" \
    ${chunk_size:+--chunk_size "$chunk_size"} --num_decoding_left_chunks "$num_left_chunks" \
    --check_data "data/$check_part/data.list" --data_type "$data_type" "${TRUST[@]}"
fi
