//! Owns: numbers that follow from a seed, damage to JSON by them, and the clock of a fuzz target.
//! Invariants: a case follows from its number alone; `SS_FUZZ_CASE=N` runs that one, `SS_FUZZ_SECONDS` sets how long to go on.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a target goes on where nobody asks for more.
const SECONDS: u64 = 2;
/// No case may take longer, on any machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Numbers that follow from a seed.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let v = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        v ^ (v >> 31)
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Whether something of one chance in `many` comes about.
    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Runs cases, one after the other, until the time is over.
pub fn run(name: &str, least: u64, mut case: impl FnMut(u64)) {
    if let Some(number) = number("SS_FUZZ_CASE") {
        return case(number);
    }
    let end = Instant::now() + Duration::from_secs(number("SS_FUZZ_SECONDS").unwrap_or(SECONDS));
    let mut at = 0;
    while Instant::now() < end {
        let start = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| case(at)));
        assert!(done.is_ok(), "run it again with SS_FUZZ_CASE={at}");
        assert!(start.elapsed() < PATIENCE, "SS_FUZZ_CASE={at} took {:?}", start.elapsed());
        at += 1;
    }
    assert!(at >= least, "only {at} cases");
    println!("{name}: {at} cases");
}

/// A value that somebody forgot to think of.
pub fn odd_value(random: &mut Random) -> Value {
    match random.below(16) {
        0 => Value::Null,
        1 => json!(random.one_in(2)),
        2 => json!(*random.pick(&[0, 1, -1, 5, 255, 4096, 1 << 31, 1 << 32, (1 << 53) + 1, i64::MIN, i64::MAX])),
        3 => json!(u64::MAX),
        4 => json!(*random.pick(&[0.5, -0.0, 5.0, 1e-300, 1e300, 3e38, -3.5e38, 9_007_199_254_740_992.0])),
        5 => json!(""),
        6 => json!("A".repeat(random.below(5000))),
        7 => json!([]),
        8 => json!({}),
        9 => (0..random.below(100)).fold(json!(1), |inner, _| json!([inner])),
        10 => json!("</think>\n<|im_end|>\u{0}\u{feff}é👩‍👩‍👧"),
        11 => json!([odd_value(random), odd_value(random)]),
        12 => json!({ "type": odd_value(random), "text": "x" }),
        _ => {
            json!(*random.pick(&["text", "auto", "none", "required", "tool", "user", "assistant", "system", "x", "{}"]))
        }
    }
}

/// Changes one node of a tree; now and then by what another tree has there.
pub fn damage(random: &mut Random, value: &mut Value, other: &Value) {
    let go_down = !random.one_in(8);
    match value {
        Value::Object(map) if go_down && !map.is_empty() => {
            let place = random.below(map.len());
            let Some(key) = map.keys().nth(place).cloned() else { return };
            match random.below(20) {
                0 => _ = map.remove(&key),
                1 => {
                    let copy = map[&key].clone();
                    map.insert(format!("{key}{}", random.below(3)), copy);
                }
                2 => {
                    if let Value::Object(other) = other
                        && let Some((name, value)) = other.iter().nth(random.below(other.len()))
                    {
                        map.insert(name.clone(), value.clone());
                    }
                }
                _ => damage(random, &mut map[&key], other.get(&key).unwrap_or(&Value::Null)),
            }
        }
        Value::Array(items) if go_down && !items.is_empty() => {
            let place = random.below(items.len());
            match random.below(12) {
                0 => _ = items.remove(place),
                1 => items.push(items[place].clone()),
                2 => items.reverse(),
                3 => items.push(odd_value(random)),
                _ => damage(random, &mut items[place], other.get(place).unwrap_or(&Value::Null)),
            }
        }
        node => *node = if random.one_in(4) { other.clone() } else { odd_value(random) },
    }
}

/// Changes a few bytes of a text.
pub fn damage_bytes(random: &mut Random, bytes: &mut Vec<u8>) {
    let scraps: [&[u8]; 10] =
        [b"\"", b"{", b"[[[[[[[[", b"}", b",", b"-", b"99999999999999999999", b"1e999", b"\\ud800", b"\xff\xfe"];
    for _ in 0..=random.below(4) {
        let place = random.below(bytes.len());
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[place] ^= 1 << random.below(8),
            1 => _ = bytes.splice(place..place, random.pick(&scraps).iter().copied()),
            2 => _ = bytes.drain(place..(place + random.below(20)).min(bytes.len())),
            _ => {
                let piece = bytes[place..(place + random.below(200)).min(bytes.len())].to_vec();
                let to = random.below(bytes.len());
                _ = bytes.splice(to..to, piece);
            }
        }
    }
}

/// A text in random pieces, whose cuts lie between characters.
pub fn pieces(random: &mut Random, text: &str) -> Vec<String> {
    let longest = *random.pick(&[1, 2, 4, 16, 1000]);
    let mut pieces = vec![String::new()];
    let mut room = 1 + random.below(longest);
    for letter in text.chars() {
        if room == 0 {
            pieces.push(String::new());
            room = 1 + random.below(longest);
        }
        if let Some(last) = pieces.last_mut() {
            last.push(letter);
        }
        room -= 1;
    }
    pieces
}

/// A reply such as models write, and such as none would: tags and texts in any order, whole and torn.
pub fn reply(random: &mut Random) -> String {
    const SCRAPS: [&str; 30] = [
        "Hello",
        " world",
        "\n",
        "\n\n",
        "é",
        "e\u{301}",
        "👩‍👩‍👧",
        "🇫🇷",
        "</think>",
        "<think>",
        "</thi",
        "<tool_call>",
        "<tool_",
        "</tool_call>",
        "<function=say>",
        "<function=",
        "</function>",
        "<parameter=text>",
        "<parameter=n>",
        "</parameter>",
        "5",
        "null",
        "{\"a\": 1}",
        "<tool_call>\n<function=say>\n<parameter=text>\nhi there\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=say>\n<parameter=n>\n7\n</parameter>\n<parameter=text>\na\"\\\n\nb\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=other>\n</function>\n</tool_call>",
        "END",
        "EN",
        "</think>\n\n",
        "<",
    ];
    (0..random.below(12)).map(|_| *random.pick(&SCRAPS)).collect()
}
