//! Owns: what accesses to workgroup memory must say in Vulkan's memory model, added to a module that does not say it.
//! Refuses: words that are no module.
//! Invariants: only operands of accesses and of barriers are added, and the constants that these name; nothing is moved.
//!
//! An access through a pointer to workgroup memory becomes `NonPrivatePointer`; a barrier that orders workgroup memory also
//! makes what was written available and visible (SPIR-V specification, "Memory Operands" and "Memory Semantics").

use std::collections::{BTreeMap, HashMap, HashSet};

use spirv::{MemoryAccess, MemorySemantics, Op, StorageClass, Word};

/// Words before the first instruction; the fourth is larger than every name.
const HEADER: usize = 5;
const BOUND: usize = 3;

/// Bits of an instruction's first word that name it; the others count its words.
const NAME_BITS: u32 = 16;

/// An instruction: its first word and its operands.
struct Instruction<'a> {
    op: u32,
    operands: &'a [Word],
}

/// The instructions of a module; none if it ends inside one.
fn instructions(words: &[Word]) -> Option<Vec<Instruction<'_>>> {
    let mut rest = words.get(HEADER..)?;
    let mut all = Vec::new();
    while let Some(&first) = rest.first() {
        let length = (first >> NAME_BITS) as usize;
        let (instruction, after) = rest.split_at_checked(length)?;
        all.push(Instruction { op: first & ((1 << NAME_BITS) - 1), operands: instruction.get(1..)? });
        rest = after;
    }
    Some(all)
}

/// What is known of a module's names.
#[derive(Default)]
struct Names {
    /// Types of pointers to workgroup memory.
    types: HashSet<Word>,
    /// Such pointers.
    pointers: HashSet<Word>,
    /// Type and value of constants of one word.
    constants: HashMap<Word, (Word, u32)>,
}

impl Names {
    fn of(all: &[Instruction<'_>]) -> Self {
        let mut names = Names::default();
        for Instruction { op, operands } in all {
            match **operands {
                [id, class, _] if *op == Op::TypePointer as u32 && class == StorageClass::Workgroup as u32 => {
                    names.types.insert(id);
                }
                [kind, id, value] if *op == Op::Constant as u32 => {
                    names.constants.insert(id, (kind, value));
                }
                // A pointer to workgroup memory is known by its type, whatever makes it.
                [kind, id, ..] if names.types.contains(&kind) => {
                    names.pointers.insert(id);
                }
                _ => {}
            }
        }
        names
    }

    /// Place of the memory operand of an access to workgroup memory.
    fn access(&self, instruction: &Instruction<'_>) -> Option<usize> {
        let (pointer, place) = match instruction.op {
            op if op == Op::Load as u32 => (2, 3),
            op if op == Op::Store as u32 => (0, 2),
            op if op == Op::CooperativeMatrixLoadKHR as u32 => (2, 5),
            op if op == Op::CooperativeMatrixStoreKHR as u32 => (0, 4),
            _ => return None,
        };
        self.pointers.contains(instruction.operands.get(pointer)?).then_some(place)
    }

    /// Place of the semantics of a barrier, and their type and value, if it orders workgroup memory.
    fn barrier(&self, instruction: &Instruction<'_>) -> Option<(usize, Word, MemorySemantics)> {
        let place = match instruction.op {
            op if op == Op::ControlBarrier as u32 => 2,
            op if op == Op::MemoryBarrier as u32 => 1,
            _ => return None,
        };
        let &(kind, value) = self.constants.get(instruction.operands.get(place)?)?;
        let semantics = MemorySemantics::from_bits_retain(value);
        semantics.contains(MemorySemantics::WORKGROUP_MEMORY).then_some((place, kind, semantics))
    }
}

fn push(into: &mut Vec<Word>, op: u32, operands: &[Word]) {
    into.push(((operands.len() as u32 + 1) << NAME_BITS) | op);
    into.extend_from_slice(operands);
}

/// The module with what its accesses must say; none if it is none.
pub(super) fn told(words: &[Word]) -> Option<Vec<Word>> {
    let all = instructions(words)?;
    let names = Names::of(&all);
    let mut bound = *words.get(BOUND)?;
    // Semantics by type and value, under new names; in order, so that the same module gives the same words.
    let mut semantics: BTreeMap<(Word, u32), Word> = BTreeMap::new();
    for (_, kind, value) in all.iter().filter_map(|instruction| names.barrier(instruction)) {
        semantics.entry((kind, value.bits())).or_insert_with(|| {
            bound += 1;
            bound - 1
        });
    }
    let mut out = words.get(..HEADER)?.to_vec();
    out[BOUND] = bound;
    let mut declared = false;
    for instruction in &all {
        let mut operands = instruction.operands.to_vec();
        if instruction.op == Op::Function as u32 && !declared {
            declared = true;
            for (&(kind, value), &id) in &semantics {
                let made = MemorySemantics::MAKE_AVAILABLE | MemorySemantics::MAKE_VISIBLE;
                push(&mut out, Op::Constant as u32, &[kind, id, value | made.bits()]);
            }
        }
        if let Some(place) = names.access(instruction) {
            operands.resize(operands.len().max(place + 1), 0);
            operands[place] |= MemoryAccess::NON_PRIVATE_POINTER.bits();
        }
        if let Some((place, kind, value)) = names.barrier(instruction) {
            operands[place] = *semantics.get(&(kind, value.bits()))?;
        }
        push(&mut out, instruction.op, &operands);
    }
    Some(out)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Accesses to workgroup memory and barriers that order it, and how many of them say what they must.
    pub(crate) fn said(words: &[Word]) -> (usize, usize) {
        let all = instructions(words).unwrap();
        let names = Names::of(&all);
        let made = MemorySemantics::MAKE_AVAILABLE | MemorySemantics::MAKE_VISIBLE;
        let says = all.iter().filter_map(|instruction| match (names.access(instruction), names.barrier(instruction)) {
            (Some(place), _) => {
                let operand = instruction.operands.get(place).copied().unwrap_or_default();
                Some(operand & MemoryAccess::NON_PRIVATE_POINTER.bits() != 0)
            }
            (_, Some((_, _, semantics))) => Some(semantics.contains(made)),
            _ => None,
        });
        let says: Vec<bool> = says.collect();
        (says.len(), says.iter().filter(|&&said| said).count())
    }

    const KERNEL: &str = "
        var<workgroup> tile: array<f32, 64>;
        @group(0) @binding(0) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) thread: u32) {
            tile[thread] = f32(thread);
            workgroupBarrier();
            out[thread] = tile[63u - thread];
        }";

    #[test]
    fn what_threads_share_is_told_and_nothing_else_changes() {
        let module = naga::front::wgsl::parse_str(KERNEL).unwrap();
        let validator = naga::valid::ValidationFlags::all();
        let info = naga::valid::Validator::new(validator, naga::valid::Capabilities::all()).validate(&module).unwrap();
        let words = naga::back::spv::write_vec(&module, &info, &naga::back::spv::Options::default(), None).unwrap();
        // A store, a barrier, a load.
        assert_eq!((said(&words).1, said(&words).0 >= 3), (0, true));
        let told = told(&words).unwrap();
        assert_eq!(said(&told).0, said(&words).0);
        assert_eq!(said(&told).1, said(&told).0);
        let ops = |words| {
            instructions(words)
                .unwrap()
                .iter()
                .map(|i| i.op)
                .filter(|&op| op != Op::Constant as u32)
                .collect::<Vec<_>>()
        };
        assert_eq!(ops(&told), ops(&words));
        assert!(told[BOUND] > words[BOUND]);
        assert_eq!(super::told(&told).map(|again| said(&again)), Some(said(&told)));
    }

    #[test]
    fn words_that_end_inside_an_instruction_are_no_module() {
        assert!(told(&[]).is_none());
        assert!(told(&[0, 0, 0, 9, 0, 3 << NAME_BITS, 1]).is_none());
        assert!(told(&[0, 0, 0, 9, 0, 0]).is_none());
    }
}
