// Numbers as they are stored, and the functions of one number that the model needs, written out, so that gates which
// feed discrete choices do not depend on a driver's own functions (engine.md 3.6). The formulas are those of
// `backends/reference/src/math.rs`. NaN is told by its bits: fast math may take a comparison away.

const BF16 = 0u;
const F16 = 1u;
const F32 = 2u;

// Inputs of a unit of a weight, as many quads as it has, and their sum.
struct Inputs {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
    e: vec4<f32>,
    f: vec4<f32>,
    g: vec4<f32>,
    h: vec4<f32>,
    sum: f32,
}

// Word of a run of numbers in which number `index` lies.
fn word_of(index: u32, scalar: u32) -> u32 {
    return select(index / 2u, index, scalar == F32);
}

// Number `index` of a run, from its word.
fn number_in(word: u32, index: u32, scalar: u32) -> f32 {
    if scalar == F32 {
        return bitcast<f32>(word);
    }
    let upper = index % 2u == 1u;
    if scalar == F16 {
        let both = unpack2x16float(word);
        return select(both.x, both.y, upper);
    }
    return bitcast<f32>(select(word << 16u, word & 0xffff0000u, upper));
}

// Both numbers of a word of BF16 or F16.
fn numbers_in(word: u32, scalar: u32) -> vec2<f32> {
    if scalar == F16 {
        return unpack2x16float(word);
    }
    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// The nearest BF16, ties to even, in the lower half of a word (engine.md 3.3).
fn to_bf16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = bits + 0x7fffu + ((bits >> 16u) & 1u);
    // A NaN stays one: rounding could carry it into an infinity or past it.
    return select(rounded, bits | 0x00400000u, is_nan(x)) >> 16u;
}

// Two numbers as a word of BF16.
fn bf16_word(first: f32, second: f32) -> u32 {
    return to_bf16(first) | (to_bf16(second) << 16u);
}

// The number after it was stored as BF16.
fn through_bf16(x: f32) -> f32 {
    return bitcast<f32>(to_bf16(x) << 16u);
}

// The nearest numbers that F16 holds, ties to even (engine.md 3.5). Without branches, which cost more than what they save.
fn through_f16_quad(x: vec4<f32>) -> vec4<f32> {
    let magnitude = abs(x);
    let bits = bitcast<vec4<u32>>(x);
    let normal = bitcast<vec4<f32>>((bits + 0xfffu + ((bits >> vec4<u32>(13u)) & vec4<u32>(1u))) & vec4<u32>(0xffffe000u));
    let small = round(x * 0x1p24) * 0x1p-24;
    // Too large for F16, or NaN: infinite with its sign, or NaN.
    let large = x * 0x1p127;
    return select(select(large, normal, magnitude < vec4<f32>(65520.0)), small, magnitude < vec4<f32>(0x1p-14));
}

// Adding it rounds to an integer, which then stands in the low bits.
const ROUNDER = 12582912.0;
const EXP_HIGHEST = 89.0; // above it exp is infinite
const EXP_LOWEST = -104.0; // below it exp is zero
const LOG2_E = 1.44269504088896340736;
// ln 2 in two parts; the first has few bits, so that its products with small integers are exact.
const LN_2_HIGH = 0.693359375;
const LN_2_LOW = -2.12194440e-4;

fn power_of_two(k: i32) -> f32 {
    return bitcast<f32>(u32(k + 127) << 23u);
}

// e^x.
fn exponential(value: f32) -> f32 {
    let x = select(select(value, EXP_LOWEST, value < EXP_LOWEST), EXP_HIGHEST, value > EXP_HIGHEST);
    // The integer goes through its bits: a compiler may not reorder that, as it may an addition and its inverse.
    let shifted = bitcast<u32>(fma(x, LOG2_E, ROUNDER));
    let k = i32(shifted - bitcast<u32>(ROUNDER));
    let n = f32(k);
    let r = fma(n, -LN_2_LOW, fma(n, -LN_2_HIGH, x));
    var p = 1.9875691e-4;
    p = fma(p, r, 1.3981999e-3);
    p = fma(p, r, 8.333452e-3);
    p = fma(p, r, 4.1665796e-2);
    p = fma(p, r, 0.16666665);
    p = fma(p, r, 0.5);
    let y = fma(p * r, r, r) + 1.0;
    // 2^k in two factors: neither leaves the range of an F32 where the product still lies in it.
    let half = k >> 1u;
    return select(y * power_of_two(half) * power_of_two(k - half), value, is_nan(value));
}

// 1 / (1 + e^-x).
fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exponential(-x));
}

// x sigmoid(x); zero at minus infinity.
fn silu(x: f32) -> f32 {
    return select(x, EXP_LOWEST, x < EXP_LOWEST) / (1.0 + exponential(-x));
}

// ln(1 + u) for u in 0..=1, as twice the series of artanh at u / (2 + u).
fn ln_1p(u: f32) -> f32 {
    let s = u / (2.0 + u);
    let square = s * s;
    var p = 1.0 / 17.0;
    p = fma(p, square, 1.0 / 15.0);
    p = fma(p, square, 1.0 / 13.0);
    p = fma(p, square, 1.0 / 11.0);
    p = fma(p, square, 1.0 / 9.0);
    p = fma(p, square, 1.0 / 7.0);
    p = fma(p, square, 1.0 / 5.0);
    p = fma(p, square, 1.0 / 3.0);
    p = fma(p, square, 1.0);
    return 2.0 * s * p;
}

// ln x, of a finite number that is at least one.
fn logarithm(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let exponent = f32(i32(bits >> 23u) - 127);
    let rest = bitcast<f32>((bits & 0x007fffffu) | bitcast<u32>(1.0)) - 1.0;
    return fma(exponent, LN_2_HIGH, fma(exponent, LN_2_LOW, ln_1p(rest)));
}

// ln(1 + e^x).
fn softplus(x: f32) -> f32 {
    return select(x, 0.0, x < 0.0) + ln_1p(exponential(-abs(x)));
}

// Orders scores: a greater key is a greater score. Both zeros are the same score; NaN has its place by its bits.
fn order_of(score: f32) -> u32 {
    let bits = bitcast<u32>(score + 0.0);
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}
