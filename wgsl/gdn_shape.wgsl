// Sizes of Gated DeltaNet.

override KEY_HEADS: u32;
override VALUE_HEADS: u32; // a multiple of KEY_HEADS
override KEY_DIM: u32; // a multiple of 32, at most 256
override VALUE_DIM: u32; // a multiple of 32, at most 256
override SHARING: u32 = VALUE_HEADS / KEY_HEADS; // value heads of a key head
override KEYS: u32 = KEY_HEADS * KEY_DIM;
override VALUES: u32 = VALUE_HEADS * VALUE_DIM;
override KEY_QUADS: u32 = KEY_DIM / 4u;
