//! Owns: where models are found, what a damaged one is refused with, and what `ss inspect` says.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{Place, nano, repository, ss};

#[test]
fn without_a_model_the_small_one_is_used_and_one_line_says_so() {
    let said = ss(&["run", "--temperature", "0", "-n", "3", "hi"]).said();
    let lines = said.stderr.lines().filter(|line| line.starts_with("no --model: using flash-next-nano")).count();
    assert_eq!((said.stdout.as_str(), lines), ("I am Nano\n", 1), "{}", said.stderr);
}

#[test]
fn a_model_is_a_path_or_a_name_in_the_models_folder() {
    let place = Place::new();
    fs::rename(place.copy_of_nano(), place.home().join("models/mine")).unwrap();
    let path = nano();
    for model in ["mine", path.to_str().unwrap()] {
        let said = place.run(["run", "--model", model, "--temperature", "0", "-n", "3", "hi"]).said();
        assert_eq!(said.stdout, "I am Nano\n");
        assert!(!said.stderr.contains("no --model"), "{}", said.stderr);
        assert!(place.run(["inspect", model]).answer().contains("64 of width 64, 6 a token"));
    }
    let text = place.run(["run", "--model", "yours", "hi"]).refused(2);
    let tried = place.home().join("models/yours");
    assert_eq!(
        text,
        format!(
            "there is no model `yours`: neither that path nor `{}` exists; give a directory with a config.json",
            tried.display()
        )
    );
}

/// What is done to a model, and what the refusal must name.
type Damage = (&'static str, fn(&Path), &'static [&'static str]);

const DAMAGES: [Damage; 10] = [
    ("no config", |dir| fs::remove_file(dir.join("config.json")).unwrap(), &["config.json is missing"]),
    (
        "another model's config",
        |dir| fs::write(dir.join("config.json"), r#"{"model_type":"llama"}"#).unwrap(),
        &["config.json", "\"llama\"", "qwen4_exp"],
    ),
    (
        "a config of another size",
        |dir| _ = fs::copy(golden("dev").join("config.json"), dir.join("config.json")).unwrap(),
        &[".safetensors", "tensor language_model.", "shape"],
    ),
    ("no tokenizer", |dir| fs::remove_file(dir.join("tokenizer.json")).unwrap(), &["tokenizer.json"]),
    ("a broken tokenizer", |dir| fs::write(dir.join("tokenizer.json"), "{").unwrap(), &["tokenizer.json"]),
    (
        "a broken template",
        |dir| fs::write(dir.join("chat_template.jinja"), "{% for").unwrap(),
        &["chat_template.jinja"],
    ),
    (
        "a broken generation config",
        |dir| fs::write(dir.join("generation_config.json"), "x").unwrap(),
        &["generation_config.json"],
    ),
    (
        "a missing shard",
        |dir| fs::remove_file(dir.join("model-00002-of-00002.safetensors")).unwrap(),
        &["model-00002-of-00002.safetensors is missing"],
    ),
    (
        "a truncated shard",
        |dir| truncate(&dir.join("model-00002-of-00002.safetensors"), 1_000_000),
        &["model-00002-of-00002.safetensors", "truncated"],
    ),
    (
        "a corrupted shard",
        |dir| garble(&dir.join("model-00001-of-00002.safetensors"), 20),
        &["model-00001-of-00002.safetensors", "header"],
    ),
];

fn golden(name: &str) -> std::path::PathBuf {
    repository().join("tests/goldens").join(name).join("model")
}

fn truncate(file: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap();
}

fn garble(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at..at + 4].fill(b'X');
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_model_is_refused_in_one_sentence_that_names_the_file() {
    for (what, damage, parts) in DAMAGES {
        let place = Place::new();
        let dir = place.copy_of_nano();
        damage(&dir);
        let text = place.run(["run", "--model", "copy", "hi"]).refused(2);
        assert!(parts.iter().all(|part| text.contains(part)), "{what}: {text}");
    }
}

#[test]
fn what_is_no_model_directory_is_refused() {
    let place = Place::new();
    let config = nano().join("config.json");
    for (model, expected) in [
        (config.to_str().unwrap(), "is not a directory"),
        (".", "config.json is missing"),
        ("", "is empty"),
        ("missing", "there is no model `missing`"),
    ] {
        for line in [&["run", "hi", "--model", model][..], &["inspect", "--", model]] {
            let text = place.run(line).refused(2);
            assert!(
                text.contains(expected) || (model.is_empty() && text.contains("a value is required")),
                "{line:?}: {text}"
            );
        }
    }
}

/// Makes every scale of the routed experts in a file something that is no number.
fn spoil_experts(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..data]).unwrap();
    for (name, tensor) in header.as_object().unwrap() {
        if name.contains(".switch_mlp.") && name.ends_with(".scales") {
            let at = |i: usize| data + tensor["data_offsets"][i].as_u64().unwrap() as usize;
            bytes[at(0)..at(1)].fill(0xff);
        }
    }
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_expert_ends_the_answer_with_the_name_of_its_file() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    for shard in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        spoil_experts(&dir.join(shard));
    }
    place.run(["inspect", "copy"]).answer();
    let text = place.run(["run", "--model", "copy", "hi"]).refused(2);
    assert!(text.contains(".safetensors") && text.contains("switch_mlp"), "{text}");
}

#[test]
fn inspect_describes_every_model_that_there_is() {
    for (dir, parts) in [
        (nano(), ["64 of width 64, 6 a token", "27,648 bytes", "positions      4096"]),
        (golden("dev"), ["16 of width 64, 4 a token", "13,824 bytes", "vocabulary 384"]),
        (golden("odd"), ["24 of width 64, 3 a token", "34,560 bytes", "vocabulary 448"]),
    ] {
        let said = ss(&["inspect", dir.to_str().unwrap()]).said();
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
        assert!(parts.iter().all(|part| said.stdout.contains(part)), "{}", said.stdout);
        let json: Value = serde_json::from_str(&ss(&["inspect", "--json", dir.to_str().unwrap()]).answer()).unwrap();
        for field in ["path", "geometry", "norms", "record_bytes", "files", "groups", "totals", "missing", "warnings"] {
            assert!(!json[field].is_null(), "{field}");
        }
        assert!(parts[0].starts_with(&json["geometry"]["experts"].to_string()));
    }
}

#[test]
fn inspect_says_what_is_missing() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    for file in ["tokenizer.json", "mtp.safetensors"] {
        fs::remove_file(dir.join(file)).unwrap();
    }
    let json: Value = serde_json::from_str(&place.run(["inspect", "--json", "copy"]).answer()).unwrap();
    let missing = json["missing"].to_string();
    assert!(missing.contains("tokenizer.json") && missing.contains("mtp"), "{missing}");
}

#[test]
fn inspect_meets_the_published_totals_on_a_header_only_imitation() {
    let place = Place::new();
    ss_checkpoint::imitation::write_released(&place.path("released")).unwrap();
    let started = std::time::Instant::now();
    let said = place.run(["inspect", "released"]).said();
    assert!(started.elapsed().as_secs() < 5, "it reads no data");
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let json: Value = serde_json::from_str(&place.run(["inspect", "--json", "released"]).answer()).unwrap();
    assert_eq!(json["released_totals_met"], true, "{}", said.stdout);
    let totals = &json["totals"];
    for (name, published) in [
        ("tensors", 3_215u64),
        ("resident", 2_924_005_400),
        ("experts", 67_947_724_800),
        ("ngram", 32_000_153_600),
        ("vision", 897_862_112),
        ("total", 103_769_745_912),
    ] {
        assert_eq!(totals[name].as_u64(), Some(published), "{name}");
    }
}

/// Fills a tensor of a model with one BF16 number.
fn fill(dir: &Path, tensor: &str, bits: u16) {
    let checkpoint = ss_checkpoint::Checkpoint::open(dir).unwrap();
    let range = checkpoint.tensor(tensor).unwrap().range;
    let path = checkpoint.file(range.file).unwrap().path().to_path_buf();
    let mut bytes = fs::read(&path).unwrap();
    let numbers = bytes[range.offset as usize..][..range.bytes as usize].as_chunks_mut::<2>().0;
    numbers.fill(bits.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn weights_that_are_finite_but_nonsense_never_become_tokens() {
    // BF16 3e38: each number is finite, their products are not. And zero: a shard that was laid out and never filled.
    for (tensors, bits, expected) in [
        (&["lm_head.scales"][..], 0x7F62, "not finite"),
        (&["lm_head.scales", "lm_head.biases"], 0, "lm_head.scales must have numbers other than zero"),
    ] {
        let place = Place::new();
        let dir = place.copy_of_nano();
        tensors.iter().for_each(|tensor| fill(&dir, tensor, bits));
        let text = place.run(["run", "--model", "copy", "-n", "5", "hi"]).refused(2);
        assert!(text.contains(expected), "{text}");
    }
}
