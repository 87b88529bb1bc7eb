// The rows of a tile for `gemm_units.wgsl` where many rows meet many outputs. Half of the threads feed weights, half rows.

const ROW_TILE = 128u;
const SPARSE = false; // whether tiles are often less than half full

const WEIGHT_FEEDERS = 128u;
const ROW_FEEDERS = 128u;
const FIRST_ROW_FEEDER = 128u;
