//! Passes of a prompt that share one read of a layer's experts write what each alone writes (engine.md section 6, I1, I2).

use ss_backend::Arithmetic;
use ss_model::{Cancel, Error, PassMutation, Prompt, Want, read_group_bytes};
use ss_stream::{ExpertCounters, LookaheadOptions, NgramCounters, PoolSize};
use ss_tests::rig::{Device, Rig, RigOptions, adapter};

use super::faults::{PLANTED, must_turn_red};
use super::{Case, Outcome, bits, cases, each, run};

/// No prompt of a case is longer.
const ALL: u32 = 512;
const OFF: LookaheadOptions =
    LookaheadOptions { on: false, margin: 0.0, per_layer: 0, lanes: 1, reserve: 0, weigh: false };

fn options(device: &Device, arithmetic: Arithmetic, slots: PoolSize, read_group: u32) -> RigOptions {
    RigOptions { device: device.clone(), arithmetic, slots, read_group, ..RigOptions::default() }
}

/// Reads the prompt in passes of `pass` rows that may share, then the reply token by token.
fn read(rig: &mut Rig, case: &Case, pass: u32) -> Outcome {
    let mut state = rig.state();
    let prompt = Prompt { ids: &case.prompt, positions: None, pass, want: Want::All };
    let mut told = Vec::new();
    let output = rig.model.read(&mut state, &prompt, &Cancel::default(), &mut |done| told.push(done)).unwrap();
    assert!(told.is_sorted() && told.last() == Some(&(case.prompt.len() as u32)), "{told:?}");
    let mut logits: Vec<u32> = bits(&output.logits).collect();
    for id in &case.reply {
        logits.extend(bits(&rig.generated(&mut state, &[*id])));
    }
    Outcome { logits, state: state.tensors(rig.backend()).unwrap() }
}

fn experts(rig: &Rig) -> ExpertCounters {
    rig.model.store().counters().experts
}

fn sharing(device: &Device) {
    each(device, |case, arithmetic| {
        let whole = run(&mut Rig::new(&case.model, &options(device, arithmetic, PoolSize::All, ALL)), case, &[300]);
        // All in one group, and in groups of two passes, some of which end in a pass of few rows or are one pass.
        let on = LookaheadOptions::default();
        let ways = [
            (PoolSize::Smallest, ALL, 64, on),
            (PoolSize::Smallest, 192, 71, OFF),
            (PoolSize::Percent(25), 128, 64, on),
            (PoolSize::Percent(25), ALL, 110, OFF),
            (PoolSize::Percent(50), ALL, 71, on),
        ];
        // As many as the adapter's time is for.
        let count = if matches!(device, Device::Reference) { ways.len() } else { 1 };
        for &(slots, group, pass, lookahead) in &ways[..count] {
            let what = format!("{} {arithmetic} {slots:?} {group} {pass} {lookahead:?}", case.model.display());
            let options = RigOptions { lookahead, ..options(device, arithmetic, slots, group) };
            let mut rig = Rig::new(&case.model, &options);
            read(&mut rig, case, pass).must_equal(&whole, &what);
            let counters = experts(&rig);
            assert!(counters.shared_groups > 0 && counters.spared > 0, "{what}: {counters:?}");
        }
    });
}

#[test]
fn shared_reads_never_change_a_bit() {
    sharing(&Device::Reference);
}

#[test]
fn shared_reads_never_change_a_bit_on_the_adapter() {
    sharing(&adapter());
}

#[test]
fn a_pass_that_gets_none_of_the_shared_experts_is_noticed() {
    let case = &cases(&Device::Reference)[0];
    let plain = options(&Device::Reference, Arithmetic::Exact, PoolSize::Smallest, ALL);
    let right = read(&mut Rig::new(&case.model, &plain), case, 64);
    let mut faulty = Rig::new(&case.model, &RigOptions { pass_mutation: PassMutation::ForgottenPass, ..plain });
    must_turn_red("a forgotten pass", || read(&mut faulty, case, 64).must_equal(&right, PLANTED));
}

/// What a prompt of four passes reads at a small pool, alone and shared.
#[test]
fn four_passes_that_share_read_about_a_quarter() {
    for case in cases(&Device::Reference) {
        let ids = case.prompt.iter().copied().cycle().take(4 * 64).collect();
        let prompt = Case { prompt: ids, reply: Vec::new(), ..case };
        let count = |read_group| {
            let plain = options(&Device::Reference, Arithmetic::Exact, PoolSize::Smallest, read_group);
            let mut rig = Rig::new(&prompt.model, &RigOptions { lookahead: OFF, ..plain });
            read(&mut rig, &prompt, 64);
            experts(&rig)
        };
        let (alone, shared) = (count(0), count(ALL));
        let ratio = shared.bytes_read as f64 / alone.bytes_read as f64;
        println!("{}: {ratio:.3} of the bytes, {shared:?}", prompt.model.display());
        assert_eq!((alone.shared_groups, alone.spared), (0, 0), "nothing is shared where that is off");
        assert!(alone.groups > shared.groups && shared.shared_groups > 0, "{alone:?} {shared:?}");
        assert!((0.25..0.33).contains(&ratio), "{alone:?} {shared:?}");
    }
}

/// Passes that share nothing, and passes that do, of a model whose rows come from the disk each time.
fn rows_ahead(device: &Device, slots: PoolSize, mutation: PassMutation) -> impl Fn(&Case) -> (Outcome, NgramCounters) {
    let plain = options(device, Arithmetic::Exact, slots, ALL);
    let options = RigOptions { row_cache_bytes: 0, pass_mutation: mutation, ..plain };
    move |case| {
        let mut rig = Rig::new(&case.model, &options);
        let outcome = read(&mut rig, case, 64);
        (outcome, rig.model.store().counters().ngrams)
    }
}

#[test]
fn rows_of_ngrams_are_read_while_earlier_passes_run_and_change_no_bit() {
    let mut early = 0;
    for case in cases(&Device::Reference) {
        let whole = run(
            &mut Rig::new(&case.model, &options(&Device::Reference, Arithmetic::Exact, PoolSize::All, 0)),
            &case,
            &[300],
        );
        for slots in [PoolSize::All, PoolSize::Smallest] {
            let (outcome, rows) = rows_ahead(&Device::Reference, slots, PassMutation::None)(&case);
            outcome.must_equal(&whole, &format!("{} {slots:?}", case.model.display()));
            println!("{} {slots:?}: {} of {} rows were there", case.model.display(), rows.early, rows.rows);
            assert!(rows.early <= rows.rows);
            early += rows.early;
        }
    }
    assert!(early > 0, "no rows were there before they were asked for");
}

#[test]
fn rows_of_another_pass_are_noticed() {
    let case = &cases(&Device::Reference)[0];
    for slots in [PoolSize::All, PoolSize::Smallest] {
        let read = |mutation| rows_ahead(&Device::Reference, slots, mutation)(case).0;
        let right = read(PassMutation::None);
        must_turn_red("other rows", || read(PassMutation::OtherRows).must_equal(&right, PLANTED));
    }
}

#[test]
fn a_read_group_takes_the_memory_that_the_ledger_says() {
    let case = &cases(&Device::Reference)[0];
    let pass = 64;
    let peak = |read_group| {
        let plain = options(&Device::Reference, Arithmetic::Exact, PoolSize::Smallest, read_group);
        let mut rig = Rig::new(&case.model, &plain);
        read(&mut rig, case, pass);
        let group = read_group_bytes(rig.model.geometry(), pass, read_group);
        (rig.backend().counters().peak_memory_bytes, group)
    };
    let ((alone, none), (shared, group)) = (peak(0), peak(4 * pass));
    assert_eq!(none, 0);
    assert!(group > 0);
    assert_eq!(shared - alone, group);
}

#[test]
fn nothing_is_shared_where_everything_is_resident_or_a_pass_is_the_prompt() {
    let case = &cases(&Device::Reference)[0];
    for (slots, pass) in [(PoolSize::All, 64), (PoolSize::Smallest, ALL), (PoolSize::Smallest, 16)] {
        let mut rig = Rig::new(&case.model, &options(&Device::Reference, Arithmetic::Exact, slots, ALL));
        read(&mut rig, case, pass);
        assert_eq!(experts(&rig).shared_groups, 0, "{slots:?} {pass}");
    }
}

#[test]
fn a_cancelled_read_group_tears_its_state_and_no_other() {
    let case = &cases(&Device::Reference)[0];
    let mut rig = Rig::new(&case.model, &options(&Device::Reference, Arithmetic::Exact, PoolSize::Smallest, ALL));
    let mut state = rig.state();
    let (before, rest) = case.prompt.split_at(16);
    rig.prompt(&mut state, before);
    let mut fork = state.fork();
    let prompt = Prompt { ids: rest, positions: None, pass: 64, want: Want::Last };
    let (cancel, layers) = (Cancel::default(), rig.model.geometry().layers.len() as u32);
    let mut told = Vec::new();
    // After the second layer: half of the way, its passes all at one place.
    let stopped = rig.model.read(&mut state, &prompt, &cancel, &mut |done| {
        told.push(done);
        if told.len() == 2 {
            cancel.cancel();
        }
    });
    assert!(matches!(stopped, Err(Error::Cancelled)));
    assert_eq!(told, [rest.len() as u32 / layers, 2 * rest.len() as u32 / layers], "it stopped at the next layer");
    let again = rig.model.read(&mut state, &prompt, &Cancel::default(), &mut |_| {});
    assert!(matches!(again, Err(Error::TornState)), "a half-updated state is never used");
    let right = rig.prompt(&mut rig.state(), &case.prompt);
    let served = rig.model.read(&mut fork, &prompt, &Cancel::default(), &mut |_| {}).unwrap();
    let vocab = served.logits.len();
    assert!(bits(&served.logits).eq(bits(&right[right.len() - vocab..])), "the fork goes on, bit for bit");
}
