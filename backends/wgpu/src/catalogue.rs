//! Owns: the list of kernels as text, from which `docs/kernels.md` is made.
//! Invariants: everything in it is read from the registry, the WGSL files and the tuning table; a test compares the file.

use std::fmt::Write;

use crate::bindings::{Access, declared};
use crate::ops::KERNELS;
use crate::registry::Kernel;
use crate::tuning::TABLE;

const HEAD: &str = "\
# Kernels

Made from the kernel registry of `backends/wgpu`; do not edit. To make it anew:
`SS_WRITE_DOCS=1 cargo test -p ss-wgpu catalogue`.

A kernel is one file of `wgsl/`, in front of which its parts are put: what it shares with others, and for each of its
weights the part of the weight's format (`weight_affine4`, `weight_affine8`, `weight_dense16`, `weight_dense32`,
`weight_loose`). Weights are bound after the bindings listed here: codes, then scales and biases of an affine weight. The
slot pool is a group of its own. `w` marks what is written. Where matrix units multiply, `gemm_units` and `units_8` or
`units_16` stand for `gemm`, and inputs whose rows are not whole quads have `inputs_loose` for `inputs_quads`.
";

/// How many kernels there are.
pub fn kernel_count() -> usize {
    KERNELS.iter().map(|family| family.len()).sum()
}

/// The text of `docs/kernels.md`.
pub fn kernel_table() -> String {
    let mut text = HEAD.to_owned();
    let mut kernels: Vec<&Kernel> = KERNELS.iter().copied().flatten().copied().collect();
    kernels.sort_by_key(|kernel| kernel.operation);
    text += "\n| operation | file | parts | bindings | weights | maths | twin | tests | tuning |\n";
    text += "|---|---|---|---|---|---|---|---|---|\n";
    kernels.into_iter().for_each(|kernel| row(&mut text, kernel));
    text += &metal();
    text += "\n## Tuning\n\n| name | value | device | measurement |\n|---|---|---|---|\n";
    for tuned in TABLE {
        let _ = writeln!(text, "| {} | {} | {} | {} |", tuned.name, tuned.value, tuned.device, tuned.note);
    }
    text
}

/// What `msl/` has for devices that are reached through Metal.
#[cfg(feature = "msl")]
fn metal() -> String {
    let mut text = "\n## In Metal's own language\n\n| kernel | made of, from `msl/` |\n|---|---|\n".to_owned();
    for (kernel, files) in crate::msl::list() {
        let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
        let _ = writeln!(text, "| {kernel} | {} |", files.join(", "));
    }
    text
}

#[cfg(not(feature = "msl"))]
fn metal() -> String {
    String::new()
}

fn row(text: &mut String, kernel: &Kernel) {
    let once = kernel.product.once(&[]);
    let per_weight = kernel.product.per_weight(&[]).iter().copied();
    let parts = kernel.parts.iter().chain(&once).copied().chain(per_weight);
    let parts: Vec<String> = parts.map(|part| format!("`{}`", part.file)).collect();
    let own = once.iter().copied().chain([&kernel.main]).chain(kernel.parts.iter().copied());
    let own = own.flat_map(|part| declared(part.text));
    let bindings: Vec<String> = own
        .map(|binding| {
            let mark = if binding.access == Access::Write { " w" } else { "" };
            format!("`{}`{mark} {}", binding.name, binding.shape.replace('|', "\\|"))
        })
        .collect();
    let _ = writeln!(
        text,
        "| {} | `{}` | {} | {} | {} | {} | `{}` | `{}` | {} |",
        kernel.operation,
        kernel.main.file,
        parts.join(", "),
        bindings.join("; "),
        kernel.weights.join(", "),
        kernel.section,
        kernel.twin,
        kernel.tests,
        kernel.tuning.join(", "),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "msl")]
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernels.md");

    #[test]
    #[cfg(feature = "msl")]
    fn the_catalogue_in_the_documentation_is_that_of_the_registry() {
        let text = kernel_table();
        if std::env::var_os("SS_WRITE_DOCS").is_some() {
            std::fs::write(FILE, &text).unwrap();
        }
        let written = std::fs::read_to_string(FILE).unwrap_or_default();
        assert_eq!(written, text, "run `SS_WRITE_DOCS=1 cargo test -p ss-wgpu catalogue`");
    }

    #[test]
    fn every_kernel_is_listed_once_with_files_that_exist() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let kernels: Vec<&Kernel> = KERNELS.iter().copied().flatten().copied().collect();
        for kernel in &kernels {
            let same = kernels.iter().filter(|other| other.name() == kernel.name()).count();
            assert_eq!(same, 1, "{} is listed {same} times", kernel.name());
            for file in [kernel.twin, kernel.tests] {
                assert!(std::path::Path::new(root).join(file).exists(), "{}: {file}", kernel.name());
            }
            for name in kernel.tuning {
                assert!(TABLE.iter().any(|tuned| tuned.name == *name), "{}: {name}", kernel.name());
            }
            assert!(kernel.main.text.starts_with("//"), "{} does not say what it computes", kernel.main.file);
        }
    }
}
