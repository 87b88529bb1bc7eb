//! Pipelines are built at load, and all of them: neither a prompt nor a reply waits for one.

use std::sync::Arc;

use ss_backend::Arithmetic;
use ss_checkpoint::Checkpoint;
use ss_model::{Cancel, Model, ModelOptions, Pass, PassMutation, State, Want};
use ss_stream::{PoolGeometry, PoolSize, StoreOptions};
use ss_tests::golden::root;
use ss_tests::rig::fresh_adapter;

/// A prompt past what sparse attention keeps, in a long pass and a short one, then a reply, and passes that share their reads.
fn converse(model: &mut Model, state: &mut State) {
    use ss_backend::Form::{Generated, Prompt};
    for (form, rows) in [(Prompt, 100), (Prompt, 3), (Generated, 1), (Generated, 5)] {
        let ids: Vec<u32> = (10..10 + rows).collect();
        let pass = Pass { form, ..Pass::prompt(&ids, Want::Last) };
        model.forward(state, &pass, &Cancel::default()).unwrap();
    }
    let ids: Vec<u32> = (10..138).collect();
    let shared = ss_model::Prompt { ids: &ids, positions: None, pass: 64, want: Want::Last };
    model.read(state, &shared, &Cancel::default(), &mut |_| {}).unwrap();
}

#[test]
fn nothing_is_built_after_loading_on_the_adapter() {
    let checkpoint = Arc::new(Checkpoint::open(&root().join("models/flash-next-nano")).unwrap());
    let slots = PoolSize::Smallest.resolve(PoolGeometry::from(checkpoint.geometry())).unwrap();
    for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
        let backend = fresh_adapter();
        let options =
            ModelOptions { store: StoreOptions::new(slots), arithmetic, read_group: 128, mutation: PassMutation::None };
        let mut model = Model::load(backend.clone(), checkpoint.clone(), options, &mut |_, _| {}).unwrap();
        assert_eq!(backend.pipelines(), 0, "loading itself needs none");
        let mut told = Vec::new();
        model.prepare(&mut |done, all| told.push((done, all))).unwrap();
        let built = backend.pipelines();
        let expected: Vec<_> = (1..=built).map(|done| (done, built)).collect();
        assert!(built > 0 && told == expected, "{built} are built, progress tells of {told:?}");
        let mut state = model.new_state().unwrap();
        converse(&mut model, &mut state);
        // A fork shares memory, which is copied when it is written, and grows when it is full.
        let mut fork = state.fork();
        converse(&mut model, &mut fork);
        (0..3).for_each(|_| converse(&mut model, &mut state));
        assert_eq!(backend.pipelines(), built, "a prompt or a reply had to wait for a pipeline");
    }
}
