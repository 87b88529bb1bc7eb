// What a threadgroup of attention works on (architecture.md 7.4): a row, and AT_ONCE of the query heads that share a key head.

constant uint WHOLE_QUADS = HEAD / 4;
constant uint ROW_LOADS = WHOLE_QUADS / WIDE;
constant uint SHARED_BY = HEADS / KV_HEADS;                    // query heads that share a key head
constant uint UNITS = (SHARED_BY + AT_ONCE - 1) / AT_ONCE;     // threadgroups of a key head
constant float LOWEST = -3.4028234e38f;

struct Work {
    uint row;
    uint kv_head;
    uint head;  // its first query head
    uint heads; // how many
    uint kept;  // blocks that the row keeps
    uint tail;  // first token after the complete blocks
    uint count; // tokens of the row
};

inline Work work_of(uint unit, uint row, uint first) {
    Work work;
    const uint skipped = unit % UNITS * AT_ONCE;
    const uint complete = (first + row + 1) / BLOCK;
    work.row = row;
    work.kv_head = unit / UNITS;
    work.head = work.kv_head * SHARED_BY + skipped;
    work.heads = min(SHARED_BY - skipped, AT_ONCE);
    work.kept = min(complete, TOPK);
    work.tail = complete * BLOCK;
    work.count = work.kept * BLOCK + first + row + 1 - work.tail;
    return work;
}

// The token at a place of a row's tokens, ascending.
inline uint token_of(Work work, device const uint *blocks, uint i) {
    if (i / BLOCK < work.kept) {
        return blocks[work.row * TOPK + i / BLOCK] * BLOCK + i % BLOCK;
    }
    return work.tail + i - work.kept * BLOCK;
}

inline void write(Work work, device const float *gate, device float *out, uint h, uint i, float value) {
    const uint at = work.row * HEADS + work.head + h;
    out[at * HEAD + i] = value * sigmoid(gate[(2 * at + 1) * HEAD + i]);
}
