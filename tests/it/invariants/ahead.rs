//! Passes that are encoded ahead, and records that are read ahead, change no bit (engine.md sections 1, 5.3 and 5.6).

use ss_backend::Arithmetic;
use ss_model::{Cancel, Result, State};
use ss_stream::{LookaheadCounters, LookaheadOptions, Mutation, PoolSize};
use ss_tests::rig::{Device, Rig, RigOptions, adapter};

use super::{Case, bits, cases, each};

/// Whatever a forecast names, however close.
const EAGER: LookaheadOptions =
    LookaheadOptions { on: true, margin: f32::NEG_INFINITY, per_layer: 16, lanes: 16, reserve: 64, weigh: false };
const OFF: LookaheadOptions = LookaheadOptions { on: false, ..EAGER };

fn rig(device: &Device, case: &Case, arithmetic: Arithmetic, slots: PoolSize, lookahead: LookaheadOptions) -> Rig {
    Rig::new(&case.model, &RigOptions { device: device.clone(), arithmetic, slots, lookahead, ..RigOptions::default() })
}

/// Reads the prompt, then the reply through decoders: one is dropped with a pass encoded that never runs, and the next goes
/// on with a fork. Gives the logits of the reply as bits.
fn reply(rig: &mut Rig, case: &Case) -> Result<Vec<u32>> {
    let mut state = rig.state();
    rig.prompt(&mut state, &case.prompt);
    let (first, second) = case.reply.split_at(case.reply.len() / 2);
    let mut logits = steps(rig, &mut state, first)?;
    let mut fork = state.fork();
    let forked = steps(rig, &mut fork, second)?;
    assert!(steps(rig, &mut state, second)? == forked, "the state that was forked goes on as its fork");
    logits.extend(forked);
    Ok(logits)
}

fn steps(rig: &mut Rig, state: &mut State, ids: &[u32]) -> Result<Vec<u32>> {
    let mut decoder = rig.model.decoder(state)?;
    let mut logits = Vec::new();
    for &id in ids {
        let likeliest = decoder.step(id, &Cancel::default())?;
        let row = decoder.adjusted_row()?;
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(likeliest.ids.first().map(|&(id, logit)| (row[id as usize], logit)), Some((largest, largest)));
        logits.extend(bits(&row));
    }
    Ok(logits)
}

/// The same reply, one forward after the other, everything resident and nothing read ahead.
fn plain(device: &Device, case: &Case, arithmetic: Arithmetic) -> Vec<u32> {
    let mut rig = rig(device, case, arithmetic, PoolSize::All, OFF);
    let mut state = rig.state();
    rig.prompt(&mut state, &case.prompt);
    case.reply.iter().flat_map(|&id| bits(&rig.generated(&mut state, &[id])).collect::<Vec<_>>()).collect()
}

fn same(a: &[u32], b: &[u32], what: &str) {
    assert_eq!((a.len(), a.iter().zip(b).position(|(a, b)| a != b)), (b.len(), None), "{what}");
}

fn ahead(device: &Device) {
    let total = std::cell::Cell::new(LookaheadCounters::default());
    each(device, |case, arithmetic| {
        let expected = plain(device, case, arithmetic);
        let (sizes, ways): (&[PoolSize], &[LookaheadOptions]) = match device {
            Device::Reference => (
                &[PoolSize::Smallest, PoolSize::Percent(25), PoolSize::All],
                &[OFF, EAGER, LookaheadOptions::default(), LookaheadOptions::new(true, None)],
            ),
            // As much as the adapter's time is for.
            Device::Adapter(_) => (&[PoolSize::Percent(25)], &[EAGER]),
        };
        for &slots in sizes {
            for &lookahead in ways {
                let what = format!("{} {arithmetic} {slots:?} {lookahead:?}", case.model.display());
                let mut rig = rig(device, case, arithmetic, slots, lookahead);
                same(&reply(&mut rig, case).unwrap(), &expected, &what);
                let counters = rig.model.store().counters();
                assert!(counters.experts.misses > 0, "{what}: experts were read");
                assert!(lookahead.on || counters.early.issued == 0, "{what}: off is off");
                let (sum, early) = (total.get(), counters.early);
                total.set(LookaheadCounters {
                    issued: sum.issued + early.issued,
                    adopted: sum.adopted + early.adopted,
                    joined: sum.joined + early.joined,
                    expired: sum.expired + early.expired,
                    wasted_bytes: sum.wasted_bytes + early.wasted_bytes,
                });
            }
        }
    });
    let total = total.get();
    println!("read early: {total:?}");
    assert!(total.adopted + total.joined > 0, "a record that was read early was used: {total:?}");
    assert!(total.expired > 0 && total.wasted_bytes > 0, "and one was read in vain: {total:?}");
}

#[test]
fn what_is_encoded_or_read_ahead_changes_no_bit() {
    ahead(&Device::Reference);
}

#[test]
fn what_is_encoded_or_read_ahead_changes_no_bit_on_the_adapter() {
    ahead(&adapter());
}

#[test]
fn experts_below_the_last_choice_are_expected_too() {
    for case in cases(&Device::Reference) {
        let issued = |margin: f32| {
            let lookahead = LookaheadOptions { margin, ..EAGER };
            let mut rig = rig(&Device::Reference, &case, Arithmetic::Exact, PoolSize::Percent(25), lookahead);
            reply(&mut rig, &case).unwrap();
            rig.model.store().counters().early.issued
        };
        let (all, above) = (issued(f32::NEG_INFINITY), issued(0.0));
        assert!(all > above && above > 0, "{}: {all} of any margin, {above} of none below", case.model.display());
    }
}

#[test]
fn a_record_entered_before_it_is_read_is_noticed() {
    let noticed = cases(&Device::Reference).iter().any(|case| {
        let options = RigOptions {
            slots: PoolSize::Percent(25),
            lookahead: EAGER,
            mutation: Mutation::EarlyEntry,
            ..RigOptions::default()
        };
        let expected = plain(&Device::Reference, case, options.arithmetic);
        // The reference backend refuses to read a slot that is being filled; other devices would give other bits.
        reply(&mut Rig::new(&case.model, &options), case).ok() != Some(expected)
    });
    assert!(noticed, "a slot whose record was not there yet was read");
}
