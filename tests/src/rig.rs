//! Owns: a model set up for a test: device, pool size, profile, and the values that its operations let out.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use ss_backend::{Arithmetic, Backend};
use ss_checkpoint::Checkpoint;
use ss_model::{Cancel, Model, ModelOptions, Pass, PassMutation, State, Want};
use ss_reference::{Options, Reference, TapData};
use ss_stream::{LookaheadOptions, Mutation, PoolGeometry, PoolSize, StoreOptions};
use ss_wgpu::{AdapterChoice, WgpuBackend};

use crate::golden::{Golden, goldens};
use crate::stepwise::{Dispatches, Stepping, Stepwise};
use crate::watch::{Watch, Watched};

/// How a model is set up.
#[derive(Clone)]
pub struct RigOptions {
    /// Profile.
    pub arithmetic: Arithmetic,
    /// Pool.
    pub slots: PoolSize,
    /// Row cache of the n-grams in bytes.
    pub row_cache_bytes: u64,
    /// Most prompt tokens that share a read of experts.
    pub read_group: u32,
    /// What is read early.
    pub lookahead: LookaheadOptions,
    /// A deliberate fault of the stream.
    pub mutation: Mutation,
    /// A deliberate fault of the graph.
    pub pass_mutation: PassMutation,
    /// A deliberate fault of the device: operations behind a router that missed have an effect.
    pub beyond_halts: bool,
    /// Threads of the reference backend.
    pub threads: usize,
    /// Whether the operations' values are kept.
    pub taps: bool,
    /// Where the dispatches of each operation are counted, if they are.
    pub dispatches: Option<Dispatches>,
    /// Whether the backend stands in for a device with matrix units.
    pub f16_inputs: bool,
    /// What computes.
    pub device: Device,
}

/// What computes.
#[derive(Clone, Default)]
pub enum Device {
    /// The reference backend, made as the other options say.
    #[default]
    Reference,
    /// The wgpu backend.
    Adapter(Turn),
}

impl Device {
    /// A turn on a backend that is opened once.
    fn turn(opened: &OnceLock<Arc<WgpuBackend>>, open: impl FnOnce() -> Arc<WgpuBackend>) -> Self {
        static TURNS: ReentrantMutex<()> = ReentrantMutex::new(());
        let held = Rc::new(TURNS.lock());
        Device::Adapter(Turn { backend: opened.get_or_init(open).clone(), _held: held })
    }

    /// The profiles to be tested on it: matrix units take part in the fast one alone.
    pub fn profiles(&self) -> &'static [Arithmetic] {
        match self {
            Device::Adapter(turn) if turn.backend.uses_matrix_units() => &[Arithmetic::Fast],
            _ => &[Arithmetic::Exact, Arithmetic::Fast],
        }
    }

    /// The golden sets that this device is held to: the adapter's time is for the set that `SS_GOLDENS` names, else for the
    /// repository's larger one.
    pub fn goldens(&self) -> Vec<Golden> {
        let mut sets = goldens();
        if matches!(self, Device::Adapter(_)) {
            sets.truncate(1);
        }
        sets
    }
}

/// The wgpu backend, for this thread alone while any clone of this lives: its counters then speak of one test.
#[derive(Clone)]
pub struct Turn {
    backend: Arc<WgpuBackend>,
    _held: Rc<ReentrantMutexGuard<'static, ()>>,
}

/// The wgpu backend on the adapter that `SS_ADAPTER` names, software Vulkan without it; one for all tests, so that each
/// pipeline is built once.
///
/// # Panics
/// Where there is no such adapter: a test of kernels that cannot run is red.
pub fn adapter() -> Device {
    static OPENED: OnceLock<Arc<WgpuBackend>> = OnceLock::new();
    Device::turn(&OPENED, fresh_adapter)
}

/// The same adapter, multiplying prompt rows with matrix units in the fast profile.
///
/// # Panics
/// As [`adapter`], and where it has none.
pub fn adapter_with_units() -> Device {
    static OPENED: OnceLock<Arc<WgpuBackend>> = OnceLock::new();
    Device::turn(&OPENED, || {
        let backend = opened(ss_wgpu::Options { matrix_units: true, ..options() });
        assert!(backend.uses_matrix_units(), "this adapter has no matrix units: see `scripts/unpack-mesa.sh`");
        backend
    })
}

/// The same adapter, opened anew: nothing is built on it yet.
///
/// # Panics
/// As [`adapter`].
pub fn fresh_adapter() -> Arc<WgpuBackend> {
    opened(options())
}

fn options() -> ss_wgpu::Options {
    let name = std::env::var("SS_ADAPTER").unwrap_or_else(|_| "llvmpipe".to_owned());
    ss_wgpu::Options::new(AdapterChoice::Named(name))
}

fn opened(options: ss_wgpu::Options) -> Arc<WgpuBackend> {
    Arc::new(WgpuBackend::open(options).unwrap_or_else(|e| panic!("{e}")))
}

impl Default for RigOptions {
    fn default() -> Self {
        RigOptions {
            arithmetic: Arithmetic::Exact,
            slots: PoolSize::All,
            row_cache_bytes: 1 << 20,
            read_group: 0,
            lookahead: LookaheadOptions::default(),
            mutation: Mutation::None,
            pass_mutation: PassMutation::None,
            beyond_halts: false,
            threads: 2,
            taps: false,
            dispatches: None,
            f16_inputs: false,
            device: Device::Reference,
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
    /// Adds a value.
    pub fn put(&self, name: &str, data: TapData<'_>) {
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

fn reference(options: &RigOptions, taps: &Taps) -> Reference {
    let RigOptions { threads, f16_inputs, .. } = *options;
    let backend =
        Reference::new(Options { threads, f16_inputs, ..Options::default() }).unwrap_or_else(|e| panic!("{e}"));
    if !options.taps {
        return backend;
    }
    let into = taps.clone();
    backend.with_tap(Arc::new(move |name: &str, _: &[usize], data: TapData<'_>| into.put(name, data)))
}

fn device(options: &RigOptions, taps: &Taps) -> Arc<dyn Backend> {
    let backend: Arc<dyn Backend> = match &options.device {
        Device::Reference => Arc::new(reference(options, taps)),
        Device::Adapter(turn) => turn.backend.clone(),
    };
    let stepping = match (&options.device, &options.dispatches) {
        _ if options.beyond_halts => Stepping::BeyondHalts,
        (_, Some(dispatches)) => Stepping::Counted(dispatches.clone()),
        // The reference backend has an observer of its own, inside its operations.
        (Device::Adapter(_), None) if options.taps => Stepping::Tapped(taps.clone()),
        _ => return backend,
    };
    Arc::new(Stepwise::new(backend, stepping))
}

/// A model set up for a test.
pub struct Rig {
    /// The model.
    pub model: Model,
    /// What its operations let out, if that was asked for.
    pub taps: Taps,
    /// What it asked of its device.
    pub watch: Watch,
}

impl Rig {
    /// Loads the model of a directory.
    pub fn new(dir: &Path, options: &RigOptions) -> Self {
        let (taps, watch) = (Taps::default(), Watch::default());
        let backend = Arc::new(Watched::new(device(options, &taps), &watch));
        let checkpoint = Arc::new(Checkpoint::open(dir).unwrap_or_else(|e| panic!("{e}")));
        let slots = options.slots.resolve(PoolGeometry::from(checkpoint.geometry())).unwrap_or_else(|e| panic!("{e}"));
        let mut store = StoreOptions::new(slots);
        store.row_cache_bytes = options.row_cache_bytes;
        store.mutation = options.mutation;
        store.lookahead = options.lookahead;
        let RigOptions { arithmetic, read_group, pass_mutation: mutation, .. } = *options;
        let options = ModelOptions { store, arithmetic, read_group, mutation };
        let model = Model::load(backend, checkpoint, options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
        Rig { model, taps, watch }
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
