//! Owns: the released geometry, held against the published figures; no weights are written.
//! Invariants: the figures are written out here again, so that a change of the code shows.

use ss_checkpoint::RELEASED;
use ss_synth::{NgramRows, Order, Plan, Source};

/// Bytes of routed experts in a layer: 512 records.
const LAYER_EXPERTS: u64 = 512 * 2_764_800;

fn plan(layers: u32) -> Plan {
    Plan::new(&Order { layers: Some(layers), ..Order::new(Source::Released) }).unwrap()
}

#[test]
fn forty_eight_layers_have_every_published_byte() {
    let whole = Plan::new(&Order::new(Source::Released)).unwrap();
    assert_eq!(whole.bytes() + whole.holes(), 103_769_745_912);
    assert_eq!(whole.holes(), 32_000_153_600);
    assert_eq!(whole.files(), 11);
    let full = Plan::new(&Order { ngrams: NgramRows::Full, ..Order::new(Source::Released) }).unwrap();
    assert_eq!((full.bytes(), full.holes()), (RELEASED.total, 0));
    let drafting = Plan::new(&Order { draft_head: true, ..Order::new(Source::Released) }).unwrap();
    assert_eq!(drafting.bytes() - whole.bytes(), 1_470_946_816);
}

#[test]
fn fewer_layers_are_the_same_layers() {
    // Four layers are three of Gated DeltaNet and one of sparse attention; forty-eight are twelve times that.
    let (four, six, eight, whole) = (plan(4), plan(6), plan(8), plan(48));
    let four_more = eight.bytes() - four.bytes();
    assert_eq!(whole.bytes() - four.bytes(), 11 * four_more);
    assert_eq!(four.holes(), RELEASED.ngram);
    assert_eq!(plan(1).holes(), 0, "the table goes with its layer");
    let two_more = six.bytes() - four.bytes();
    assert!(two_more > 2 * LAYER_EXPERTS && two_more < four_more / 2 + LAYER_EXPERTS / 10, "{two_more}");
    let resident = RELEASED.resident - 11 * (four_more - 4 * LAYER_EXPERTS);
    assert_eq!(four.bytes(), 4 * LAYER_EXPERTS + resident + RELEASED.vision);
}
