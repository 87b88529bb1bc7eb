//! Owns: from flags to an opened device.
//! Refuses: a driver that does not open, rather than passing it over; software adapters, unless named.
//! Invariants: what `auto` takes follows from what the adapters say, and `ss devices` tells the same.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use ss_backend::{Backend, DeviceKind};
use ss_reference::Reference;
use ss_wgpu::{AdapterChoice, AdapterFacts, Kernels, SlotWrites, Timed, WgpuBackend};

use crate::args::{BackendChoice, DeviceArgs, KeepAwake, KernelLanguage, MatrixUnits, SlotWriting};
use crate::cache::CacheFile;
use crate::trust::Broken;
use crate::verdicts::{Verdicts, Way};
use crate::{terminal, trust};

/// A device that is ready to compute.
pub struct Device {
    /// As the engine sees it.
    pub backend: Arc<dyn Backend>,
    /// What only an adapter has.
    gpu: Option<Gpu>,
}

struct Gpu {
    adapter: AdapterFacts,
    opened: Arc<WgpuBackend>,
    cache: Option<CacheFile>,
    opening: Opening,
}

/// What says how an adapter is opened.
#[derive(Clone)]
struct Opening {
    choice: AdapterChoice,
    timing: Timing,
    matrix_units: MatrixUnits,
    /// What the flags say of them.
    asked_units: MatrixUnits,
    keep_awake: KeepAwake,
    kernels: KernelLanguage,
    slot_writes: SlotWriting,
}

impl Opening {
    /// What is left out next where an adapter computes wrongly in a way that nobody asked for, and how it is opened then: its
    /// matrix units, then the kernels in its own language, then both.
    fn fallback(&self, way: Way) -> Option<(&'static str, Opening)> {
        let opening = self.clone();
        if way.matrix_units && self.matrix_units == MatrixUnits::Auto {
            return Some(("matrix units", Opening { matrix_units: MatrixUnits::Off, ..opening }));
        }
        let own = way.own_kernels && self.kernels == KernelLanguage::Auto;
        let wgsl = Opening { kernels: KernelLanguage::Wgsl, matrix_units: self.asked_units, ..opening };
        own.then_some(("own kernels", wgsl))
    }
}

/// Whether an adapter times its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// No: nothing is waited for that need not be.
    Off,
    /// Yes, for a profile.
    On,
    /// Each kernel too.
    Kernels,
}

/// What the flags mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Plain Rust.
    Reference,
    /// An adapter; whether there is one is another question.
    Adapter(AdapterChoice),
}

/// What the flags mean on a machine with these adapters.
pub fn choice(args: &DeviceArgs, adapters: &[AdapterFacts]) -> Choice {
    match (args.backend, &args.adapter) {
        (BackendChoice::Reference, _) => Choice::Reference,
        (_, Some(name)) => Choice::Adapter(AdapterChoice::Named(name.clone())),
        (BackendChoice::Wgpu, None) => Choice::Adapter(AdapterChoice::Hardware),
        (BackendChoice::Auto, None) => automatic(adapters),
    }
}

/// What `auto` takes: the first hardware adapter that the kernels can run on, else the reference backend.
pub fn automatic(adapters: &[AdapterFacts]) -> Choice {
    match ss_wgpu::choose(adapters, &AdapterChoice::Hardware) {
        Ok(_) => Choice::Adapter(AdapterChoice::Hardware),
        Err(_) => Choice::Reference,
    }
}

impl Device {
    /// Opens the device that the flags name.
    ///
    /// # Errors
    /// When there is no such adapter, or it does not open.
    pub fn open(args: &DeviceArgs, timing: Timing) -> Result<Self> {
        if args.backend == BackendChoice::Reference {
            return Self::reference(args);
        }
        let adapters = ss_wgpu::adapters();
        match choice(args, &adapters) {
            Choice::Reference => {
                passed_over(&adapters);
                Self::reference(args)
            }
            Choice::Adapter(choice) => {
                let DeviceArgs { matrix_units, keep_awake, kernels, slot_writes, .. } = *args;
                Self::adapter(
                    &adapters,
                    Opening {
                        choice,
                        timing,
                        matrix_units,
                        asked_units: matrix_units,
                        keep_awake,
                        kernels,
                        slot_writes,
                    },
                )
            }
        }
    }

    fn reference(args: &DeviceArgs) -> Result<Self> {
        ensure!(
            args.kernels != KernelLanguage::Msl,
            "`--kernels msl`: the reference backend has no kernels; `auto` takes Metal's where there is a GPU that has them"
        );
        let options = ss_reference::Options { threads: args.threads.into(), ..Default::default() };
        Ok(Device { backend: Arc::new(Reference::new(options)?), gpu: None })
    }

    fn adapter(adapters: &[AdapterFacts], opening: Opening) -> Result<Self> {
        let Opening { choice, timing, matrix_units, keep_awake, kernels, slot_writes, .. } = opening.clone();
        let adapter = match (ss_wgpu::choose(adapters, &choice), &choice) {
            (Ok(adapter), _) => adapter.clone(),
            // A name that nothing has is wrong usage; no device has failed.
            (Err(error), AdapterChoice::Named(_)) => bail!("`--adapter`: {error}"),
            (Err(error), _) => return Err(error.into()),
        };
        let cache = adapter.cache_name.as_deref().and_then(CacheFile::open);
        let mut options = ss_wgpu::Options::new(choice.clone());
        options.timed = match timing {
            Timing::Off => Timed::Nothing,
            Timing::On => Timed::Submissions,
            Timing::Kernels => Timed::Kernels,
        };
        options.matrix_units = match matrix_units {
            MatrixUnits::On => true,
            MatrixUnits::Auto => adapter.device.kind == DeviceKind::Hardware,
            MatrixUnits::Off => false,
        };
        options.keep_awake = match keep_awake {
            KeepAwake::On => true,
            // Where it shares the processor's, whether it is worth its power is not known.
            KeepAwake::Auto => adapter.device.kind == DeviceKind::Hardware && !adapter.device.unified,
            KeepAwake::Off => false,
        };
        options.slot_writes = match slot_writes {
            SlotWriting::Auto => SlotWrites::InPlace,
            SlotWriting::Staged => SlotWrites::Staged,
        };
        options.kernels = match kernels {
            KernelLanguage::Auto => Kernels::Auto,
            KernelLanguage::Wgsl => Kernels::Wgsl,
            KernelLanguage::Msl => Kernels::Msl,
        };
        ensure!(
            kernels != KernelLanguage::Msl || !ss_wgpu::kernel_overrides(&adapter).is_empty(),
            "`--kernels msl`: the adapter `{}` takes no kernels in Metal's language; `auto` does without them",
            adapter.device.device
        );
        options.pipeline_cache = cache.as_ref().and_then(CacheFile::read);
        let opened = Arc::new(WgpuBackend::open(options)?);
        ensure!(
            matrix_units != MatrixUnits::On || opened.uses_matrix_units(),
            "`--matrix-units on`: the adapter `{}` has none that the kernels can use; `auto` does without them",
            adapter.device.device
        );
        let gpu = Gpu { adapter, opened: opened.clone(), cache, opening };
        Ok(Device { backend: opened, gpu: Some(gpu) })
    }

    /// What a self-test compares it with: the processor, doing the same arithmetic.
    ///
    /// # Errors
    /// Where the system gives no threads.
    pub fn twin(&self) -> Result<Reference> {
        // Beside vector loops the plain ones stand.
        let simd = self.gpu.is_some();
        let f16_inputs = self.gpu.as_ref().is_some_and(|gpu| gpu.opened.takes_f16_inputs());
        Ok(Reference::new(ss_reference::Options { simd, f16_inputs, ..Default::default() })?)
    }

    /// Makes sure that it computes rightly: an adapter is tested at its first start. One that fails with matrix units or kernels of
    /// its own which nobody asked for is opened anew without them, so that this comes before anything is put on the device.
    ///
    /// # Errors
    /// When it does not, or cannot be tested.
    pub fn prove(&mut self) -> Result<()> {
        let Some(gpu) = &self.gpu else { return Ok(()) };
        let way = self.way();
        let proved = trust::check(&*gpu.opened, way, &self.twin()?, &mut Verdicts::open());
        let Err(error) = proved else { return Ok(()) };
        let Some((without, opening)) = gpu.opening.fallback(way).filter(|_| error.is::<Broken>()) else {
            return Err(error);
        };
        terminal::note(format_args!("note: with its {without} {error}; it computes without them"));
        let adapter = gpu.adapter.clone();
        *self = Self::adapter(&[adapter], opening)?;
        self.prove()
    }

    /// How it computes.
    pub fn way(&self) -> Way {
        self.gpu.as_ref().map_or_else(Way::default, |gpu| Way {
            matrix_units: gpu.opened.uses_matrix_units(),
            own_kernels: gpu.opened.uses_own_kernels(),
        })
    }

    /// Whether it reads prompts with matrix units.
    pub fn uses_matrix_units(&self) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.opened.uses_matrix_units())
    }

    /// Keeps what the driver has made of the kernels, for the next start, and says which of its own language it did not take.
    pub fn keep(&self) {
        let refused = self.gpu.as_ref().map(|gpu| gpu.opened.refused_kernels()).unwrap_or_default();
        if !refused.is_empty() {
            let named = refused.join(", ");
            terminal::note(format_args!(
                "note: these kernels did not build in its own language and ran as WGSL: {named}"
            ));
        }
        if let Some((opened, cache)) = self.gpu.as_ref().and_then(|gpu| Some((&gpu.opened, gpu.cache.as_ref()?))) {
            opened.pipeline_cache().iter().for_each(|data| cache.write(data));
        }
    }

    /// Whether it is an adapter, not the reference backend.
    pub fn is_adapter(&self) -> bool {
        self.gpu.is_some()
    }

    /// Whether its memory is its own, not the processor's.
    pub fn has_own_memory(&self) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.adapter.own_memory)
    }
}

/// Says which hardware `auto` cannot use.
fn passed_over(adapters: &[AdapterFacts]) {
    for adapter in adapters.iter().filter(|adapter| adapter.device.kind == DeviceKind::Hardware) {
        if let Some(lacks) = &adapter.lacks {
            terminal::note(format_args!(
                "note: the adapter `{}` {lacks}; the processor computes instead",
                adapter.device.device
            ));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ss_backend::DeviceFacts;

    /// An adapter that can run everything.
    pub(crate) fn adapter(name: &str, kind: DeviceKind) -> AdapterFacts {
        AdapterFacts {
            device: DeviceFacts {
                backend: "wgpu",
                device: name.into(),
                driver: "driver 1".into(),
                kind,
                max_buffer_bytes: 1 << 31,
                max_binding_bytes: 1 << 27,
                unified: false,
                subgroup: (8, 32),
                f16: true,
                matrix_tiles: vec![(16, 16, 16)],
                threads: 0,
            },
            api: "vulkan",
            working_set: None,
            own_memory: kind == DeviceKind::Hardware,
            in_place: false,
            binding_arrays: true,
            immediate_bytes: 128,
            workgroup_bytes: 32768,
            workgroup_threads: 1024,
            cache_name: None,
            lacks: None,
        }
    }

    fn args(backend: BackendChoice, adapter: Option<&str>) -> DeviceArgs {
        let (adapter, matrix_units) = (adapter.map(str::to_string), MatrixUnits::Auto);
        DeviceArgs {
            backend,
            adapter,
            matrix_units,
            keep_awake: KeepAwake::Auto,
            kernels: KernelLanguage::Auto,
            slot_writes: SlotWriting::Auto,
            threads: 0,
        }
    }

    #[test]
    fn auto_takes_hardware_and_never_software() {
        let (software, card) = (adapter("llvmpipe", DeviceKind::Software), adapter("Card", DeviceKind::Hardware));
        let broken = AdapterFacts { lacks: Some("takes 0 bytes".into()), ..card.clone() };
        let auto = args(BackendChoice::Auto, None);
        assert_eq!(choice(&auto, &[]), Choice::Reference);
        assert_eq!(choice(&auto, &[software.clone(), broken]), Choice::Reference);
        assert_eq!(choice(&auto, &[software, card]), Choice::Adapter(AdapterChoice::Hardware));
    }

    /// What is left out one after the other by an adapter that is wrong in every way.
    fn left_out(matrix_units: MatrixUnits, kernels: KernelLanguage) -> Vec<&'static str> {
        let (choice, timing) = (AdapterChoice::Hardware, Timing::Off);
        let asked_units = matrix_units;
        let mut opening = Opening {
            choice,
            timing,
            matrix_units,
            asked_units,
            keep_awake: KeepAwake::Auto,
            kernels,
            slot_writes: SlotWriting::Auto,
        };
        let mut all = Vec::new();
        let way = |opening: &Opening| Way {
            matrix_units: opening.matrix_units != MatrixUnits::Off,
            own_kernels: opening.kernels != KernelLanguage::Wgsl,
        };
        while let Some((without, next)) = opening.fallback(way(&opening)) {
            all.push(without);
            opening = next;
        }
        all
    }

    #[test]
    fn what_nobody_asked_for_is_left_out_where_it_computes_wrongly() {
        use {KernelLanguage as Language, MatrixUnits as Units};
        let all = ["matrix units", "own kernels", "matrix units"];
        assert_eq!(left_out(Units::Auto, Language::Auto), all, "the WGSL may be right with them");
        assert_eq!(left_out(Units::Off, Language::Auto), ["own kernels"]);
        assert_eq!(left_out(Units::Auto, Language::Msl), ["matrix units"]);
        assert_eq!(left_out(Units::On, Language::Auto), ["own kernels"]);
        assert_eq!(left_out(Units::On, Language::Msl), [""; 0]);
    }

    #[test]
    fn a_name_means_an_adapter_whatever_there_is() {
        for backend in [BackendChoice::Auto, BackendChoice::Wgpu] {
            let named = Choice::Adapter(AdapterChoice::Named("pipe".into()));
            assert_eq!(choice(&args(backend, Some("pipe")), &[]), named);
        }
        assert_eq!(choice(&args(BackendChoice::Wgpu, None), &[]), Choice::Adapter(AdapterChoice::Hardware));
        assert_eq!(choice(&args(BackendChoice::Reference, None), &[]), Choice::Reference);
    }
}
