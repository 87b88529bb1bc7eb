//! Owns: where expert records are said to lie.
//! Refuses: nothing.
//! Invariants: pieces of all experts together are the tensors, each byte once.

use std::collections::BTreeSet;

use ss_checkpoint::Error;

use crate::small::Small;

#[test]
fn the_pieces_of_all_experts_tile_the_tensors_in_slot_order() {
    let small = Small::new();
    small.write();
    let checkpoint = small.open().unwrap();
    for layer in 0..=checkpoint.geometry().mtp_layer() {
        let files = checkpoint.experts(layer).unwrap();
        let spans: Vec<_> = files.layout.pieces().collect();
        let mut ranges = BTreeSet::new();
        for expert in 0..files.experts {
            let pieces: Vec<_> = files.pieces(expert).collect();
            assert_eq!(pieces.iter().map(|piece| piece.span).collect::<Vec<_>>(), spans);
            for piece in pieces {
                assert_eq!(piece.range.bytes, piece.span.bytes);
                assert!(ranges.insert((piece.range.file, piece.range.offset, piece.range.bytes)), "a byte range twice");
            }
        }
        let bytes: u64 = ranges.iter().map(|(.., bytes)| bytes).sum();
        let stored: u64 = checkpoint
            .tensors()
            .filter(|(name, _)| {
                name.starts_with(&if layer == 4 { "mtp.".into() } else { format!("model.layers.{layer}.") })
            })
            .filter(|(name, _)| name.contains("switch_mlp"))
            .map(|(_, info)| info.range.bytes)
            .sum();
        assert_eq!(bytes, stored);
    }
    assert!(checkpoint.experts(5).is_none());
}

#[test]
fn an_expert_that_does_not_exist_has_no_pieces_and_cannot_be_read() {
    let small = Small::new();
    small.write();
    let checkpoint = small.open().unwrap();
    assert_eq!(checkpoint.experts(0).unwrap().pieces(8).count(), 0);
    let mut slot = vec![0; checkpoint.expert_layout().bytes as usize];
    for (layer, expert) in [(0, 8), (5, 0), (usize::MAX, u32::MAX)] {
        assert!(matches!(checkpoint.read_expert(layer, expert, &mut slot), Err(Error::NoSuch { .. })));
    }
    assert!(checkpoint.read_expert(0, 0, &mut slot[1..]).is_err(), "a slot that is too small");
}
