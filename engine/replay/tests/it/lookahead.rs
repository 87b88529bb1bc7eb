//! Owns: what lookahead is worth in a replay: by hand in small traces, and nothing where nothing is forecast.

use std::time::Duration;

use ss_replay::{Comparison, Pace, Policy, Shape, Token, Trace, compare, simulate};
use ss_stream::LookaheadOptions;

use crate::{Random, expected, random, token};

/// Two layers whose experts all fit, two of them a token.
const SMALL: Shape = Shape { layers: 2, experts: 8, choices: 2, record_bytes: 1 };

fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// A layer takes 100 us, a first byte 10.
fn pace(record: u64) -> Pace {
    Pace { layer: us(100), record: us(record), latency: us(10) }
}

/// Tokens, each as its choices in all layers and what the layers behind the first are expected to choose.
fn foretold(shape: Shape, tokens: &[(&[u16], &[u16])]) -> Trace {
    let mut trace = Trace::new(shape);
    for (pass, (chosen, ahead)) in (0..).zip(tokens) {
        trace.push(&Token { expected: expected(shape, ahead), ..token(pass, chosen) });
    }
    trace
}

fn compared(trace: &Trace, slots: u32, pace: Pace, lookahead: LookaheadOptions) -> Comparison {
    compare(trace, Policy::Clock, slots, (pace, lookahead), &mut |_, _| ()).unwrap()
}

#[test]
fn a_record_that_lands_while_a_layer_runs_is_there_when_it_is_chosen() {
    let trace = foretold(SMALL, &[(&[0, 1, 2, 4], &[2, 4])]);
    let Comparison { off, on, .. } = compared(&trace, 16, pace(50), LookaheadOptions::default());
    // Two records by 110, the next choice at 210, two more by 320, the next token at 420.
    assert_eq!((off.took, off.counts.misses), (us(420), 4));
    // Expert 2 comes behind the first two, at 160; expert 4, the last choice, is not asked for and comes at 270.
    assert_eq!((on.took, on.counts.misses, on.counts.hits), (us(370), 3, 1));
    assert_eq!((on.early.issued, on.early.adopted, on.early.joined, on.in_vain()), (1, 1, 0, 0));
    assert_eq!((off.early.issued, off.counts.hits), (0, 0));
}

#[test]
fn a_record_that_is_on_its_way_is_waited_for_and_not_read_again() {
    let trace = foretold(SMALL, &[(&[0, 1, 2, 4], &[2, 4]), (&[2, 3, 2, 5], &[5, 2])]);
    let both = compared(&trace, 16, pace(150), LookaheadOptions::default());
    // The second token, the first half being the warm-up. It begins at 820 without, 710 with lookahead.
    // Without: two records by 1130, the choice at 1230, expert 5 by 1390.
    assert_eq!((both.off.took, both.off.counts.misses, both.off.counts.hits), (us(1490 - 820), 3, 1));
    // With: two by 1020, expert 5 behind them by 1170, the choice at 1120.
    assert_eq!((both.on.took, both.on.counts.misses, both.on.counts.hits), (us(1270 - 710), 2, 1));
    assert_eq!((both.on.early.issued, both.on.early.adopted, both.on.early.joined), (1, 0, 1));
    assert!((both.rate() - 670.0 / 560.0).abs() < 1e-12);
    assert_eq!((both.on.us_a_token(), both.on.a_token(both.on.counts.misses)), (560.0, 2.0));
}

#[test]
fn a_wrong_forecast_delays_what_is_demanded_and_counts_when_it_has_been_read() {
    let trace = foretold(SMALL, &[(&[0, 1, 2, 4], &[5, 2])]);
    let Comparison { off, on, .. } = compared(&trace, 16, pace(150), LookaheadOptions::default());
    // Expert 5 comes by 460, so that 2 and 4, chosen at 410, come by 760 and not by 720.
    assert_eq!((off.took, on.took), (us(820), us(860)));
    assert_eq!((on.counts.misses, on.early.issued, on.early.expired, on.in_vain()), (4, 1, 1, 1));
}

#[test]
fn an_early_read_that_found_no_lane_is_left_to_the_demand() {
    let shape = Shape { choices: 3, ..SMALL };
    let trace = foretold(shape, &[(&[0, 1, 2, 3, 4, 6], &[3, 4, 5])]);
    let lookahead = LookaheadOptions { lanes: 1, ..LookaheadOptions::default() };
    let Comparison { off, on, .. } = compared(&trace, 16, pace(150), lookahead);
    // Three by 460, the choice at 560, three by 1020.
    assert_eq!((off.took, off.counts.misses), (us(1120), 6));
    // Expert 3 by 610; 4 is still queued at 560, and comes with 6 by 910.
    assert_eq!((on.took, on.counts.misses), (us(1010), 5));
    assert_eq!((on.early.issued, on.early.joined, on.early.expired, on.in_vain()), (2, 1, 0, 0));
}

#[test]
fn what_has_a_slot_and_what_is_too_close_is_not_asked_for() {
    let trace = foretold(SMALL, &[(&[0, 1, 2, 4], &[2, 4]), (&[0, 1, 2, 4], &[2, 4])]);
    let second = compared(&trace, 16, pace(50), LookaheadOptions::default()).on;
    assert_eq!((second.early.issued, second.counts.hits, second.took), (0, 4, us(200)), "all of it is there");
    let strict = LookaheadOptions { margin: 1.5, ..LookaheadOptions::default() };
    let first = foretold(SMALL, &[(&[0, 1, 2, 4], &[2, 4])]);
    assert_eq!(compared(&first, 16, pace(50), strict).on.early.issued, 0);
    assert_eq!(compared(&first, 7, pace(50), LookaheadOptions::default()).on.early.issued, 0, "no slot to spare");
}

const SHAPE: Shape = Shape { layers: 4, experts: 24, choices: 4, record_bytes: 1 };

/// Random tokens; what is expected is what is chosen, `wrong` experts further.
fn told(tokens: u32, seed: u64, wrong: u16) -> Trace {
    let (mut random, mut trace) = (Random(seed), Trace::new(SHAPE));
    for pass in 0..tokens {
        let chosen: Vec<u16> = (0..SHAPE.layers).flat_map(|_| random.experts(SHAPE)).collect();
        let ahead: Vec<u16> = chosen[4..].iter().map(|expert| (expert + wrong) % 24).collect();
        trace.push(&Token { expected: expected(SHAPE, &ahead), ..token(pass, &chosen) });
    }
    trace
}

#[test]
fn without_forecasts_on_is_off_and_off_is_what_a_replay_finds() {
    for seed in 0..12 {
        let trace = random(SHAPE, 60, seed);
        for policy in Policy::ALL {
            for slots in [12, 24, 48] {
                let setting = (pace(50), LookaheadOptions::default());
                let both = compare(&trace, policy, slots, setting, &mut |_, _| ()).unwrap();
                assert_eq!(both.off, both.on, "{policy}, {slots} slots");
                assert_eq!(both.rate(), 1.0);
                let found = simulate(&trace, policy, slots, &mut |_, _| ()).unwrap();
                assert_eq!(both.off.counts, found.warm, "{policy}, {slots} slots");
            }
        }
    }
}

#[test]
fn right_forecasts_spare_misses_and_wrong_ones_are_read_in_vain() {
    for seed in 0..8 {
        for policy in Policy::ALL {
            let setting = (pace(20), LookaheadOptions::default());
            let run = |wrong| compare(&told(80, seed, wrong), policy, 48, setting, &mut |_, _| ()).unwrap();
            let (right, wrong) = (run(0), run(7));
            assert_eq!(right.off, wrong.off, "what is expected has no say where nobody asks");
            let misses = |both: &Comparison| (both.on.counts.misses, both.off.counts.misses);
            let (with, without) = misses(&right);
            assert!(10 * with < 7 * without, "{policy}: {with} misses, {without} without");
            assert!(right.rate() > 1.0, "{policy}: {}", right.rate());
            assert_eq!((right.on.in_vain(), right.on.early.expired), (0, 0), "{policy}");
            assert!(wrong.on.in_vain() > 100, "{policy}: {:?}", wrong.on);
            assert!(misses(&wrong).0 > with && wrong.rate() < right.rate(), "{policy}: {:?}", wrong.on);
            for both in [right, wrong] {
                let all = both.on.counts.hits + both.on.counts.misses + both.on.early.joined;
                assert_eq!(all, both.on.counts.tokens * 16, "{policy}: each choice is counted once");
            }
        }
    }
}

/// Random tokens; of what is expected one in three is wrong.
fn mostly_right(tokens: u32, seed: u64) -> Trace {
    let (mut random, mut trace) = (Random(seed), Trace::new(SHAPE));
    for pass in 0..tokens {
        let chosen: Vec<u16> = (0..SHAPE.layers).flat_map(|_| random.experts(SHAPE)).collect();
        let mut ahead = chosen[4..].to_vec();
        for layer in ahead.chunks_mut(4) {
            for place in 0..layer.len() {
                let other = random.experts(SHAPE)[0];
                if random.below(3) == 0 && !layer.contains(&other) {
                    layer[place] = other;
                }
            }
        }
        trace.push(&Token { expected: expected(SHAPE, &ahead), ..token(pass, &chosen) });
    }
    trace
}

#[test]
fn weighed_reads_gain_from_every_disk_where_reading_all_that_is_expected_loses_on_slow_ones() {
    let weighed = LookaheadOptions { weigh: true, ..LookaheadOptions::default() };
    for seed in 0..3 {
        let trace = mostly_right(400, seed);
        for record in [5, 50, 200, 1000, 5000] {
            let rate = |lookahead| compared(&trace, 48, pace(record), lookahead).rate();
            let (weighed, all) = (rate(weighed), rate(LookaheadOptions::default()));
            assert!(weighed > 0.995, "a record in {record} us: {weighed}, {all} with all of them");
            assert!(weighed > all - 0.01, "a record in {record} us: {weighed}, {all} with all of them");
            assert_eq!(all < 0.98, record >= 1000, "a record in {record} us: {all}");
        }
    }
}

#[test]
fn rows_of_one_pass_ask_together_the_likeliest_of_all_first() {
    let mut trace = foretold(SMALL, &[(&[0, 1, 2, 4], &[2, 4])]);
    trace.push(&Token { expected: expected(SMALL, &[3, 4]), ..token(0, &[0, 1, 3, 4]) });
    let on = compared(&trace, 16, pace(50), LookaheadOptions::default()).on;
    // Experts 2 and 3 by 160 and 210, when the choice is made; 4 by 270.
    assert_eq!((on.counts.tokens, on.early.issued, on.early.adopted, on.took), (2, 2, 2, us(370)));
}

#[test]
fn a_layer_in_groups_asks_for_the_next_when_all_of_it_has_come() {
    let shape = Shape { choices: 6, experts: 12, ..SMALL };
    // Nine experts in one pass, one more than there are slots.
    let rows: [&[u16]; 2] = [&[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5], &[3, 4, 5, 6, 7, 8, 3, 4, 5, 6, 7, 8]];
    let mut trace = Trace::new(shape);
    for row in rows {
        trace.push(&Token { expected: expected(shape, &row[6..]), ..token(0, row) });
    }
    let Comparison { off, on, .. } = compared(&trace, 8, pace(50), LookaheadOptions::default());
    // Eight by 410, the ninth by 470; the choice at 570, eight by 980, the ninth by 1040.
    assert_eq!((off.took, off.counts.misses), (us(1140), 18));
    // Expert 0 of the second layer comes by 530, into the one slot that is spared; seven by 930, the ninth by 990.
    assert_eq!((on.took, on.counts.misses, on.early.issued, on.early.adopted), (us(1090), 17, 1, 1));
}
