// The rows of a tile for `gemm_units.wgsl` where few rows meet, as those of an expert, or few outputs. All threads feed both.

const ROW_TILE = 64u;
const SPARSE = true; // whether tiles are often less than half full

const WEIGHT_FEEDERS = 256u;
const ROW_FEEDERS = 256u;
const FIRST_ROW_FEEDER = 0u;
