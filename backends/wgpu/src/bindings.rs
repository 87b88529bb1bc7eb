//! Owns: the storage bindings of a kernel, read from the lines that declare them.
//! Refuses: bindings of other kinds; kernels have none.
//! Invariants: what is bound, how a list of kernels shows it and where Metal puts it follow from the WGSL alone.

/// What a shader does with a storage buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A binding as the WGSL declares it: `@group(0) @binding(0) var<storage, read> name: type; // [shape]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) group: u32,
    pub(crate) index: u32,
    pub(crate) access: Access,
    pub(crate) name: String,
    pub(crate) shape: String,
}

/// The storage bindings that a source declares, in order.
pub(crate) fn declared(source: &str) -> Vec<Binding> {
    source.lines().filter_map(declaration).collect()
}

fn declaration(line: &str) -> Option<Binding> {
    let (group, rest) = line.strip_prefix("@group(")?.split_once(") @binding(")?;
    let (index, rest) = rest.split_once(") var<storage, ")?;
    let (access, rest) = rest.split_once("> ")?;
    let (name, rest) = rest.split_once(": ")?;
    let shape = rest.split_once("// ").map_or("", |(_, shape)| shape);
    Some(Binding {
        group: group.parse().ok()?,
        // The bindings of a weight's part have no numbers yet.
        index: index.parse().unwrap_or(0),
        access: if access == "read" { Access::Read } else { Access::Write },
        name: name.to_owned(),
        shape: shape.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_is_read_with_its_shape() {
        let line = "@group(0) @binding(3) var<storage, read_write> out: array<f32>; // [rows, outputs]";
        let binding = &declared(line)[0];
        assert_eq!(
            (binding.index, binding.access, &*binding.name, &*binding.shape),
            (3, Access::Write, "out", "[rows, outputs]")
        );
    }
}
