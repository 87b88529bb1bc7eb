//! Owns: what each policy finds: by hand in small traces, and none of them more than Belady's.

use ss_replay::{Counts, Error, Made, Policy, Shape, Trace, simulate};

use crate::{one_layer, random, token};

/// Hits of a trace, all tokens counted.
fn hits(trace: &Trace, policy: Policy, slots: u32) -> u64 {
    simulate(trace, policy, slots, &mut |_, _| ()).unwrap().cold.hits
}

#[test]
fn no_policy_finds_more_than_belady_s() {
    let mut better = 0;
    for seed in 0..40 {
        let layers = 1 + (seed % 4) as u32;
        let shape = Shape { layers, experts: 24, choices: 1 + (seed % 5) as u32, record_bytes: 1 };
        let trace = random(shape, 60, seed);
        for slots in [3 * shape.choices, 20, 40] {
            let best = hits(&trace, Policy::Belady, slots);
            for policy in Policy::ALL {
                let found = hits(&trace, policy, slots);
                assert!(found <= best, "{policy} {found}, Belady {best}: seed {seed}, {slots} slots");
                better += u64::from(found < best);
            }
        }
    }
    assert!(better > 200, "pools were small enough for policies to matter: {better}");
}

#[test]
fn a_pool_for_everything_misses_each_record_once_whatever_the_policy() {
    let shape = Shape { layers: 3, experts: 16, choices: 4, record_bytes: 7 };
    let trace = random(shape, 50, 9);
    let mut records: Vec<(usize, u32)> = Vec::new();
    for pass in &trace.passes {
        for (layer, chosen) in pass.experts.iter().enumerate() {
            records.extend(chosen.iter().map(|&expert| (layer, expert)));
        }
    }
    records.sort_unstable();
    records.dedup();
    for policy in Policy::ALL {
        let outcome = simulate(&trace, policy, 48, &mut |_, _| ()).unwrap();
        assert_eq!(outcome.cold.misses, records.len() as u64, "{policy}");
        assert_eq!(outcome.cold.hits + outcome.cold.misses, 600);
    }
}

#[test]
fn lru_gives_up_what_was_used_the_longest_ago() {
    // 0 1 2 fill; 0 is used; 3 takes 1's slot; 0 and 2 are there, 1 is not, and takes 3's.
    let trace = one_layer(5, &[&[0], &[1], &[2], &[0], &[3], &[0], &[2], &[1], &[3]]);
    assert_eq!(hits(&trace, Policy::Lru, 3), 3);
}

#[test]
fn lfu_gives_up_what_was_used_least_since_it_was_read() {
    // 0 twice, 1 three times; 2 takes 0's slot, 3 takes 2's; 1 is there, 0 takes 3's; 1 is there still.
    let trace = one_layer(5, &[&[0], &[0], &[1], &[1], &[1], &[2], &[3], &[1], &[0], &[1]]);
    assert_eq!(hits(&trace, Policy::Lfu, 2), 1 + 2 + 1 + 1);
    assert_eq!(hits(&trace, Policy::Lru, 2), 1 + 2 + 1, "LRU gives 1's slot to 3");
}

#[test]
fn popularity_remembers_what_has_no_slot_and_forgets_with_time() {
    // 2 takes 0's slot, 0 takes 2's; then 2 takes 1's, used thrice, as 0 was used four times: before it lost its slot.
    let trace = one_layer(5, &[&[0], &[0], &[0], &[1], &[1], &[1], &[2], &[0], &[2], &[0]]);
    assert_eq!(hits(&trace, Policy::Popularity, 2), 2 + 2 + 1);
    assert_eq!(hits(&trace, Policy::Lfu, 2), 2 + 2, "LFU knows of one use of 0");
    // 3 takes the slot of 0, whose four uses are long ago; under LFU that of 2, used thrice.
    let mut tokens: Vec<&[u16]> = vec![&[0]; 4];
    tokens.extend([&[1u16][..]; 200]);
    tokens.extend([&[2u16][..]; 3]);
    tokens.extend([&[3u16][..], &[2]]);
    let trace = one_layer(5, &tokens);
    assert_eq!(hits(&trace, Policy::Popularity, 3), 3 + 199 + 2 + 1);
    assert_eq!(hits(&trace, Policy::Lfu, 3), 3 + 199 + 2);
}

#[test]
fn clock_is_the_engine_s() {
    // All marked: the hand takes all marks away and gives up 0; then 1, the mark of 2 being new.
    let trace = one_layer(6, &[&[0], &[1], &[2], &[3], &[2], &[4], &[2], &[3], &[1]]);
    // 3 goes where 0 was; 2 is there; 4 goes where 1 was; 2 and 3 are there; 1 is not.
    assert_eq!(hits(&trace, Policy::Clock, 3), 3);
}

#[test]
fn belady_gives_up_what_is_used_last() {
    let trace = one_layer(6, &[&[0], &[1], &[2], &[1], &[2], &[0], &[3], &[1]]);
    // 2 cannot avoid taking a slot: 0's, which is used last. 0 takes 2's, 3 takes 0's, 1 is there.
    assert_eq!(hits(&trace, Policy::Belady, 2), 3);
}

#[test]
fn a_layer_s_own_choices_are_held_while_it_runs() {
    // Two slots, two choices: each token that shares one with the token before finds that one.
    let trace = one_layer(6, &[&[0, 1], &[1, 2], &[2, 3], &[4, 5]]);
    for policy in Policy::ALL {
        assert_eq!(hits(&trace, policy, 2), 2, "{policy}");
    }
    let error = simulate(&trace, Policy::Clock, 1, &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, Error::TooFewSlots { slots: 1, choices: 2 }), "{error}");
}

#[test]
fn rows_of_one_pass_ask_for_an_expert_once() {
    let mut trace = one_layer(6, &[&[0, 1]]);
    trace.push(&token(7, &[2, 3]));
    trace.push(&token(7, &[3, 4]));
    let Counts { tokens, hits, misses } = simulate(&trace, Policy::Lru, 3, &mut |_, _| ()).unwrap().cold;
    assert_eq!((tokens, hits, misses), (3, 0, 5), "three experts in one pass, which fit");
    // Two slots: the three come in two groups, and the count is the same.
    assert_eq!(simulate(&trace, Policy::Lru, 2, &mut |_, _| ()).unwrap().cold.misses, 5);
}

#[test]
fn counting_begins_behind_the_token_that_filled_the_pool_or_with_the_second_half() {
    let trace = one_layer(6, &[&[0], &[1], &[2], &[0], &[1], &[2], &[3], &[3]]);
    let full_early = simulate(&trace, Policy::Lru, 2, &mut |_, _| ()).unwrap().warm;
    assert_eq!((full_early.tokens, full_early.misses), (6, 5));
    let never_full = simulate(&trace, Policy::Lru, 6, &mut |_, _| ()).unwrap().warm;
    assert_eq!((never_full.tokens, never_full.hits, never_full.misses), (4, 3, 1));
    assert_eq!(never_full.bytes_a_token(10), 2.5);
    assert_eq!(never_full.hit_rate(), 0.75);
}

#[test]
fn a_made_up_trace_is_as_skewed_as_it_says_and_lasts_as_asked() {
    let shape = Shape { layers: 2, experts: 512, choices: 10, record_bytes: 1 };
    let made = |persistence, seed| Made { shape, tokens: 400, seed, persistence }.trace(&mut |_, _| ());
    let (fleeting, lasting) = (made(0.0, 1), made(0.8, 1));
    for trace in [&fleeting, &lasting] {
        assert!((0.62..0.8).contains(&trace.figures.favoured()), "{}", trace.figures.favoured());
        assert_eq!(trace.tokens(), 400);
    }
    assert!(lasting.figures.repeated() > 1.5 * fleeting.figures.repeated());
    assert!(made(0.8, 1) == lasting && made(0.8, 2) != lasting, "the seed decides");
    assert!(hits(&lasting, Policy::Lru, 256) > hits(&fleeting, Policy::Lru, 256));
}
