//! Owns: the modules that replace a kernel's WGSL on some devices, tried in this order (engine.md 2.1).
//! Refuses: other bindings or immediates; a replacement passes the tests of the kernel that it replaces.
//! Invariants: an empty list leaves a working program.

use crate::registry::Override;

/// All of them.
pub(crate) fn all() -> Vec<Box<dyn Override>> {
    vec![
        #[cfg(feature = "msl")]
        Box::new(crate::msl::Msl),
    ]
}
