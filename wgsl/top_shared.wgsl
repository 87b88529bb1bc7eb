// What both kernels of the largest logits share: how the row is divided, the order of logits, and folds of a workgroup.

override THREADS: u32; // of a workgroup, a power of two
override VOCAB: u32; // numbers in a row
override BLOCKS: u32; // blocks of ids: block `b` has every id that is `b` past a multiple of BLOCKS
override GROUPS: u32; // workgroups of `top_peaks.wgsl` in a row

const PART = 3u; // words that a workgroup leaves: key of the largest, bits of the sum, flags
const NOT_FINITE = 1u; // flag: a logit as the head gave it is not finite

override FOUND: u32 = BLOCKS + PART * GROUPS; // words of a row

var<workgroup> keys: array<u32, THREADS>;
var<workgroup> sums: array<f32, THREADS>;

// Orders logits, from their bits; 0 for what may not be drawn: -inf and NaN.
fn key_of(bits: u32) -> u32 {
    let logit = bitcast<f32>(bits);
    return select(order_of(logit), 0u, is_nan(logit) || bits == 0xff800000u);
}

// The logit of a key that is not 0.
fn number_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key ^ 0x80000000u, key >= 0x80000000u));
}

// The largest of `keys` that are the same modulo `left`, of the first `all`. Both are powers of two.
fn fold_keys(all: u32, left: u32, thread: u32) {
    workgroupBarrier();
    for (var apart = all / 2u; apart > left / 2u; apart /= 2u) {
        if thread < apart {
            keys[thread] = max(keys[thread], keys[thread + apart]);
        }
        workgroupBarrier();
    }
}

// The sum of `sums`, to their first.
fn fold_sums(thread: u32) {
    workgroupBarrier();
    for (var apart = THREADS / 2u; apart > 0u; apart /= 2u) {
        if thread < apart {
            sums[thread] += sums[thread + apart];
        }
        workgroupBarrier();
    }
}
