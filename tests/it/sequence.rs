//! A sequence state forks, is saved and loaded, goes back into a verify pass, and is cancelled, without a bit changing
//! (engine.md 7.1, 7.2).

use ss_backend::{Arithmetic, Form};
use ss_model::{Cancel, DraftSource, Error, Pass, Position, State, StateTensor, Want};
use ss_stream::PoolSize;
use ss_tests::golden::{Golden, goldens};
use ss_tests::rig::{Device, Rig, RigOptions, adapter};

const PROFILES: [Arithmetic; 2] = [Arithmetic::Exact, Arithmetic::Fast];

fn each(device: &Device, test: impl Fn(&Golden, &mut Rig)) {
    for golden in device.goldens() {
        for arithmetic in PROFILES {
            let device = device.clone();
            let options = RigOptions { device, arithmetic, slots: PoolSize::Floor, ..RigOptions::default() };
            test(&golden, &mut Rig::new(&golden.model(), &options));
        }
    }
}

fn tensors(rig: &Rig, state: &State) -> Vec<StateTensor> {
    state.tensors(rig.backend()).unwrap()
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_finite() && a.to_bits() == b.to_bits())
}

#[test]
fn forks_go_their_own_ways() {
    each(&Device::Reference, |golden, rig| {
        let prompt = golden.prompt(300);
        let mut trunk = rig.state();
        rig.prompt(&mut trunk, &prompt[..150]);
        let kept = tensors(rig, &trunk);
        let mut left = trunk.fork();
        let mut right = trunk.fork();
        let l = rig.prompt(&mut left, &prompt[150..200]);
        let r = rig.prompt(&mut right, &prompt[200..250]);
        assert!(tensors(rig, &trunk) == kept, "the trunk is as it was");
        assert!(same_bits(&rig.prompt(&mut trunk.fork(), &prompt[150..200]), &l));
        assert!(same_bits(&rig.prompt(&mut trunk, &prompt[200..250]), &r));
        assert!(tensors(rig, &trunk) == tensors(rig, &right));
        assert!(tensors(rig, &left) != tensors(rig, &right));
    });
}

#[test]
fn a_saved_state_goes_on_bit_for_bit() {
    each(&Device::Reference, |golden, rig| {
        let prompt = golden.prompt(300);
        let mut state = rig.state();
        // An end inside a block.
        rig.prompt(&mut state, &prompt[..261]);
        draft_some(rig, &mut state, &prompt);
        let saved = rig.model.save_state(&state).unwrap();
        let mut loaded = rig.model.load_state(&saved).unwrap();
        assert!(tensors(rig, &loaded) == tensors(rig, &state));
        assert!(same_bits(&rig.prompt(&mut loaded, &prompt[261..]), &rig.prompt(&mut state, &prompt[261..])));
        assert!(tensors(rig, &loaded) == tensors(rig, &state));
        assert_eq!(loaded.timeline, state.timeline);
    });
}

fn draft_some(rig: &mut Rig, state: &mut State, ids: &[u32]) {
    rig.model.draft(state, &ids[1..6], DraftSource::Main { first: 0 }, Want::Nothing, &Cancel::default()).unwrap();
}

#[test]
fn a_damaged_or_foreign_saved_state_is_refused() {
    let sets = goldens();
    let mut rig = Rig::new(&sets[0].model(), &RigOptions::default());
    let mut state = rig.state();
    rig.prompt(&mut state, &sets[0].prompt(64));
    let saved = rig.model.save_state(&state).unwrap();
    let refused = |rig: &Rig, bytes: &[u8], what: &str| match rig.model.load_state(bytes) {
        Err(Error::SavedState(why)) => assert!(!why.is_empty()),
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what} was accepted"),
    };
    for cut in [0, 7, 100, saved.len() / 2, saved.len() - 1] {
        refused(&rig, &saved[..cut], "a truncated state");
    }
    // Every region of the file: header, metadata and each tensor's data.
    for at in (0..saved.len()).step_by(saved.len() / 997) {
        let mut flipped = saved.clone();
        flipped[at] ^= 0x10;
        refused(&rig, &flipped, &format!("a state with byte {at} flipped"));
    }
    let fast = Rig::new(&sets[0].model(), &RigOptions { arithmetic: Arithmetic::Fast, ..RigOptions::default() });
    refused(&fast, &saved, "a state of another profile");
    if let Some(other) = sets.get(1) {
        refused(&Rig::new(&other.model(), &RigOptions::default()), &saved, "a state of another model");
    }
}

fn rewinds(device: &Device, keeps: &[u32]) {
    each(device, |golden, rig| {
        let prompt = golden.prompt(300);
        let mut before = rig.state();
        // The verify pass begins inside a block, past the sparse threshold, and ends in another.
        rig.prompt(&mut before, &prompt[..270]);
        for &keep in keeps {
            let mut state = before.fork();
            let pass =
                Pass { ids: &prompt[270..278], form: Form::Generated, positions: None, want: Want::All, record: true };
            let output = rig.model.forward(&mut state, &pass, &Cancel::default()).unwrap();
            rig.model.rewind(&mut state, &output.recording.unwrap(), keep).unwrap();
            let mut plain = before.fork();
            let kept = &prompt[270..270 + keep as usize];
            for (row, id) in kept.iter().enumerate() {
                let alone = rig.generated(&mut plain, &[*id]);
                let vocab = alone.len();
                assert!(same_bits(&alone, &output.logits[row * vocab..][..vocab]), "a verify row equals plain decode");
            }
            assert!(tensors(rig, &state) == tensors(rig, &plain), "{}: keep {keep}", golden.name);
            assert_eq!((&state.timeline, &state.context), (&plain.timeline, &plain.context));
            let on = &prompt[278..290];
            assert!(same_bits(&rig.generated(&mut state, on), &rig.generated(&mut plain, on)), "and goes on like it");
        }
    });
}

#[test]
fn a_rewind_leaves_the_state_that_the_kept_rows_leave() {
    rewinds(&Device::Reference, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_rewind_leaves_the_state_that_the_kept_rows_leave_on_the_adapter() {
    rewinds(&adapter(), &[0, 3, 8]);
}

#[test]
fn a_rewind_that_forgets_the_recording_is_noticed() {
    let golden = &goldens()[0];
    let mut rig = Rig::new(&golden.model(), &RigOptions::default());
    let prompt = golden.prompt(64);
    let mut state = rig.state();
    rig.prompt(&mut state, &prompt[..40]);
    let mut kept = state.fork();
    rig.generated(&mut kept, &prompt[40..43]);
    rig.generated(&mut state, &prompt[40..48]);
    assert!(tensors(&rig, &state) != tensors(&rig, &kept), "eight rows leave another state than three");
}

#[test]
fn a_cancelled_pass_tears_its_state_and_no_other() {
    let golden = &goldens()[0];
    let mut rig = Rig::new(&golden.model(), &RigOptions::default());
    let prompt = golden.prompt(64);
    let mut state = rig.state();
    rig.prompt(&mut state, &prompt[..10]);
    let mut fork = state.fork();
    let cancel = Cancel::default();
    cancel.cancel();
    let pass = Pass::prompt(&prompt[10..20], Want::Last);
    assert!(matches!(rig.model.forward(&mut state, &pass, &cancel), Err(Error::Cancelled)));
    // Cancelled before its first layer, the state is whole.
    assert!(rig.model.forward(&mut state, &pass, &Cancel::default()).is_ok());
    assert!(rig.model.forward(&mut fork, &pass, &Cancel::default()).is_ok());
    assert!(tensors(&rig, &state) == tensors(&rig, &fork));
}

#[test]
fn the_window_and_the_vocabulary_are_limits_in_words() {
    let golden = &goldens()[0];
    let mut rig = Rig::new(&golden.model(), &RigOptions::default());
    let limit = rig.model.geometry().max_positions;
    let vocab = rig.model.geometry().vocab;
    let mut state = rig.state();
    let mut refuse =
        |ids: &[u32]| match rig.model.forward(&mut state, &Pass::prompt(ids, Want::Last), &Cancel::default()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("accepted"),
        };
    assert!(refuse(&vec![1; limit as usize + 1]).contains(&limit.to_string()));
    assert!(refuse(&[1, vocab]).contains(&vocab.to_string()));
    refuse(&[]);
}

#[test]
fn positions_of_images_are_followed_whatever_the_pass() {
    each(&Device::Reference, |golden, rig| {
        let prompt = golden.prompt(64);
        let text: Vec<Position> = (0..64).map(|i| [i; 3]).collect();
        // A 4 x 5 image after ten tokens of text: one time step, rows and columns apart, the text goes on after the larger.
        let image: Vec<Position> = (0..20).map(|i| [10, 10 + i / 5, 10 + i % 5]).collect();
        let rest = (0..34).map(|i| [15 + i; 3]);
        let mixed: Vec<Position> = text[..10].iter().copied().chain(image).chain(rest).collect();
        let read = |rig: &mut Rig, positions: &[Position], passes: &[usize]| {
            let (mut state, mut logits, mut first) = (rig.state(), Vec::new(), 0);
            for count in passes {
                let rows = first..first + count;
                let pass = Pass { positions: Some(&positions[rows.clone()]), ..Pass::prompt(&prompt[rows], Want::All) };
                logits.extend(rig.forward(&mut state, &pass));
                first += count;
            }
            logits.extend(rig.generated(&mut state, &[5, 6]));
            (logits, state.timeline.clone())
        };
        let (plain, _) = read(rig, &text, &[64]);
        let mut state = rig.state();
        let mut default = rig.prompt(&mut state, &prompt);
        default.extend(rig.generated(&mut state, &[5, 6]));
        assert!(same_bits(&plain, &default), "text goes on by itself");
        let (whole, timeline) = read(rig, &mixed, &[64]);
        assert_eq!(timeline.next, 15 + 34 + 2, "text goes on after the image's larger side");
        for passes in [&[12, 9, 43][..], &[1; 64]] {
            let (parts, again) = read(rig, &mixed, passes);
            assert!(same_bits(&parts, &whole) && again == timeline);
        }
        assert!(!same_bits(&whole, &plain), "positions matter");
    });
}
