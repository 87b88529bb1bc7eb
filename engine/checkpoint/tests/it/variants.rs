//! Owns: the variants of the layout that must open: other namings, other formats, one file, raw norms, holes.
//! Refuses: nothing.
//! Invariants: each variant gives the same answers as the model it was made from.

use std::fs;

use serde_json::{Value, json};
use ss_checkpoint::imitation::{self, Tensor};
use ss_checkpoint::{Dtype, Format, GateKind, Naming, NormConvention, Report, Scalar};

use crate::small::Small;

fn bf16(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect()
}

#[test]
fn one_file_without_prefixes_index_or_extras() {
    let mut small = Small::new();
    small.mtp.clear();
    small.tensors.retain(|tensor| !tensor.name.starts_with("vision_tower."));
    for tensor in &mut small.tensors {
        tensor.name = tensor.name.strip_prefix("language_model.").unwrap().to_owned();
    }
    imitation::write_json(&small.path("config.json"), &small.config).unwrap();
    imitation::write_safetensors(&small.path("model.safetensors"), &small.tensors).unwrap();
    let checkpoint = small.open().unwrap();
    assert!(!checkpoint.has_mtp() && !checkpoint.has_vision());
    assert_eq!(checkpoint.linear("lm_head").unwrap().matrix.rows, 320);
    assert_eq!(Report::of(&checkpoint).missing.len(), 5);
}

#[test]
fn links_to_the_files_are_followed() {
    let small = Small::new();
    small.write();
    let elsewhere = tempfile::tempdir().unwrap();
    for file in ["model-00002.safetensors", "config.json"] {
        let target = elsewhere.path().join("blob-".to_owned() + file);
        fs::rename(small.path(file), &target).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(&target, small.path(file)).unwrap();
        #[cfg(windows)]
        std::os::windows::fs::symlink_file(&target, small.path(file)).unwrap();
    }
    small.open().unwrap();
}

#[test]
fn holes_between_tensors_are_allowed() {
    let small = Small::new();
    small.write();
    small.edit_header("mtp.safetensors", |header| {
        for entry in header.as_object_mut().unwrap().values_mut() {
            if let Some(offsets) = entry.get_mut("data_offsets") {
                *offsets = json!([offsets[0].as_u64().unwrap() + 64, offsets[1].as_u64().unwrap() + 64]);
            }
        }
    });
    let (header, data) = small.header("mtp.safetensors");
    small.write_header("mtp.safetensors", &header, &[vec![0xAA; 64], data].concat());
    let checkpoint = small.open().unwrap();
    assert_eq!(checkpoint.read_f32("mtp.pre_fc_norm_embedding.weight").unwrap(), [1.0; 64]);
}

#[test]
fn raw_norms_are_recognised_by_their_mean_and_one_is_added() {
    let mut small = Small::new();
    for tensor in small.tensors.iter_mut().chain(&mut small.mtp) {
        let length = tensor.shape[0] as usize;
        match tensor.name.as_str() {
            name if name.ends_with("linear_attn.norm.weight") => tensor.content = Some(bf16(&[0.75].repeat(length))),
            name if name.contains("norm") && tensor.shape.len() == 1 => {
                tensor.content = Some(bf16(&[-0.125].repeat(length)))
            }
            _ => {}
        }
    }
    small.write();
    let checkpoint = small.open().unwrap();
    assert_eq!(checkpoint.norm_convention(), NormConvention::Raw);
    for centred in [
        "model.hyper_connection_mixer.hc_norm.weight",
        "model.layers.3.self_attn.indexer.k_layernorm.weight",
        "model.layers.1.ple.norm_conv.weight",
        "mtp.pre_fc_norm_hidden.weight",
        "mtp.layers.0.self_attn.q_norm.weight",
    ] {
        assert!(checkpoint.read_f32(centred).unwrap().iter().all(|&value| value == 0.875), "{centred}");
    }
    let plain = checkpoint.read_f32("model.layers.0.linear_attn.norm.weight").unwrap();
    assert!(plain.iter().all(|&value| value == 0.75), "this norm has no one in it in either convention");
}

#[test]
fn a_raw_mtp_file_beside_a_folded_model_is_told_apart() {
    let mut small = Small::new();
    for tensor in &mut small.mtp {
        if tensor.name.contains("norm") {
            tensor.content = None;
        }
    }
    small.write();
    let checkpoint = small.open().unwrap();
    assert_eq!(checkpoint.norm_convention(), NormConvention::Folded);
    assert_eq!(checkpoint.read_f32("mtp.pre_fc_norm_embedding.weight").unwrap(), [1.0; 64]);
    assert_eq!(checkpoint.read_f32("model.layers.3.self_attn.q_norm.weight").unwrap(), [1.0; 64]);
}

/// Turns the small model into what the original BF16 checkpoint looks like (checkpoint.md section 5).
fn original(small: &mut Small) {
    let rename = |name: &str| {
        let name = name.strip_prefix("language_model.").unwrap_or(name);
        match name {
            _ if name.starts_with("vision_tower.") => name.replacen("vision_tower.", "model.visual.", 1),
            _ if name.starts_with("model.") => name.replacen("model.", "model.language_model.", 1),
            _ => name.to_owned(),
        }
    };
    let dense = |tensor: &Tensor| -> Option<Tensor> {
        let mut tensor = tensor.clone();
        tensor.name = rename(&tensor.name);
        if tensor.name.ends_with(".scales") || tensor.name.ends_with(".biases") {
            return None;
        }
        if tensor.dtype == Dtype::U32 {
            tensor.dtype = Dtype::Bf16;
            *tensor.shape.last_mut().unwrap() *= 8;
        }
        if tensor.name.ends_with("conv1d.weight") {
            tensor.shape.swap(1, 2);
        }
        if tensor.name.contains("norm") && !tensor.name.contains("linear_attn.norm") && tensor.dtype == Dtype::Bf16 {
            tensor.content = None;
        }
        if let Some(base) = tensor.name.strip_suffix(".switch_mlp.down_proj.weight") {
            tensor.name = format!("{base}.experts.down_proj");
        } else if let Some(base) = tensor.name.strip_suffix(".switch_mlp.gate_proj.weight") {
            tensor.name = format!("{base}.experts.gate_up_proj");
            tensor.shape[1] *= 2;
            // Numbers that say where they are: expert and half.
            let (experts, half) = (tensor.shape[0], (tensor.shape[1] / 2 * tensor.shape[2]) as usize);
            let of = |expert: u64| [vec![expert as f32; half], vec![expert as f32 + 0.5; half]].concat();
            tensor.content = Some((0..experts).flat_map(|expert| bf16(&of(expert))).collect());
        } else if tensor.name.ends_with(".switch_mlp.up_proj.weight") {
            return None;
        }
        Some(tensor)
    };
    small.tensors = small.tensors.iter().filter_map(dense).collect();
    small.mtp = small.mtp.iter().filter_map(dense).collect();
    small.config.as_object_mut().unwrap().shift_remove("quantization");
}

#[test]
fn the_original_bf16_names_fused_experts_and_raw_norms_are_understood() {
    let mut small = Small::new();
    original(&mut small);
    small.write();
    let checkpoint = small.open().unwrap();
    assert_eq!((checkpoint.naming(), checkpoint.norm_convention()), (Naming::HuggingFace, NormConvention::Raw));
    assert_eq!(checkpoint.read_f32("model.layers.0.mlp_hyper_connection.hc_norm.weight").unwrap(), [1.0; 128]);
    let layout = *checkpoint.expert_layout();
    assert_eq!(layout.pieces().count(), 3);
    let mut slot = vec![0; layout.bytes as usize];
    for layer in [2, 4] {
        checkpoint.read_expert(layer, 5, &mut slot).unwrap();
        let part = |span: ss_checkpoint::Span| &slot[span.offset as usize..][..span.bytes as usize];
        assert_eq!(part(layout.gate.codes), bf16(&[5.0].repeat(64 * 64)));
        assert_eq!(part(layout.up.codes), bf16(&[5.5].repeat(64 * 64)));
    }
    let row = checkpoint.ngram_row(0, 7).unwrap();
    assert_eq!(row.ranges().count(), 1);
    assert_eq!(Report::of(&checkpoint).unused, [] as [&str; 0]);
    let bad = ss_checkpoint::check_record(&layout, &[0xFF].repeat(layout.bytes as usize)).unwrap_err();
    assert!(
        checkpoint.bad_record(2, 5, bad).to_string().contains("model.language_model.layers.2.mlp.experts.gate_up_proj")
    );
}

/// Replaces a 4-bit weight by one of 8 bits.
fn eight_bits(small: &mut Small, base: &str, group: u64) {
    let weight = small.tensor(&format!("{base}.weight"));
    *weight.shape.last_mut().unwrap() *= 2;
    let cols = weight.shape.last().unwrap() * 4;
    for ending in ["scales", "biases"] {
        *small.tensor(&format!("{base}.{ending}")).shape.last_mut().unwrap() = cols / group;
    }
}

#[test]
fn formats_come_from_the_tensors_weight_by_weight() {
    let mut small = Small::new();
    eight_bits(&mut small, "layers.2.linear_attn.in_proj_z", 32);
    small.config["quantization"]["model.layers.2.linear_attn.in_proj_z"] = json!({ "bits": 8, "group_size": 32 });
    // A router of 8 bits, as other conversions have it.
    let router = small.tensor("layers.3.mlp.gate.weight");
    let name = router.name.strip_suffix("weight").unwrap().to_owned();
    (router.dtype, router.shape) = (Dtype::U32, vec![8, 16]);
    for ending in ["scales", "biases"] {
        small.tensors.push(Tensor::zeros(format!("{name}{ending}"), Dtype::F16, [8, 1]));
    }
    small.config["quantization"]["language_model.model.layers.3.mlp.gate"] = json!({ "bits": 8, "group_size": 64 });
    // A head left dense, which the configuration says too.
    small.remove("lm_head.scales");
    small.remove("lm_head.biases");
    let head = small.tensor("lm_head.weight");
    (head.dtype, head.shape) = (Dtype::F32, vec![320, 64]);
    small.config["quantization"]["lm_head"] = json!(false);
    small.tensor("layers.0.linear_attn.A_log").dtype = Dtype::F32;
    small.write();
    let checkpoint = small.open().unwrap();
    let format = |base: &str| checkpoint.linear(base).unwrap().matrix.format;
    let affine = |bits, group, scale| Format::Affine { bits, group, scale };
    assert_eq!(format("model.layers.2.linear_attn.in_proj_z"), affine(8, 32, Scalar::Bf16));
    assert_eq!(format("model.layers.3.mlp.gate"), affine(8, 64, Scalar::F16));
    assert_eq!(format("model.layers.2.mlp.gate"), Format::Dense(Scalar::Bf16));
    assert_eq!(format("lm_head"), Format::Dense(Scalar::F32));
    assert_eq!(format("model.layers.1.ple.ple_embedding.ngram_embedding.shard_2"), affine(4, 32, Scalar::Bf16));
    assert_eq!(checkpoint.read_linear("lm_head").unwrap().codes.len(), 320 * 64 * 4);
    assert_eq!(checkpoint.read_f32("model.layers.0.linear_attn.A_log").unwrap(), [0.0; 2]);
}

#[test]
fn experts_may_be_eight_bits_and_the_mtp_layers_may_differ() {
    let mut small = Small::new();
    for layer in 0..4 {
        for projection in ["gate", "up", "down"] {
            let base = format!("layers.{layer}.mlp.switch_mlp.{projection}_proj");
            for ending in ["weight", "scales", "biases"] {
                let name = format!("language_model.model.{base}.{ending}");
                let tensor = small.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
                *tensor.shape.last_mut().unwrap() *= if ending == "weight" { 2 } else { 1 };
            }
            small.config["quantization"][format!("model.{base}")] = json!({ "bits": 8, "group_size": 64 });
        }
    }
    small.write();
    let checkpoint = small.open().unwrap();
    let record = |layer: usize| checkpoint.experts(layer).unwrap().layout.bytes;
    assert_eq!(record(0), checkpoint.expert_layout().bytes);
    assert_eq!(record(0), 3 * (64 * 64 + 2 * 64 * 2));
    assert_eq!(record(4), 3 * (64 * 32 + 2 * 64 * 2));
}

#[test]
fn integer_buffers_may_be_absent_and_are_recomputed() {
    let mut small = Small::new();
    for name in ["layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"] {
        small.remove(name);
    }
    small.write();
    assert_eq!(small.open().unwrap().ngram_tables(0).unwrap().sizes, [101, 103, 107, 109]);
}

#[test]
fn strangers_are_listed_and_left_alone() {
    let mut small = Small::new();
    small.tensors.push(Tensor::zeros("language_model.model.layers.0.extra.weight", Dtype::F8E4m3, [3]));
    small.write();
    small.edit("model.safetensors.index.json", |index| {
        let map = index["weight_map"].as_object_mut().unwrap();
        map.retain(|name, _| !name.starts_with("vision_tower.patch"));
    });
    let checkpoint = small.open().unwrap();
    assert_eq!(Report::of(&checkpoint).unused, ["language_model.model.layers.0.extra.weight"]);
    assert!(checkpoint.warnings().iter().any(|w| w.contains("2 tensors are not in model.safetensors.index.json")));
    assert!(checkpoint.warnings().iter().any(|w| w.contains("total_size")));
}

#[test]
fn a_configuration_may_leave_out_what_has_one_meaning() {
    let mut small = Small::new();
    let text = small.config["text_config"].as_object_mut().unwrap();
    for field in
        ["layer_types", "output_gate_type", "norm_topk_prob", "attention_bias", "hidden_act", "mtp_num_hidden_layers"]
    {
        text.shift_remove(field);
    }
    text["rope_parameters"].as_object_mut().unwrap().shift_remove("mrope_section");
    text["eos_token_id"] = json!([300, 302]);
    small.config.as_object_mut().unwrap().shift_remove("quantization");
    small.write();
    let checkpoint = small.open().unwrap();
    let g = checkpoint.geometry();
    assert_eq!((g.gate, g.mrope_section, g.ngram.boundary, g.ngram.seed), (GateKind::Sigmoid, [3, 3, 2], 300, 1234));
    assert!(checkpoint.warnings()[0].contains("quantization is absent"));
    assert_eq!(checkpoint.stop_ids().unwrap(), [300, 302], "from text_config, as there is no generation_config.json");
}

#[test]
fn a_text_only_configuration_is_the_text_part_itself() {
    let mut small = Small::new();
    let mut text = small.config["text_config"].take();
    text["quantization"] = small.config["quantization"].take();
    small.config = text;
    small.write();
    assert_eq!(small.open().unwrap().geometry().hidden, 64);
}

#[test]
fn a_template_inside_the_tokenizers_configuration_is_used_when_there_is_no_file() {
    let small = Small::new();
    small.write();
    imitation::write_json(&small.path("tokenizer_config.json"), &json!({ "chat_template": "{{ messages }}" })).unwrap();
    assert_eq!(small.open().unwrap().chat_template().unwrap(), "{{ messages }}");
    fs::write(small.path("chat_template.jinja"), "file").unwrap();
    assert_eq!(small.open().unwrap().chat_template().unwrap(), "file");
    assert_eq!(small.open().unwrap().generation_config().unwrap(), None::<Value>);
}
