#!/bin/bash
# Owns: the figures of one large GPU at the released geometry, on made-up checkpoints: its self-test with matrix units,
#   resident and streamed decode, prompts, a second disk, packed records; one JSON file a section.
# Refuses: a machine without the named adapter, and without room for the checkpoints.
# Invariants: a section whose result is there is not run again; ratios are taken within one section.
# Usage: benches/h200.sh SS DIR OUT [SECTION...]
#   SS   the release binary      DIR  a folder on the disk to be measured, 60 GB free      OUT  where results go
# Environment: ADAPTER (a part of the adapter's name, default NVIDIA), MORE and FEW (layers of the two checkpoints, 8 and 4, whose
#   difference is what a layer takes), TOKENS (default 128), MOST (seconds of a section, default 100).
set -euo pipefail

readonly SS=$1 DIR=$2 OUT=$3
shift 3
readonly ADAPTER=${ADAPTER:-NVIDIA} MORE=${MORE:-8} FEW=${FEW:-4} TOKENS=${TOKENS:-128} MOST=${MOST:-100}
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
    timeout --signal=INT "$MOST" "$SS" bench --adapter "$ADAPTER" --json "$@"
}

# Lays out records; its words go to standard error, a result to standard output.
pack() {
    timeout --signal=INT "$MOST" "$SS" pack "$@" >&2
    # Else it is written while it is read.
    sync -f "$DIR"
    echo '{"packed": true}'
}

# Runs a command while there is a second copy of the smaller checkpoint.
copied() {
    [ -e "$DIR/made-$FEW-copy" ] || cp -r --sparse=always "$DIR/made-$FEW" "$DIR/made-$FEW-copy"
    "$@"
}

# Holds every operation against its twin; what fails is in the result.
tested() {
    "$SS" selftest --adapter "$ADAPTER" --json "$@" || true
}

# Bytes a second of the disk itself, past the system's cache: of the file that takes the most of it (tables of n-grams are
# mostly holes) up to 2 GB, in reads of 4 MiB by 12 processes.
disk() {
    local file count begin lanes=()
    file=$(find "$DIR/made-$MORE" -name '*.safetensors' -printf '%b %p\n' | sort -n | tail -1 | cut -d' ' -f2-)
    count=$(($(stat -c %s "$file") / (12 * 4194304)))
    [ "$count" -le 40 ] || count=40
    begin=$EPOCHREALTIME
    for lane in {0..11}; do
        dd if="$file" of=/dev/null bs=4M iflag=direct skip=$((lane * count)) count="$count" 2>/dev/null &
        lanes+=($!)
    done
    # By name: the section's own log is a process in the background, too.
    wait "${lanes[@]}"
    awk -v begin="$begin" -v end="$EPOCHREALTIME" -v reads=$((12 * count)) \
        'BEGIN { printf "{\"gigabytes_per_second\": %.2f}\n", reads * 4.194304e-3 / (end - begin) }'
}

readonly WANTED=("$@")

# Whether prompts may be read with matrix units: `ss bench` uses them only where they pass.
section selftest-units tested --matrix-units on

for layers in "$FEW" "$MORE"; do
    model "$layers"
    # Decode, resident: submissions, time of a token.
    section "decode-$layers" bench --model "$DIR/made-$layers" --slots all -p 0 -n 256 -d 2100 -r 3 --profile
    # Prompts, resident.
    section "prompt-$layers" bench --model "$DIR/made-$layers" --slots all -p 2048,8192 -n 0 -r 2 --prefill-pass 2048 --profile
    section "prompt-exact-$layers" bench --model "$DIR/made-$layers" --slots all -p 2048 -n 0 -r 2 --prefill-pass 2048 \
        --arithmetic exact
done
# Decode: flat in context, and where its time goes, kernel by kernel.
section decode-deep bench --model "$DIR/made-$FEW" --slots all -p 0 -n 128 -d 4096,32768,131072 -r 2 --prefill-pass 2048
section kernels bench --model "$DIR/made-$FEW" --slots all -p 0 -n 256 -d 2100 -r 3 --profile-kernels
section prompt-plain bench --model "$DIR/made-$FEW" --slots all -p 2048 -n 0 -r 2 --prefill-pass 2048 --matrix-units off
# Decode, streamed: a quarter of the experts, from the disk; with everything read early that is expected, and with nothing.
# Without `--profile`, for which each submission is waited for.
section disk disk
for how in "" -always -plain; do
    case $how in
    -always) flags=(--lookahead-always) ;;
    -plain) flags=(--no-lookahead) ;;
    *) flags=() ;;
    esac
    streamed=(bench --model "$DIR/made-$MORE" --slots 25% -p 0 -n "$TOKENS" -r 2 "${flags[@]}")
    section "streamed$how" "${streamed[@]}" --io direct
    # From records in host memory, paced like disks of 3.7 and 17.3 GB/s.
    for gbps in 3.7 17.3; do
        section "streamed-ram-$gbps$how" "${streamed[@]}" --ram-cache-gb all --preload --throttle-ram \
            --disk-gbps "$gbps" --disk-latency-us 80
    done
done
section streamed-profile bench --model "$DIR/made-$MORE" --slots 25% -p 0 -n "$TOKENS" -r 2 --profile \
    --ram-cache-gb all --preload --throttle-ram --disk-gbps 17.3 --disk-latency-us 80
# A second disk: two copies in the system's file cache, each paced like a disk of 3.7 GB/s.
for copies in one two; do
    [ "$copies" = one ] && flags=() || flags=(--mirror "$DIR/made-$FEW-copy")
    section "disks-$copies" copied bench --model "$DIR/made-$FEW" --slots 25% -p 2048 -n 64 -r 2 --io cached \
        --disk-gbps 3.7 --disk-latency-us 80 "${flags[@]}"
done
# Packed records against nine pieces, cold.
for records in pieces packed; do
    [ "$records" = pieces ] && flags=(--no-pack) || flags=()
    [ "$records" = pieces ] || section pack pack --experts-only "$DIR/made-$FEW"
    section "$records" bench --model "$DIR/made-$FEW" --slots floor -p 2048 -n 64 -r 2 --prefill-pass 2048 --io direct \
        --profile "${flags[@]}"
done
