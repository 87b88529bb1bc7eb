// The slot pool (engine.md 5.1): all chunks in an array of their addresses, or the one chunk of this dispatch.

#if POOL_IS_ARRAY
struct Chunk {
    device const uint4 *at;
};
typedef device const Chunk *Pool;
#else
typedef device const uint4 *Pool;
#endif

// Whether this dispatch sees the chunk of a slot; `bound` is the chunk of a dispatch that has only one.
inline bool sees(uint slot, uint slots_per_chunk, uint bound) {
    return POOL_IS_ARRAY || slot / slots_per_chunk == bound;
}

// Where a slot's record begins.
inline device const uint4 *record_of(Pool pool, uint slot, uint slots_per_chunk) {
    const ulong first = ulong(slot % slots_per_chunk) * RECORD_QUADS;
#if POOL_IS_ARRAY
    return pool[slot / slots_per_chunk].at + first;
#else
    return pool + first;
#endif
}

// A projection of a record, its codes at a quad and its scales and biases at a word.
template <class Weight>
Weight projection(device const uint4 *record, uint codes, uint scales, uint biases) {
    typedef device const typename Weight::Unit *Units;
    typedef device const typename Weight::Scale *Scales;
    device const uint *words = (device const uint *)record;
    return Weight{(Units)(record + codes), (Scales)(words + scales), (Scales)(words + biases)};
}
