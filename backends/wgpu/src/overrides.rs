//! Owns: the modules that replace a kernel's WGSL on some devices, tried in this order (engine.md 2.1), and who chooses.
//! Refuses: other bindings or immediates; a replacement passes the tests of the kernel that it replaces.
//! Invariants: an empty list leaves a working program.

use crate::adapter::AdapterFacts;
use crate::device::Device;
use crate::registry::{Kernel, Key};

/// A module that replaces a kernel's WGSL: same bindings, same immediates.
pub(crate) struct Replacement {
    pub(crate) module: wgpu::ShaderModule,
    /// Name of its entry point.
    pub(crate) entry: &'static str,
    /// Whether it declares the override constants of the WGSL, or has them written in.
    pub(crate) takes_constants: bool,
}

/// A source of modules in another language, or better ones, for some keys (engine.md 2.1).
pub(crate) trait Override: Send + Sync {
    /// What it is called in the list of devices and in profiles.
    fn name(&self) -> &'static str;

    /// The kernels that it replaces on devices of an interface.
    fn kernels(&self, api: &str) -> Vec<&'static str>;

    /// The module for a key; none to leave the WGSL in place.
    fn module(&self, device: &Device, kernel: &Kernel, key: &Key) -> Option<Replacement>;
}

/// Which kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Those in a device's own language where there are some, else the WGSL.
    #[default]
    Auto,
    /// The WGSL alone.
    Wgsl,
    /// As `Auto`, on a device that must take Metal's.
    Msl,
}

/// All of them.
pub(crate) fn all() -> Vec<Box<dyn Override>> {
    vec![
        #[cfg(feature = "msl")]
        Box::new(crate::msl::Msl),
    ]
}

/// Those that are wanted.
pub(crate) fn wanted(kernels: Kernels) -> Vec<Box<dyn Override>> {
    if kernels == Kernels::Wgsl { Vec::new() } else { all() }
}

/// Names of the kernels that are replaced on an adapter, each with the language.
pub fn kernel_overrides(adapter: &AdapterFacts) -> Vec<(&'static str, &'static str)> {
    let named = |replacement: &dyn Override| {
        let language = replacement.name();
        replacement.kernels(adapter.api).into_iter().map(move |kernel| (kernel, language)).collect::<Vec<_>>()
    };
    all().iter().flat_map(|replacement| named(&**replacement)).collect()
}
