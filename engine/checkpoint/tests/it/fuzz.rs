//! Owns: damage without end: headers, configurations and indices, changed at random in their structure and in their bytes.
//! Refuses: a panic, a case that takes seconds, memory beyond what the files could need, an opened model whose ranges leave
//! its files.
//! Invariants: a case follows from its number alone; `SS_FUZZ_CASE=N` runs that one, `SS_FUZZ_SECONDS` sets how long to go on.

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ss_checkpoint::{Checkpoint, Geometry, Report, parse_header};

use crate::small::Small;

/// How long it goes on where nobody asks for more.
const SECONDS: u64 = 2;
/// No case may take longer, on any machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Peak memory of the whole test process may not exceed this.
const MEMORY_KB: u64 = 1 << 20;

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let v = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        v ^ (v >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A value that somebody forgot to think of.
fn odd_value(random: &mut Random) -> Value {
    let numbers = [0, 1, 2, 31, 32, 64, 255, 1 << 16, 1 << 31, 1 << 32, (1 << 53) + 1, 1 << 60, u64::MAX / 2, u64::MAX];
    match random.below(12) {
        0 => Value::Null,
        1 => json!(random.next().is_multiple_of(2)),
        2 => json!(-1),
        3 => json!(i64::MIN),
        4 => json!(*random.pick(&[0.5, -0.0, 1e-300, 1e300, 3e38])),
        5 => json!(""),
        6 => json!("A".repeat(random.below(5000))),
        7 => json!([]),
        8 => json!({}),
        9 => (0..random.below(100)).fold(json!(1), |inner, _| json!([inner])),
        _ => json!(*random.pick(&numbers)),
    }
}

/// Changes one node of a tree.
fn damage_tree(random: &mut Random, value: &mut Value) {
    let go_down = random.below(8) > 0;
    match value {
        Value::Object(map) if go_down && !map.is_empty() => {
            let place = random.below(map.len());
            let key = map.keys().nth(place).unwrap().clone();
            match random.below(20) {
                0 => drop(map.shift_remove(&key)),
                1 => {
                    let copy = map[&key].clone();
                    map.insert(format!("{key}{}", random.below(3)), copy);
                }
                2 => {
                    let other = map.keys().nth(random.below(map.len())).unwrap().clone();
                    map[&key] = map[&other].clone();
                }
                _ => damage_tree(random, &mut map[&key]),
            }
        }
        Value::Array(items) if go_down && !items.is_empty() => {
            let place = random.below(items.len());
            match random.below(10) {
                0 => drop(items.remove(place)),
                1 => items.push(items[place].clone()),
                _ => damage_tree(random, &mut items[place]),
            }
        }
        Value::Number(number) if go_down && number.is_u64() => {
            let number = number.as_u64().unwrap();
            let near =
                [number.wrapping_add(1), number.wrapping_sub(1), number.wrapping_mul(2), number / 2, number ^ 32];
            *value = json!(*random.pick(&near));
        }
        other => *other = odd_value(random),
    }
}

/// Changes a few bytes of a text.
fn damage_bytes(random: &mut Random, bytes: &mut Vec<u8>) {
    let scraps: [&[u8]; 10] =
        [b"\"", b"{", b"[[[[[[[[", b"}", b",", b"-", b"99999999999999999999", b"1e999", b"\\u0000", b"\xff\xfe"];
    for _ in 0..=random.below(4) {
        let place = random.below(bytes.len());
        match random.below(5) {
            0 if !bytes.is_empty() => bytes[place] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[place] = random.next() as u8,
            2 => drop(bytes.splice(place..place, random.pick(&scraps).iter().copied())),
            3 => drop(bytes.drain(place..(place + random.below(20)).min(bytes.len()))),
            _ => {
                let end = (place + random.below(200)).min(bytes.len());
                let piece = bytes[place..end].to_vec();
                let to = random.below(bytes.len());
                drop(bytes.splice(to..to, piece));
            }
        }
    }
}

/// A damaged copy of a JSON text.
fn damaged(random: &mut Random, text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    let how = random.below(4);
    if how > 0 {
        let mut tree: Value = serde_json::from_slice(text).unwrap();
        (0..=random.below(3)).for_each(|_| damage_tree(random, &mut tree));
        out = tree.to_string().into_bytes();
    }
    if how == 0 || how == 3 {
        damage_bytes(random, &mut out);
    }
    out
}

/// A good model, and the texts that get damaged.
struct Target {
    small: Small,
    config: Vec<u8>,
    index: Vec<u8>,
    header: String,
    data: Vec<u8>,
}

const SHARD: &str = "model-00001.safetensors";
const INDEX: &str = "model.safetensors.index.json";

impl Target {
    fn new() -> Target {
        let small = Small::new();
        small.write();
        let config = fs::read(small.path("config.json")).unwrap();
        let index = fs::read(small.path(INDEX)).unwrap();
        let (header, data) = small.header(SHARD);
        Target { small, config, index, header, data }
    }

    /// Runs one case. What it leaves behind is undone by the next.
    fn run(&self, case: u64) {
        let mut random = Random(case);
        match random.below(4) {
            0 => self.header_text(&mut random),
            1 => self.whole(&mut random, "config.json", &self.config),
            2 => self.whole(&mut random, INDEX, &self.index),
            _ => self.shard(&mut random),
        }
    }

    fn header_text(&self, random: &mut Random) {
        let header = damaged(random, self.header.as_bytes());
        let file = 8 + header.len() as u64 + self.data.len() as u64;
        let Ok(mut tensors) = parse_header(&header, file, Path::new("x")) else { return };
        tensors.retain(|tensor| tensor.bytes > 0);
        tensors.sort_by_key(|tensor| tensor.offset);
        let mut end = 8 + header.len() as u64;
        for tensor in tensors {
            let elements = tensor.shape.iter().map(|&size| u128::from(size)).product::<u128>();
            assert_eq!(elements * u128::from(tensor.dtype.bytes()), u128::from(tensor.bytes));
            assert!(tensor.offset >= end, "ranges overlap");
            end = tensor.offset + tensor.bytes;
        }
        assert!(end <= file, "a range leaves the file");
    }

    fn whole(&self, random: &mut Random, file: &str, good: &[u8]) {
        let bad = damaged(random, good);
        fs::write(self.small.path(file), &bad).unwrap();
        if let Ok(config) = serde_json::from_slice(&bad) {
            drop(Geometry::from_config(&config, Path::new("x")));
        }
        self.open(random);
        fs::write(self.small.path(file), good).unwrap();
    }

    fn shard(&self, random: &mut Random) {
        let header = damaged(random, self.header.as_bytes());
        let mut bytes = [&(header.len() as u64).to_le_bytes(), header.as_slice(), &self.data].concat();
        match random.below(8) {
            0 => bytes[random.below(8)] = random.next() as u8,
            1 => bytes.truncate(random.below(bytes.len())),
            _ => {}
        }
        fs::write(self.small.path(SHARD), bytes).unwrap();
        self.open(random);
        self.small.write_header(SHARD, &self.header, &self.data);
    }

    /// Opens, and if that works, uses what was opened.
    fn open(&self, random: &mut Random) {
        let checkpoint = match self.small.open() {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                let message = error.to_string();
                assert!(message.len() < 1000 && !message.contains(char::is_control), "{message:?}");
                return;
            }
        };
        check_ranges(&checkpoint);
        drop(Report::of(&checkpoint).to_string());
        let mut slot = vec![0; checkpoint.expert_layout().bytes as usize];
        let layer = random.below(checkpoint.geometry().layers.len());
        // Tensors that were moved onto a hole of the file are blank, which is said; anything else must read.
        let blank = |error: &ss_checkpoint::Error| error.to_string().contains("zeros");
        assert!(checkpoint.read_expert(layer, 0, &mut slot).err().is_none_or(|error| blank(&error)));
        for base in ["lm_head", "model.embed_tokens", "model.layers.0.mlp.gate"] {
            assert!(checkpoint.read_linear(base).err().is_none_or(|error| blank(&error)));
        }
    }
}

fn check_ranges(checkpoint: &Checkpoint) {
    for (name, info) in checkpoint.tensors() {
        let file = checkpoint.file(info.range.file).unwrap();
        assert!(info.range.offset + info.range.bytes <= file.len(), "{name}");
    }
    for layer in 0..checkpoint.geometry().layers.len() {
        let files = checkpoint.experts(layer).unwrap();
        for piece in files.pieces(files.experts - 1) {
            let file = checkpoint.file(piece.range.file).unwrap();
            assert!(piece.range.offset + piece.range.bytes <= file.len(), "layer {layer}");
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Largest memory of this process so far, where the system tells.
fn peak_kb() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find(|line| line.starts_with("VmHWM"))?.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn damaged_headers_configurations_and_indices_never_panic_and_never_take_long() {
    let target = Target::new();
    if let Some(case) = number("SS_FUZZ_CASE") {
        return target.run(case);
    }
    let end = Instant::now() + Duration::from_secs(number("SS_FUZZ_SECONDS").unwrap_or(SECONDS));
    let mut case = 0;
    while Instant::now() < end {
        let start = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| target.run(case)));
        assert!(done.is_ok(), "run it again with SS_FUZZ_CASE={case}");
        assert!(start.elapsed() < PATIENCE, "SS_FUZZ_CASE={case} took {:?}", start.elapsed());
        case += 1;
    }
    assert!(case > 100, "only {case} cases");
    if let Some(peak) = peak_kb() {
        assert!(peak < MEMORY_KB, "{peak} KiB");
    }
    println!("{case} cases");
}
