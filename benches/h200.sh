#!/bin/bash
# Owns: the figures of one large GPU at the released geometry, on made-up checkpoints: its self-test with matrix units,
#   resident and streamed decode, prompts, packed records; one JSON file a section.
# Refuses: a machine without the named adapter, and without room for the checkpoints.
# Invariants: a section whose result is there is not run again; ratios are taken within one section.
# Usage: benches/h200.sh SS DIR OUT [SECTION...]
#   SS   the release binary      DIR  a folder on the disk to be measured, 60 GB free      OUT  where results go
# Environment: ADAPTER (a part of the adapter's name, default NVIDIA), LAYERS (default 24), FEW (default 8), TOKENS (default 128).
set -euo pipefail

readonly SS=$1 DIR=$2 OUT=$3
shift 3
readonly ADAPTER=${ADAPTER:-NVIDIA} LAYERS=${LAYERS:-24} FEW=${FEW:-8} TOKENS=${TOKENS:-128}
export SS_HOME=$DIR/home
mkdir -p "$DIR" "$OUT" "$SS_HOME"

# Runs a section once: its command writes JSON to standard output and the table to standard error.
section() {
    local name=$1
    shift
    [ ! -s "$OUT/$name.json" ] || return 0
    [ ${#WANTED[@]} -eq 0 ] || [[ " ${WANTED[*]} " == *" $name "* ]] || return 0
    local started=$SECONDS
    echo "== $name: $*" >&2
    if "$@" >"$OUT/$name.part" 2> >(tee "$OUT/$name.log" >&2); then
        mv "$OUT/$name.part" "$OUT/$name.json"
    else
        echo "== $name failed" >&2
    fi
    echo "== $name: $((SECONDS - started)) s" >&2
}

# A checkpoint of $1 layers of the released geometry.
model() {
    [ -e "$DIR/made-$1/model.safetensors.index.json" ] ||
        section "synth-$1" "$SS" synth "$DIR/made-$1" --layers "$1" --threads 16 --json
    # What is not on the disk yet would be written while it is measured.
    sync -f "$DIR"
}

bench() {
    "$SS" bench --adapter "$ADAPTER" --json "$@"
}

# Lays out records; its words go to standard error, a result to standard output.
pack() {
    "$SS" pack "$1" >&2
    echo '{"packed": true}'
}

# Holds every operation against its twin; what fails is in the result.
tested() {
    "$SS" selftest --adapter "$ADAPTER" --json "$@" || true
}

readonly WANTED=("$@")

# Whether prompts may be read with matrix units: `ss bench` uses them only where they pass.
section selftest-units tested --matrix-units on

model "$FEW"
# Decode, resident: submissions, time of a token, flat in layers and in context.
section decode-few bench --model "$DIR/made-$FEW" --slots all -p 0 -n 256 -d 0,2100 -r 3 --profile
section decode-deep bench --model "$DIR/made-$FEW" --slots all -p 0 -n 128 -d 4096,32768,131072 -r 2 --prefill-pass 2048
# Where its time goes, kernel by kernel.
section kernels bench --model "$DIR/made-$FEW" --slots all -p 0 -n 256 -d 2100 -r 3 --profile-kernels
# Prompts, resident.
section prompt bench --model "$DIR/made-$FEW" --slots all -p 2048,8192 -n 0 -r 2 --prefill-pass 2048 --profile
section prompt-plain bench --model "$DIR/made-$FEW" --slots all -p 2048 -n 0 -r 2 --prefill-pass 2048 --matrix-units off
section prompt-exact bench --model "$DIR/made-$FEW" --slots all -p 2048 -n 0 -r 2 --prefill-pass 2048 --arithmetic exact
# Packed records against nine pieces, cold.
section pieces bench --model "$DIR/made-$FEW" --slots floor -p 2048 -n 64 -r 2 --prefill-pass 2048 --io direct --no-pack
section pack pack "$DIR/made-$FEW"
section packed bench --model "$DIR/made-$FEW" --slots floor -p 2048 -n 64 -r 2 --prefill-pass 2048 --io direct
# Decode, streamed: a quarter of the experts.
section streamed bench --model "$DIR/made-$FEW" --slots 25% -p 0 -n "$TOKENS" -r 2 --io direct --profile
section streamed-plain bench --model "$DIR/made-$FEW" --slots 25% -p 0 -n "$TOKENS" -r 2 --io direct --profile --no-lookahead
# The same from a disk of 3.7 GB/s, and from records in host memory paced like one of 17.3 GB/s.
section streamed-3.7 bench --model "$DIR/made-$FEW" --slots 25% -p 0 -n "$TOKENS" -r 2 --io direct --profile \
    --disk-gbps 3.7 --disk-latency-us 80
section streamed-17.3 bench --model "$DIR/made-$FEW" --slots 25% -p 0 -n "$TOKENS" -r 2 --profile \
    --ram-cache-gb all --preload --throttle-ram --disk-gbps 17.3 --disk-latency-us 80
model "$LAYERS"
section decode bench --model "$DIR/made-$LAYERS" --slots all -p 2048 -n 256 -r 3 --prefill-pass 2048 --profile
