//! Owns: the three models of the repository: they open, their numbers are what they were made of.
//! Refuses: other models.
//! Invariants: nothing here writes into a model directory.

use std::path::PathBuf;

use ss_checkpoint::{Checkpoint, Format, LayerKind, Naming, NormConvention, Report, Scalar, check_record};

fn open(model: &str) -> Checkpoint {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    Checkpoint::open(&root.join(model)).unwrap()
}

const NANO: &str = "models/flash-next-nano";
const DEV: &str = "tests/goldens/dev/model";
const ODD: &str = "tests/goldens/odd/model";

#[test]
fn all_three_open_whole_and_every_number_in_them_is_finite() {
    for model in [NANO, DEV, ODD] {
        let checkpoint = open(model);
        assert_eq!((checkpoint.naming(), checkpoint.norm_convention()), (Naming::Mlx, NormConvention::Folded));
        assert!(checkpoint.has_mtp());
        let mut slot = vec![0; checkpoint.expert_layout().bytes as usize];
        for layer in 0..=checkpoint.geometry().mtp_layer() {
            for expert in 0..checkpoint.geometry().experts {
                checkpoint.read_expert(layer, expert, &mut slot).unwrap();
                assert_eq!(check_record(checkpoint.expert_layout(), &slot), Ok(()));
            }
        }
        let report = Report::of(&checkpoint);
        assert_eq!(report.unused, [] as [&str; 0], "{model}");
        assert_eq!(report.warnings, [] as [&str; 0], "{model}");
        assert_eq!(report.released_totals_met, None);
        assert!(!report.missing.iter().any(|part| part.contains("tokenizer")));
    }
}

#[test]
fn inspect_says_what_is_missing_and_adds_up() {
    let report = Report::of(&open(NANO));
    assert_eq!(report.missing, ["vision_tower tensors (for images)"]);
    assert_eq!(report.totals.total, 21_600_040, "the index's own total_size");
    let totals = report.totals;
    assert_eq!(totals.resident + totals.experts + totals.ngram + totals.vision, totals.total);
    let text = report.to_string();
    for part in
        ["256 in 4 streams", "8 (6 gated delta, 2 sparse attention)", "64 of width 64, 6 a token", "another geometry"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(serde_json::to_value(&report).unwrap()["geometry"]["hidden"] == 256);
}

#[test]
fn the_odd_geometry_is_read_as_it_is() {
    let checkpoint = open(ODD);
    let g = checkpoint.geometry();
    assert_eq!((g.hidden, g.streams, g.stream_width()), (320, 2, 640));
    assert_eq!((g.heads, g.kv_heads, g.head_dim, g.rotary, g.mrope_section), (3, 1, 128, 32, [6, 5, 5]));
    assert_eq!((g.gdn_key_width(), g.gdn_value_width(), g.gdn_conv_width()), (96, 192, 384));
    assert_eq!((g.index_block, g.index_topk, g.index_width()), (4, 9, 320));
    assert_eq!((g.count(LayerKind::Gdn), g.count(LayerKind::Qsa), g.layer_kind(4)), (3, 1, LayerKind::Qsa));
    assert_eq!((g.ngram_heads(), g.ngram_row_width(), g.ple.as_slice()), (8, 32, &[1][..]));
    assert_eq!(g.ngram.boundary, 415);
    let shard = checkpoint.ngram_matrix(0).unwrap();
    assert_eq!(shard.format, Format::Affine { bits: 4, group: 32, scale: Scalar::Bf16 });
}

#[test]
fn an_expert_read_in_pieces_is_the_slice_of_the_stacked_tensors() {
    let checkpoint = open(DEV);
    let (layer, expert) = (5, 11);
    let layout = *checkpoint.expert_layout();
    let mut slot = vec![0; layout.bytes as usize];
    checkpoint.read_expert(layer, expert, &mut slot).unwrap();
    let parts = [("gate_proj", layout.gate), ("up_proj", layout.up), ("down_proj", layout.down)];
    for (name, part) in parts {
        for (ending, span) in [("weight", part.codes), ("scales", part.scales), ("biases", part.biases)] {
            let info = checkpoint.tensor(&format!("model.layers.{layer}.mlp.switch_mlp.{name}.{ending}")).unwrap();
            let mut whole = vec![0; info.range.bytes as usize];
            checkpoint.read(info.range, &mut whole).unwrap();
            let share = whole.len() / checkpoint.geometry().experts as usize;
            let wanted = &whole[expert as usize * share..][..share];
            assert_eq!(&slot[span.offset as usize..][..span.bytes as usize], wanted, "{name}.{ending}");
        }
    }
}

#[test]
fn a_row_of_a_weight_is_the_row_of_the_whole() {
    let checkpoint = open(NANO);
    let data = checkpoint.read_linear("model.embed_tokens").unwrap();
    let info = checkpoint.linear("model.embed_tokens").unwrap();
    for row in [0u32, 1, 4070, 4095] {
        let one = info.rows(row, 1).unwrap();
        assert_eq!(one.matrix.bytes(), one.ranges().map(|range| range.bytes).sum::<u64>());
        for (range, whole) in one.ranges().zip([&data.codes, &data.scales, &data.biases]) {
            let mut bytes = vec![0; range.bytes as usize];
            checkpoint.read(range, &mut bytes).unwrap();
            assert_eq!(bytes, whole[row as usize * bytes.len()..][..bytes.len()]);
        }
    }
    assert!(info.rows(4095, 2).is_none() && info.rows(u32::MAX, u32::MAX).is_none());
}

#[test]
fn hashed_rows_lie_inside_the_shards_and_the_last_one_is_reached() {
    for model in [NANO, DEV, ODD] {
        let checkpoint = open(model);
        let tables = checkpoint.ngram_tables(0).unwrap();
        let mut rows = vec![u64::MAX; tables.heads()];
        let vocab = checkpoint.geometry().vocab;
        for id in 0..vocab {
            tables.rows(&[id / 2, vocab - 1 - id], id, &mut rows);
            for &row in &rows {
                assert_eq!(checkpoint.ngram_row(0, row).unwrap().matrix.rows, 1);
            }
        }
        assert!(checkpoint.ngram_row(0, tables.rows - 1).is_ok());
        assert!(checkpoint.ngram_row(0, tables.rows).is_err() && checkpoint.ngram_row(1, 0).is_err());
    }
}

#[test]
fn stop_ids_template_and_tokenizer_are_found() {
    let checkpoint = open(NANO);
    assert_eq!(checkpoint.stop_ids().unwrap(), [4072, 4070]);
    assert!(checkpoint.chat_template().unwrap().contains("<|im_start|>"));
    assert!(checkpoint.tokenizer_path().unwrap().ends_with("tokenizer.json"));
    assert_eq!(checkpoint.geometry().ngram.boundary, 4070);
}
