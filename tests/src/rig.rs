//! Owns: a model set up for a test: reference backend, pool size, profile, and the values that its operations let out.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ss_backend::{Arithmetic, Backend};
use ss_checkpoint::Checkpoint;
use ss_model::{Cancel, Model, ModelOptions, Pass, PassMutation, State, Want};
use ss_reference::{Options, Reference, TapData};
use ss_stream::{Mutation, PoolGeometry, PoolSize, StoreOptions};

/// How a model is set up.
#[derive(Clone)]
pub struct RigOptions {
    /// Profile.
    pub arithmetic: Arithmetic,
    /// Pool.
    pub slots: PoolSize,
    /// Row cache of the n-grams in bytes.
    pub row_cache_bytes: u64,
    /// A deliberate fault of the stream.
    pub mutation: Mutation,
    /// A deliberate fault of the graph.
    pub pass_mutation: PassMutation,
    /// Threads of the reference backend.
    pub threads: usize,
    /// Whether the operations' values are kept.
    pub taps: bool,
    /// Whether the backend stands in for a device with matrix units.
    pub f16_inputs: bool,
}

impl Default for RigOptions {
    fn default() -> Self {
        RigOptions {
            arithmetic: Arithmetic::Exact,
            slots: PoolSize::All,
            row_cache_bytes: 1 << 20,
            mutation: Mutation::None,
            pass_mutation: PassMutation::None,
            threads: 2,
            taps: false,
            f16_inputs: false,
        }
    }
}

/// What the operations let out, by name; what came in parts lies one after the other.
#[derive(Clone, Default)]
pub struct Taps(Arc<Mutex<HashMap<String, Tap>>>);

/// One value let out.
#[derive(Clone, Debug)]
pub enum Tap {
    /// Numbers.
    F32(Vec<f32>),
    /// Ids; -1 where a list holds nothing.
    I32(Vec<i32>),
}

impl Taps {
    fn put(&self, name: &str, data: TapData<'_>) {
        let mut taps = self.0.lock().expect("no test panics while it holds taps");
        match (taps.get_mut(name), data) {
            (Some(Tap::F32(all)), TapData::F32(values)) => all.extend_from_slice(values),
            (Some(Tap::I32(all)), TapData::I32(values)) => all.extend_from_slice(values),
            (_, TapData::F32(values)) => _ = taps.insert(name.to_string(), Tap::F32(values.to_vec())),
            (_, TapData::I32(values)) => _ = taps.insert(name.to_string(), Tap::I32(values.to_vec())),
        }
    }

    /// Takes everything so far.
    pub fn take(&self) -> HashMap<String, Tap> {
        std::mem::take(&mut self.0.lock().expect("no test panics while it holds taps"))
    }
}

/// A model set up for a test.
pub struct Rig {
    /// The model.
    pub model: Model,
    /// What its operations let out, if that was asked for.
    pub taps: Taps,
}

impl Rig {
    /// Loads the model of a directory.
    pub fn new(dir: &Path, options: &RigOptions) -> Self {
        let taps = Taps::default();
        let mut backend =
            Reference::new(Options { threads: options.threads, f16_inputs: options.f16_inputs, ..Options::default() })
                .unwrap_or_else(|e| panic!("{e}"));
        if options.taps {
            let into = taps.clone();
            backend =
                backend.with_tap(Arc::new(move |name: &str, _: &[usize], data: TapData<'_>| into.put(name, data)));
        }
        let checkpoint = Arc::new(Checkpoint::open(dir).unwrap_or_else(|e| panic!("{e}")));
        let slots = options.slots.resolve(PoolGeometry::from(checkpoint.geometry())).unwrap_or_else(|e| panic!("{e}"));
        let mut store = StoreOptions::new(slots);
        store.row_cache_bytes = options.row_cache_bytes;
        store.mutation = options.mutation;
        let options = ModelOptions { store, arithmetic: options.arithmetic, mutation: options.pass_mutation };
        let model =
            Model::load(Arc::new(backend), checkpoint, options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
        Rig { model, taps }
    }

    /// An empty sequence.
    pub fn state(&self) -> State {
        self.model.new_state().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Reads prompt rows; gives logits of all of them.
    pub fn prompt(&mut self, state: &mut State, ids: &[u32]) -> Vec<f32> {
        self.forward(state, &Pass::prompt(ids, Want::All))
    }

    /// Feeds generated rows; gives logits of all of them.
    pub fn generated(&mut self, state: &mut State, ids: &[u32]) -> Vec<f32> {
        self.forward(state, &Pass::generated(ids, Want::All))
    }

    /// Runs a pass that must succeed.
    pub fn forward(&mut self, state: &mut State, pass: &Pass<'_>) -> Vec<f32> {
        self.model.forward(state, pass, &Cancel::default()).unwrap_or_else(|e| panic!("{e}")).logits
    }

    /// The device.
    pub fn backend(&self) -> &dyn Backend {
        self.model.backend().as_ref()
    }
}
