//! Owns: every way in which a model directory has been seen, or can be imagined, to be wrong, and the sentence it gives.
//! Refuses: a message of more than one line, without the file's path, or with control characters in it.
//! Invariants: each case changes one thing in a model that opens; nothing panics.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use ss_checkpoint::imitation::Tensor;
use ss_checkpoint::{Checkpoint, Dtype, Result, imitation};

use crate::small::Small;

/// One wrong thing: how it is made, what is asked, what the answer must contain.
struct Case {
    name: &'static str,
    make: fn(&mut Small),
    ask: fn(&Checkpoint) -> Result<()>,
    says: &'static [&'static str],
}

/// A case that must fail when the model is opened. `make` writes the model.
const fn open(name: &'static str, make: fn(&mut Small), says: &'static [&'static str]) -> Case {
    Case { name, make, ask: |_| Ok(()), says }
}

/// A case that opens, and must fail when something is read.
const fn read(
    name: &'static str,
    make: fn(&mut Small),
    ask: fn(&Checkpoint) -> Result<()>,
    says: &'static [&'static str],
) -> Case {
    Case { name, make, ask, says }
}

const FIRST: &str = "model-00001.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Writes the model, then changes one entry of the first shard's header.
fn entry(small: &Small, change: impl FnOnce(&mut Value)) {
    small.write();
    small.edit_header(FIRST, |header| change(&mut header["language_model.lm_head.scales"]));
}

/// Puts a BF16 number into a tensor of zeros.
fn poison(small: &mut Small, ending: &str, place: usize, bits: u16) {
    let tensor = small.tensor(ending);
    let mut content = tensor.content.take().unwrap_or_else(|| vec![0; tensor.bytes() as usize]);
    content[2 * place..2 * place + 2].copy_from_slice(&bits.to_le_bytes());
    tensor.content = Some(content);
    small.write();
}

fn text(small: &mut Small, field: &str, value: Value) {
    small.config["text_config"][field] = value;
    small.write();
}

const FILES: &[Case] = &[
    open("no directory", |s| drop(fs::remove_dir_all(s.dir())), &["cannot open the model directory"]),
    open(
        "a file instead of a directory",
        |s| {
            fs::remove_dir_all(s.dir()).unwrap();
            fs::write(s.dir(), "x").unwrap();
        },
        &["is not a directory", "config.json"],
    ),
    open("empty directory", |_| (), &["config.json is missing", "check the path"]),
    open("config is a directory", |s| fs::create_dir(s.path("config.json")).unwrap(), &["config.json is a directory"]),
    open("config is empty", |s| fs::write(s.path("config.json"), "").unwrap(), &["config.json is not valid JSON"]),
    open("config is text", |s| fs::write(s.path("config.json"), "hello").unwrap(), &["config.json is not valid JSON"]),
    open("config is a list", |s| fs::write(s.path("config.json"), "[]").unwrap(), &["config.json", "an object"]),
    open(
        "config is a deep nest",
        |s| fs::write(s.path("config.json"), "[".repeat(100_000)).unwrap(),
        &["config.json", "recursion"],
    ),
    open(
        "config is huge",
        |s| File::create(s.path("config.json")).unwrap().set_len(1 << 40).unwrap(),
        &["config.json has 1099511627776 bytes", "at most"],
    ),
    open(
        "config is a loop of links",
        |s| symlink("config.json", s.path("config.json")).unwrap(),
        &["config.json: cannot open", "links"],
    ),
    open(
        "config is a dangling link",
        |s| symlink("nowhere", s.path("config.json")).unwrap(),
        &["config.json: cannot open", "No such file"],
    ),
    open(
        "config is a device",
        |s| symlink("/dev/zero", s.path("config.json")).unwrap(),
        &["config.json is neither a file"],
    ),
    open(
        "no weights",
        |s| imitation::write_json(&s.path("config.json"), &s.config).unwrap(),
        &["model.safetensors.index.json is missing", "model.safetensors)"],
    ),
    open(
        "single file is a loop of links",
        |s| {
            imitation::write_json(&s.path("config.json"), &s.config).unwrap();
            symlink("model.safetensors", s.path("model.safetensors")).unwrap();
        },
        &["model.safetensors: cannot open", "links"],
    ),
    open(
        "a shard is missing",
        |s| {
            s.write();
            fs::remove_file(s.path("model-00002.safetensors")).unwrap();
        },
        &["model-00002.safetensors is missing", "index"],
    ),
    open(
        "a shard is a directory",
        |s| {
            s.write();
            fs::remove_file(s.path(FIRST)).unwrap();
            fs::create_dir(s.path(FIRST)).unwrap();
        },
        &["model-00001.safetensors is a directory"],
    ),
    open(
        "a shard is a loop of links",
        |s| {
            s.write();
            fs::remove_file(s.path(FIRST)).unwrap();
            symlink("b", s.path(FIRST)).unwrap();
            symlink(FIRST, s.path("b")).unwrap();
        },
        &["model-00001.safetensors: cannot open", "links"],
    ),
    open(
        "a shard is a device",
        |s| {
            s.write();
            fs::remove_file(s.path(FIRST)).unwrap();
            symlink("/dev/zero", s.path(FIRST)).unwrap();
        },
        &["model-00001.safetensors is neither a file"],
    ),
    open(
        "mtp.safetensors is a directory",
        |s| {
            s.mtp.clear();
            s.write();
            fs::create_dir(s.path("mtp.safetensors")).unwrap();
        },
        &["mtp.safetensors is a directory"],
    ),
];

const INDICES: &[Case] = &[
    open(
        "index is not JSON",
        |s| {
            s.write();
            fs::write(s.path(INDEX), "{").unwrap();
        },
        &["index.json is not valid JSON", "line 1"],
    ),
    open(
        "index without a map",
        |s| {
            s.write();
            fs::write(s.path(INDEX), "{}").unwrap();
        },
        &["index.json: weight_map", "nothing"],
    ),
    open(
        "index with an empty map",
        |s| {
            s.write();
            fs::write(s.path(INDEX), r#"{"weight_map":{}}"#).unwrap();
        },
        &["index.json: weight_map", "not empty"],
    ),
    open(
        "a shard name is a number",
        |s| shard_name(s, json!(7)),
        &["weight_map[language_model.lm_head.scales]", "found 7"],
    ),
    open("a shard lies above", |s| shard_name(s, json!("../x.safetensors")), &["weight_map[", "plain name", "../x"]),
    open("a shard lies below", |s| shard_name(s, json!("a/x.safetensors")), &["weight_map[", "plain name", "a/x"]),
    open(
        "a shard is absolute",
        |s| shard_name(s, json!("/etc/passwd.safetensors")),
        &["weight_map[", "plain name", "/etc"],
    ),
    open("a shard is the folder", |s| shard_name(s, json!("..")), &["weight_map[", "plain name"]),
    open("a shard is no weight file", |s| shard_name(s, json!("config.json")), &["weight_map[", "plain name"]),
    open("a shard's name has a line end", |s| shard_name(s, json!("a\nb.safetensors")), &["weight_map[", "a\\nb"]),
    open(
        "a thousand shards",
        |s| {
            s.write();
            let map: Value = (0..1000).map(|n| (format!("t{n}"), format!("m{n}.safetensors"))).collect();
            imitation::write_json(&s.path(INDEX), &json!({ "weight_map": map })).unwrap();
        },
        &["index.json: weight_map", "at most 512 files"],
    ),
    open(
        "the index names a tensor that the shard lacks",
        |s| {
            s.write();
            s.edit(INDEX, |index| index["weight_map"]["language_model.ghost"] = json!(FIRST));
        },
        &["model-00001.safetensors: tensor language_model.ghost is missing", "index.json"],
    ),
    open(
        "the index puts a tensor into another shard",
        |s| {
            s.write();
            s.edit(INDEX, |index| {
                index["weight_map"]["language_model.lm_head.scales"] = json!("model-00002.safetensors")
            });
        },
        &["model-00002.safetensors: tensor language_model.lm_head.scales is missing"],
    ),
    open(
        "the index forgets a tensor",
        |s| {
            s.write();
            s.edit(INDEX, |index| {
                drop(index["weight_map"].as_object_mut().unwrap().shift_remove("language_model.lm_head.weight"))
            });
        },
        &["tensor lm_head.weight is missing", "[320, 64]"],
    ),
];

fn shard_name(small: &mut Small, name: Value) {
    small.write();
    small.edit(INDEX, |index| index["weight_map"]["language_model.lm_head.scales"] = name);
}

fn cut(small: &mut Small, keep: impl FnOnce(u64) -> u64) {
    small.write();
    let file = fs::OpenOptions::new().write(true).open(small.path(FIRST)).unwrap();
    file.set_len(keep(file.metadata().unwrap().len())).unwrap();
}

fn claim(small: &mut Small, length: u64) {
    small.write();
    let mut bytes = fs::read(small.path(FIRST)).unwrap();
    bytes[..8].copy_from_slice(&length.to_le_bytes());
    fs::write(small.path(FIRST), bytes).unwrap();
}

fn raw_header(small: &mut Small, change: impl FnOnce(String) -> String) {
    small.write();
    let (header, data) = small.header(FIRST);
    small.write_header(FIRST, &change(header), &data);
}

const HEADERS: &[Case] = &[
    open("a shard is empty", |s| cut(s, |_| 0), &["model-00001.safetensors: the safetensors header is missing"]),
    open("a shard is seven bytes", |s| cut(s, |_| 7), &["model-00001.safetensors", "7 bytes"]),
    open("a shard ends in its header", |s| cut(s, |_| 500), &["model-00001.safetensors", "only 492", "truncated"]),
    open(
        "a shard lacks its last byte",
        |s| cut(s, |length| length - 1),
        &["model-00001.safetensors: tensor ", "truncated"],
    ),
    open(
        "the header claims 100 MB and one byte",
        |s| claim(s, 100_000_001),
        &["model-00001.safetensors", "at most 100000000"],
    ),
    open(
        "the header claims all of 64 bits",
        |s| claim(s, u64::MAX),
        &["model-00001.safetensors", "claims 18446744073709551615"],
    ),
    open("the header claims more than the file", |s| claim(s, 99_999_999), &["model-00001.safetensors", "truncated"]),
    open(
        "the header claims nothing",
        |s| claim(s, 0),
        &["model-00001.safetensors: the safetensors header is not valid"],
    ),
    open(
        "the header is cut short",
        |s| claim(s, 1000),
        &["model-00001.safetensors: the safetensors header is not valid"],
    ),
    open(
        "the header is a list",
        |s| raw_header(s, |_| "[]".into()),
        &["model-00001.safetensors", "an object of tensors"],
    ),
    open(
        "the header nests deeply",
        |s| raw_header(s, |_| "{\"a\":".repeat(100_000)),
        &["model-00001.safetensors", "not valid"],
    ),
    open(
        "the header is not UTF-8",
        |s| {
            s.write();
            let mut bytes = fs::read(s.path(FIRST)).unwrap();
            bytes[12] = 0xFF;
            fs::write(s.path(FIRST), bytes).unwrap();
        },
        &["model-00001.safetensors", "not valid"],
    ),
    open(
        "a name is there twice",
        |s| raw_header(s, |h| h.replacen("lm_head.biases", "lm_head.scales", 1)),
        &["model-00001.safetensors", "language_model.lm_head.scales is there twice"],
    ),
    open(
        "a field is there twice",
        |s| raw_header(s, |h| h.replacen("\"dtype\"", "\"shape\":[1],\"dtype\"", 1)),
        &["model-00001.safetensors", "tensor language_model", "duplicate field"],
    ),
    open(
        "metadata that is not text",
        |s| raw_header(s, |h| h.replacen("\"mlx\"", "{\"a\":1}", 1)),
        &["model-00001.safetensors", "not valid", "expected a string"],
    ),
    open(
        "no type",
        |s| entry(s, |e| drop(e.as_object_mut().unwrap().shift_remove("dtype"))),
        &["lm_head.scales", "missing field `dtype`"],
    ),
    open("an unknown type", |s| entry(s, |e| e["dtype"] = json!("Q4_0")), &["lm_head.scales", "known type", "Q4_0"]),
    open(
        "a negative size",
        |s| entry(s, |e| e["shape"] = json!([-1, 1])),
        &["tensor language_model.lm_head.scales", "-1"],
    ),
    open(
        "a size of half",
        |s| entry(s, |e| e["shape"] = json!([0.5, 1])),
        &["tensor language_model.lm_head.scales", "0.5"],
    ),
    open(
        "a shape that is text",
        |s| entry(s, |e| e["shape"] = json!("320")),
        &["tensor language_model.lm_head.scales", "sequence"],
    ),
    open(
        "a shape beyond 64 bits",
        |s| entry(s, |e| e["shape"] = json!([u64::MAX, u64::MAX, 3])),
        &["model-00001.safetensors: tensor language_model.lm_head.scales", "below 2^64"],
    ),
    open(
        "a shape whose bytes are beyond 64 bits",
        |s| entry(s, |e| e["shape"] = json!([1u64 << 63])),
        &["model-00001.safetensors: tensor language_model.lm_head.scales", "below 2^64"],
    ),
    open(
        "a shape of a million sizes",
        |s| entry(s, |e| e["shape"] = vec![1; 1_000_000].into()),
        &["tensor language_model.lm_head.scales", "more than 16 sizes"],
    ),
    open(
        "three hundred thousand tensors",
        |s| {
            let one = |n| format!(r#""{n}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
            raw_header(s, |_| format!("{{{}}}", (0..300_000).map(one).collect::<Vec<_>>().join(",")))
        },
        &["model-00001.safetensors", "more than 262144 tensors"],
    ),
    open(
        "three offsets",
        |s| entry(s, |e| e["data_offsets"] = json!([0, 1, 2])),
        &["tensor language_model.lm_head.scales", "not valid"],
    ),
    open(
        "offsets the wrong way",
        |s| entry(s, |e| e["data_offsets"] = json!([640, 0])),
        &["lm_head.scales", "640 bytes", "[640, 0]"],
    ),
    open(
        "offsets that disagree with the shape",
        |s| entry(s, |e| e["data_offsets"] = json!([0, 641])),
        &["lm_head.scales", "640 bytes of data (BF16 [320, 1])"],
    ),
    open(
        "offsets past the file",
        |s| entry(s, |e| e["data_offsets"] = json!([1u64 << 40, (1u64 << 40) + 640])),
        &["lm_head.scales", "1099511628416", "truncated"],
    ),
    open(
        "offsets at the end of 64 bits",
        |s| entry(s, |e| e["data_offsets"] = json!([u64::MAX - 640, u64::MAX])),
        &["lm_head.scales", "18446744073709551615", "truncated"],
    ),
    open(
        "two tensors share bytes",
        |s| {
            entry(s, |e| {
                let begin = e["data_offsets"][0].as_u64().unwrap() + 2;
                e["data_offsets"] = json!([begin, begin + 640]);
            })
        },
        &["tensor language_model.lm_head.biases", "overlap those of language_model.lm_head.scales"],
    ),
    open(
        "a name with and without its prefix",
        |s| {
            s.tensors.push(Tensor::zeros("lm_head.scales", Dtype::Bf16, [320, 1]));
            s.write();
        },
        &["tensor lm_head.scales", "a name of its own", "language_model.lm_head.scales in"],
    ),
    open(
        "a main tensor in the MTP file",
        |s| {
            s.mtp.push(Tensor::zeros("model.embed_tokens.weight", Dtype::U32, [320, 8]));
            s.write();
        },
        &["mtp.safetensors: tensor model.embed_tokens.weight", "a name of its own"],
    ),
    open(
        "a name that plays with the terminal",
        |s| {
            s.tensors.push(Tensor::zeros("\u{1b}[2J\nx", Dtype::Bf16, [1]));
            s.write();
            s.edit(INDEX, |index| index["weight_map"]["\u{1b}[2J\nx"] = json!(FIRST));
        },
        &["\\u{1b}[2J\\nx"],
    ),
    open(
        "the MTP file is not safetensors",
        |s| {
            s.write();
            fs::write(s.path("mtp.safetensors"), "PK\u{3}\u{4} this is something else").unwrap();
        },
        &["mtp.safetensors: the safetensors header claims"],
    ),
];

const TENSORS: &[Case] = &[
    open(
        "a norm is absent",
        |s| without(s, "layers.2.mlp_hyper_connection.hc_norm.weight"),
        &["tensor model.layers.2.mlp_hyper_connection.hc_norm.weight is missing", "[128]"],
    ),
    open(
        "a weight is absent",
        |s| without(s, "self_attn.k_proj.weight"),
        &["tensor model.layers.3.self_attn.k_proj.weight is missing", "[128, 64]"],
    ),
    open(
        "an expert tensor is absent",
        |s| without(s, "layers.1.mlp.switch_mlp.up_proj.weight"),
        &["tensor model.layers.1.mlp.switch_mlp.up_proj.weight is missing", "[8, 64, 64]"],
    ),
    open("an n-gram shard is absent", |s| without(s, "shard_2.weight"), &["ngram_embedding.shard_2.weight is missing"]),
    open(
        "a tensor of the MTP layer is absent",
        |s| without(s, "mtp.fc_hidden.weight"),
        &["tensor mtp.fc_hidden.weight is missing"],
    ),
    open(
        "scales are absent",
        |s| without(s, "lm_head.scales"),
        &["tensor lm_head.scales is missing", "language_model.lm_head.biases"],
    ),
    open(
        "biases are absent",
        |s| without(s, "linear_attn.in_proj_z.biases"),
        &["in_proj_z.biases is missing", "in_proj_z.scales"],
    ),
    open(
        "codes without scales",
        |s| {
            s.remove("lm_head.scales");
            without(s, "lm_head.biases");
        },
        &["tensor language_model.lm_head.weight", "lm_head.scales beside it", "U32"],
    ),
    open(
        "codes of a float type",
        |s| dtype(s, "lm_head.weight", Dtype::F32),
        &["tensor language_model.lm_head.weight", "U32", "found type F32"],
    ),
    open(
        "scales of an integer type",
        |s| dtype(s, "lm_head.scales", Dtype::I16),
        &["tensor language_model.lm_head.scales", "BF16, F16 or F32", "I16"],
    ),
    open(
        "biases of another type than scales",
        |s| dtype(s, "lm_head.biases", Dtype::F16),
        &["lm_head.biases", "as the scales have", "F16"],
    ),
    open(
        "a norm of an integer type",
        |s| dtype(s, "layers.3.self_attn.q_norm.weight", Dtype::U16),
        &["self_attn.q_norm.weight", "U16"],
    ),
    open(
        "a router in 8-bit floats",
        |s| dtype(s, "layers.0.mlp.gate.weight", Dtype::F8E5m2),
        &["layers.0.mlp.gate.weight", "F8_E5M2"],
    ),
    open(
        "a dense weight of another shape",
        |s| shape(s, "layers.0.mlp.gate.weight", &[64, 8]),
        &["mlp.gate.weight", "[8, 64]", "[64, 8]"],
    ),
    open(
        "codes of another shape",
        |s| shape(s, "embed_tokens.weight", &[319, 8]),
        &["embed_tokens.weight", "[320, 8] (4 bits)", "[319, 8]"],
    ),
    open("codes of three bits", |s| shape(s, "embed_tokens.weight", &[320, 6]), &["embed_tokens.weight", "[320, 6]"]),
    open("codes of no bits", |s| shape(s, "embed_tokens.weight", &[320, 0]), &["embed_tokens.weight", "[320, 0]"]),
    open(
        "one group for 16 inputs",
        |s| shape(s, "embed_tokens.scales", &[320, 4]),
        &["embed_tokens.scales", "groups of 64", "[320, 4]"],
    ),
    open("no groups", |s| shape(s, "embed_tokens.scales", &[320, 0]), &["embed_tokens.scales", "[320, 0]"]),
    open(
        "scales of another number of rows",
        |s| shape(s, "embed_tokens.scales", &[321, 1]),
        &["embed_tokens.scales", "[321, 1]"],
    ),
    open(
        "biases of another shape",
        |s| shape(s, "embed_tokens.biases", &[320, 2]),
        &["embed_tokens.biases", "as the scales have", "[320, 2]"],
    ),
    open(
        "one expert too few",
        |s| shape(s, "layers.2.mlp.switch_mlp.down_proj.weight", &[7, 64, 8]),
        &["layers.2.mlp.switch_mlp.down_proj.weight", "[8, 64, 8]", "[7, 64, 8]"],
    ),
    open(
        "a convolution of five taps",
        |s| shape(s, "layers.0.linear_attn.conv1d.weight", &[128, 5, 1]),
        &["linear_attn.conv1d.weight", "[128, 4, 1] or [128, 1, 4]", "[128, 5, 1]"],
    ),
    open(
        "a vector with too many dimensions",
        |s| shape(s, "layers.0.linear_attn.A_log", &[1; 12]),
        &["A_log", "of 12 dimensions"],
    ),
    open(
        "a multiplier in floats",
        |s| dtype(s, "layer_multipliers", Dtype::F64),
        &["layer_multipliers", "type I64", "F64"],
    ),
    open("a table too few", |s| shape(s, "ngram_heads_vocab_sizes", &[3]), &["ngram_heads_vocab_sizes", "[4]", "[3]"]),
    open(
        "another prime",
        |s| integer(s, "ngram_heads_vocab_sizes", 2, 111),
        &["ngram_heads_vocab_sizes", "107 at place 2", "found 111"],
    ),
    open("a negative multiplier", |s| integer(s, "layer_multipliers", 0, -1), &["layer_multipliers", "found -1"]),
    open(
        "a stream norm that is not a number",
        |s| poison(s, "layers.1.attn_hyper_connection.hc_norm.weight", 3, 0x7FC0),
        &["layers.1.attn_hyper_connection.hc_norm.weight", "NaN", "element 3"],
    ),
    open(
        "a layer with experts of another format",
        |s| {
            for ending in ["scales", "biases"] {
                s.tensor(&format!("layers.2.mlp.switch_mlp.up_proj.{ending}")).shape = vec![8, 64, 2];
            }
            s.config["quantization"]["model.layers.2.mlp.switch_mlp.up_proj"] = json!({ "bits": 4, "group_size": 32 });
            s.write();
        },
        &["tensor model.layers.2.mlp.switch_mlp", "formats of layer 0", "4-bit groups of 32"],
    ),
    open(
        "an n-gram shard of another format",
        |s| {
            let base = "model.layers.1.ple.ple_embedding.ngram_embedding.shard_1";
            s.tensor("shard_1.weight").shape[1] *= 2;
            s.config["quantization"][base] = json!({ "bits": 8, "group_size": 32 });
            s.write();
        },
        &["ngram_embedding.shard_1", "shard 0 (4-bit", "found 8-bit"],
    ),
];

fn without(small: &mut Small, ending: &str) {
    small.remove(ending);
    small.write();
}

fn dtype(small: &mut Small, ending: &str, dtype: Dtype) {
    let tensor = small.tensor(ending);
    tensor.dtype = dtype;
    tensor.content = None;
    small.write();
}

fn shape(small: &mut Small, ending: &str, shape: &[u64]) {
    let tensor = small.tensor(ending);
    tensor.shape = shape.to_vec();
    tensor.content = None;
    small.write();
}

fn integer(small: &mut Small, ending: &str, place: usize, value: i64) {
    let content = small.tensor(ending).content.as_mut().unwrap();
    content[8 * place..8 * place + 8].copy_from_slice(&value.to_le_bytes());
    small.write();
}

fn quantization(small: &mut Small, field: &str, value: Value) {
    small.config["quantization"][field] = value;
    small.write();
}

const CONFIGS: &[Case] = &[
    open(
        "a llama",
        |s| {
            s.config["model_type"] = json!("llama");
            s.write();
        },
        &["config.json: model_type is \"llama\"", "expected \"qwen4_exp\""],
    ),
    open(
        "no model type",
        |s| {
            s.config.as_object_mut().unwrap().shift_remove("model_type");
            s.write();
        },
        &["config.json: model_type is absent"],
    ),
    open("another text model", |s| text(s, "model_type", json!("qwen3_5_text")), &["model_type is \"qwen3_5_text\""]),
    open(
        "no text model",
        |s| {
            s.config.as_object_mut().unwrap().shift_remove("text_config");
            s.write();
        },
        &["config.json: text_config must be an object"],
    ),
    open(
        "tied embeddings",
        |s| {
            s.config["tie_word_embeddings"] = json!(true);
            s.write();
        },
        &["config.json: tie_word_embeddings must be false, found true"],
    ),
    open(
        "a group of none",
        |s| quantization(s, "group_size", json!(0)),
        &["config.json: quantization.group_size", "found 0"],
    ),
    open(
        "half a quantisation",
        |s| quantization(s, "group_size", Value::Null),
        &["config.json: quantization.group_size"],
    ),
    open("another mode", |s| quantization(s, "mode", json!("mxfp4")), &["config.json: quantization.mode", "mxfp4"]),
    open(
        "another group for all",
        |s| quantization(s, "group_size", json!(32)),
        &["config.json: quantization must be", "group_size 64", "group_size 32"],
    ),
    open(
        "other bits for all",
        |s| quantization(s, "bits", json!(8)),
        &["config.json: quantization must be", "bits 4", "found bits 8"],
    ),
    open(
        "other bits for one",
        |s| quantization(s, "lm_head", json!({ "bits": 6, "group_size": 64 })),
        &["config.json: quantization.lm_head", "bits 4", "bits 6"],
    ),
    open(
        "not quantised, it says",
        |s| quantization(s, "model.embed_tokens", json!(false)),
        &["config.json: quantization.model.embed_tokens", "found false"],
    ),
    open(
        "quantised, it says",
        |s| quantization(s, "language_model.model.layers.0.mlp.gate", json!({ "bits": 8, "group_size": 64 })),
        &["config.json: quantization.model.layers.0.mlp.gate", "no scales"],
    ),
    open(
        "a module's entry is text",
        |s| quantization(s, "model.embed_tokens", json!("four")),
        &["quantization.model.embed_tokens", "an object or false"],
    ),
    open(
        "quantisation is a list",
        |s| {
            s.config["quantization"] = json!([64, 4]);
            s.write();
        },
        &["config.json: quantization must be an object"],
    ),
    open(
        "shards that do not divide the rows",
        |s| text(s, "split_ngram_parts", json!(8)),
        &["text_config.split_ngram_parts", "420 n-gram rows", "found 8"],
    ),
];

fn nan_head(small: &mut Small) {
    poison(small, "lm_head.scales", 5, 0x7FC0);
}

fn vision(checkpoint: &Checkpoint) -> Result<()> {
    checkpoint.read_f32("vision_tower.merger.norm.bias").map(drop)
}

/// Reads one expert into a slot.
fn expert(checkpoint: &Checkpoint, layer: usize, expert: u32) -> Result<()> {
    let mut slot = vec![0; checkpoint.expert_layout().bytes as usize];
    checkpoint.read_expert(layer, expert, &mut slot)
}

const READS: &[Case] = &[
    read(
        "NaN among scales",
        nan_head,
        |c| c.read_linear("lm_head").map(drop),
        &["model-00001.safetensors: tensor language_model.lm_head.scales", "NaN", "element 5"],
    ),
    read(
        "an infinite bias",
        |s| poison(s, "layers.0.linear_attn.out_proj.biases", 0, 0xFF80),
        |c| c.read_linear("model.layers.0.linear_attn.out_proj").map(drop),
        &["linear_attn.out_proj.biases", "an infinity"],
    ),
    read(
        "NaN in a router",
        |s| poison(s, "layers.3.mlp.gate.weight", 70, 0x7F81),
        |c| c.read_linear("model.layers.3.mlp.gate").map(drop),
        &["layers.3.mlp.gate.weight", "NaN", "element 70"],
    ),
    read(
        "NaN in a norm",
        |s| poison(s, "layers.3.self_attn.indexer.k_layernorm.weight", 31, 0xFFFF),
        |c| c.read_f32("model.layers.3.self_attn.indexer.k_layernorm.weight").map(drop),
        &["indexer.k_layernorm.weight", "NaN", "element 31"],
    ),
    read(
        "NaN in an expert",
        |s| poison(s, "layers.2.mlp.switch_mlp.down_proj.scales", 64 * 6 + 9, 0x7FFF),
        |c| expert(c, 2, 6),
        &["language_model.model.layers.2.mlp.switch_mlp.down_proj.scales", "NaN", "expert 6, row 9, column 0"],
    ),
    read(
        "an infinity in an expert of the MTP layer",
        |s| poison(s, "mtp.layers.0.mlp.switch_mlp.gate_proj.biases", 63, 0x7F80),
        |c| expert(c, 4, 0),
        &["mtp.safetensors: tensor mtp.layers.0.mlp.switch_mlp.gate_proj.biases", "an infinity", "expert 0, row 63"],
    ),
    read(
        "integers read as numbers",
        Small::write_it,
        |c| c.read_f32("model.layers.1.ple.ple_embedding.layer_multipliers").map(drop),
        &["layer_multipliers", "BF16, F16 or F32", "I64"],
    ),
    read(
        "a tensor that does not exist",
        Small::write_it,
        |c| c.read_f32("model.norm.weight").map(drop),
        &["no tensor model.norm.weight"],
    ),
    read(
        "a weight that does not exist",
        Small::write_it,
        |c| c.linear("model.norm").map(drop),
        &["no weight model.norm"],
    ),
    read("no tokenizer", Small::write_it, |c| c.tokenizer_path().map(drop), &["tokenizer.json is missing", "copy it"]),
    read(
        "the tokenizer is a directory",
        |s| {
            s.write();
            fs::create_dir(s.path("tokenizer.json")).unwrap();
        },
        |c| c.tokenizer_path().map(drop),
        &["tokenizer.json is a directory"],
    ),
    read("no template", Small::write_it, |c| c.chat_template().map(drop), &["chat_template.jinja is missing", "--raw"]),
    read(
        "a template that is not text",
        |s| {
            s.write();
            fs::write(s.path("chat_template.jinja"), [0xFF, 0xFE]).unwrap();
        },
        |c| c.chat_template().map(drop),
        &["chat_template.jinja: cannot read", "utf-8"],
    ),
    read(
        "generation settings that are not JSON",
        |s| {
            s.write();
            fs::write(s.path("generation_config.json"), "eos: 1").unwrap();
        },
        |c| c.stop_ids().map(drop),
        &["generation_config.json is not valid JSON"],
    ),
    read(
        "a stop id past the vocabulary",
        |s| {
            s.write();
            fs::write(s.path("generation_config.json"), r#"{"eos_token_id":[300,320]}"#).unwrap();
        },
        |c| c.stop_ids().map(drop),
        &["generation_config.json: eos_token_id", "below 320"],
    ),
    read(
        "no stop id at all",
        |s| {
            s.write();
            fs::write(s.path("generation_config.json"), r#"{"eos_token_id":[]}"#).unwrap();
        },
        |c| c.stop_ids().map(drop),
        &["generation_config.json: eos_token_id", "[]"],
    ),
    read(
        "a file that shrank after it was opened",
        |s| {
            s.tensors.sort_by_key(|tensor| tensor.name.starts_with("vision_tower.merger.norm.bias"));
            s.write();
        },
        |c| {
            let last = c.files().iter().max_by_key(|file| file.path().to_owned()).unwrap();
            let main = c.tensor("vision_tower.merger.norm.bias").unwrap();
            assert_ne!(last.path(), c.file(main.range.file)?.path(), "the MTP file comes last");
            let file = fs::OpenOptions::new().write(true).open(c.file(main.range.file)?.path()).unwrap();
            file.set_len(main.range.offset + 10).unwrap();
            vision(c)
        },
        &["model-00003.safetensors: the file ends early", "expected 64 bytes", "found 10"],
    ),
];

impl Small {
    /// Writes it unchanged.
    fn write_it(&mut self) {
        self.write();
    }
}

#[test]
fn every_bad_model_gives_one_sentence_that_names_file_and_tensor() {
    let tables = [FILES, INDICES, HEADERS, TENSORS, CONFIGS, READS];
    let cases: Vec<&Case> = tables.into_iter().flatten().collect();
    assert!(cases.len() >= 40);
    for case in cases {
        let mut small = Small::new();
        (case.make)(&mut small);
        let is_read = READS.iter().any(|read| std::ptr::eq(read, case));
        let opened = small.open();
        assert_eq!(opened.is_ok(), is_read, "{}: {opened:?}", case.name);
        let error = opened.and_then(|checkpoint| (case.ask)(&checkpoint)).expect_err(case.name);
        assert_sentence(case.name, &error.to_string(), case.says);
        let folder = small.dir().display().to_string();
        assert!(error.to_string().contains(&folder), "{}: no path in {error}", case.name);
        // The case with a file in the folder's place would not be cleaned up.
        if small.dir().is_file() {
            fs::remove_file(small.dir()).unwrap();
        }
    }
}

fn assert_sentence(name: &str, message: &str, says: &[&str]) {
    assert!(!message.contains(char::is_control), "{name}: more than a line: {message:?}");
    assert!(message.len() < 800, "{name}: too long: {message}");
    for part in says {
        assert!(message.contains(part), "{name}: {part:?} is not in: {message}");
    }
}

/// Fields outside the envelope of checkpoint.md section 8, with values that must be refused by the field's name.
fn envelope() -> Vec<(&'static str, Vec<Value>)> {
    let huge = json!(1u64 << 60);
    let kinds = |kind: &str| json!([kind, "linear_attention", "linear_attention", "full_attention"]);
    vec![
        (
            "hidden_size",
            vec![json!(48), json!(8224), json!(0), json!(-64), json!(64.5), json!("64"), Value::Null, huge.clone()],
        ),
        ("vocab_size", vec![json!((1 << 20) + 1), json!(1), huge.clone()]),
        ("num_hidden_layers", vec![json!(0), json!(1_000_000_000), json!(1e9), huge.clone()]),
        ("hc_count", vec![json!(1), json!(9)]),
        ("hc_lowrank", vec![json!(0), huge.clone()]),
        ("head_dim", vec![json!(16), json!(48), json!(288)]),
        ("indexer_head_dim", vec![json!(33), json!(512)]),
        ("linear_key_head_dim", vec![json!(31), json!(288)]),
        ("linear_value_head_dim", vec![json!(0), json!(40)]),
        ("linear_num_value_heads", vec![json!(0), json!(1000)]),
        ("num_attention_heads", vec![json!(3), json!(0)]),
        ("num_key_value_heads", vec![json!(0), json!(257)]),
        ("num_experts", vec![json!(0), json!(1025)]),
        ("num_experts_per_tok", vec![json!(0), json!(9), json!(17)]),
        ("indexer_compress_ratio", vec![json!(2), json!(5), json!(16), json!(0)]),
        ("indexer_budget", vec![json!(0), json!(3), json!(4097)]),
        ("indexer_n_heads", vec![json!(0), json!(65)]),
        ("indexer_kv_heads", vec![json!(2)]),
        ("linear_conv_kernel_dim", vec![json!(1), json!(5)]),
        ("ple_conv_kernel_size", vec![json!(1), json!(5)]),
        ("ngram_size", vec![json!(1), json!(5)]),
        ("heads_per_ngram", vec![json!(0), json!(33)]),
        ("ngram_vocab_size_base", vec![json!(0), huge.clone(), Value::Null]),
        ("make_ngram_vocab_size_divisible_by", vec![json!(0), huge.clone()]),
        ("split_ngram_parts", vec![json!(0), json!(5000)]),
        ("ple_embed_dim", vec![json!(130), json!(0)]),
        (
            "ple_layer_ids",
            vec![json!([0]), json!([4]), json!([5]), json!([2, 2]), json!([-1]), json!(2), json!(["2"]), json!([huge])],
        ),
        ("layer_types", vec![json!([]), json!("linear_attention"), kinds("sliding_attention"), json!([1, 2, 3, 4])]),
        ("eos_token_id", vec![json!(320), json!([]), json!(-1), Value::Null, json!("</s>")]),
        ("seed", vec![json!(-1), json!("x")]),
        ("rms_norm_eps", vec![json!(0), json!(-1e-6), json!(1), json!(1e-300), json!("1e-6"), Value::Null]),
        ("output_gate_type", vec![json!("tanh"), json!(1)]),
        ("hidden_act", vec![json!("gelu")]),
        ("attention_bias", vec![json!(true)]),
        ("norm_topk_prob", vec![json!(false)]),
        ("moe_intermediate_size", vec![json!(0), json!(1 << 17)]),
        ("shared_expert_intermediate_size", vec![json!(0)]),
        ("max_position_embeddings", vec![json!(0), Value::Null]),
        ("mtp_num_hidden_layers", vec![json!(2)]),
        ("mtp_use_dedicated_embeddings", vec![json!(true)]),
        ("tie_word_embeddings", vec![json!(true)]),
        ("rope_parameters", vec![json!("default")]),
    ]
}

#[test]
fn every_field_outside_the_envelope_is_refused_by_its_name() {
    let config = crate::small::config();
    let path = std::path::Path::new("some/config.json");
    assert!(ss_checkpoint::Geometry::from_config(&config, path).is_ok());
    for (field, values) in envelope() {
        for value in values {
            let mut bad = config.clone();
            bad["text_config"][field] = value.clone();
            let error = ss_checkpoint::Geometry::from_config(&bad, path);
            let message = error.map(drop).expect_err(&format!("{field} {value}")).to_string();
            assert_sentence(field, &message, &["some/config.json: ", field, " must be ", ", found "]);
        }
    }
}

#[test]
fn rotary_settings_outside_the_envelope_are_refused_by_their_name() {
    let config = crate::small::config();
    let cases = [
        ("rope_theta", json!(0)),
        ("rope_theta", json!(-1)),
        ("rope_theta", Value::Null),
        ("rope_type", json!("yarn")),
        ("partial_rotary_factor", json!(0)),
        ("partial_rotary_factor", json!(1)),
        ("partial_rotary_factor", json!(0.3)),
        ("partial_rotary_factor", Value::Null),
        ("mrope_interleaved", json!(false)),
        ("mrope_section", json!([3, 3, 3])),
        ("mrope_section", json!([8])),
        ("mrope_section", json!([u64::MAX, 1, 8])),
        ("mrope_section", json!([9, -1, 0])),
    ];
    for (field, value) in cases {
        let mut bad = config.clone();
        bad["text_config"]["rope_parameters"][field] = value;
        let error = ss_checkpoint::Geometry::from_config(&bad, "config.json".as_ref()).unwrap_err();
        assert_sentence(field, &error.to_string(), &["config.json: text_config.rope_parameters.", field]);
    }
    let mut bad = config;
    bad["text_config"]["mtp"] = json!({ "rope_theta": 5.0 });
    let error = ss_checkpoint::Geometry::from_config(&bad, "config.json".as_ref()).unwrap_err();
    assert_sentence("mtp", &error.to_string(), &["text_config.mtp.rope_theta", "10000000", "5.0"]);
}

#[test]
fn a_file_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let small = Small::new();
    small.write();
    fs::set_permissions(small.path(FIRST), fs::Permissions::from_mode(0o0)).unwrap();
    // The superuser may read everything.
    if File::open(small.path(FIRST)).is_err() {
        let error = small.open().unwrap_err().to_string();
        assert_sentence("permission", &error, &["model-00001.safetensors: cannot open", "ermission"]);
    }
}
