//! Owns: a backend whose Metal kernels run in the harness: everything else is software Vulkan's.
//! Refuses: what the harness finds wrong, as an error of the operation.
//! Invariants: kernels run in order, each on what those before it left; a kernel of `msl/` never runs as WGSL here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use ss_backend::{
    Backend, Buffer, Counters, DeviceFacts, Error, Pool, Readback, RecordLayout, Result, SlotWriter, Submission, Work,
};

use super::program::{Argument, Program};
use crate::backend::{Dispatch, MadeOf, Step};
use crate::bindings::Access;
use crate::device::Device;
use crate::encoding::View;
use crate::msl::{Said, said};
use crate::overrides::{Override, Replacement};
use crate::registry::{ENTRY, Inputs, Kernel, Key, PoolBinding, Registry, Side, Units};
use crate::tests::fixture::{Mutation, open_with};
use crate::{ChunkAccess, WgpuBackend};

/// In place of the WGSL that runs nowhere: a module that does nothing.
struct Elsewhere;

impl Override for Elsewhere {
    fn name(&self) -> &'static str {
        "elsewhere"
    }

    fn kernels(&self, _: &str) -> Vec<&'static str> {
        Vec::new()
    }

    fn module(&self, device: &Device, kernel: &Kernel, key: &Key) -> Option<Replacement> {
        said(kernel, key)?;
        let source = wgpu::ShaderSource::Wgsl("@compute @workgroup_size(1) fn main() {}".into());
        let module = device.raw.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        Some(Replacement { module, entry: ENTRY, takes_constants: false })
    }
}

/// A device with Metal's kernels.
pub(super) struct OnCpu {
    device: WgpuBackend,
    mutation: Option<Mutation>,
    programs: Mutex<HashMap<Key, Arc<std::result::Result<Program, String>>>>,
    /// Kernels that ran in the harness.
    ran: AtomicUsize,
    /// Texts that the mutation changed.
    changed: AtomicUsize,
}

impl OnCpu {
    /// Opens it, its pool in chunks of at most `chunk_bytes`, with text replaced in every kernel of `msl/`.
    pub(super) fn new(chunk_bytes: Option<u64>, access: ChunkAccess, mutation: Option<Mutation>) -> Self {
        let mut device = open_with(chunk_bytes, access, Registry::with_overrides(vec![Box::new(Elsewhere)]));
        // What prompt rows are multiplied with on Apple's devices; no adapter here needs to have it.
        device.shared_mut().rounded = Inputs::Units(Units { side: Side::Eight, subgroup: 32 });
        OnCpu { device, mutation, programs: Mutex::default(), ran: AtomicUsize::new(0), changed: AtomicUsize::new(0) }
    }

    /// How many kernels ran in the harness.
    pub(super) fn ran(&self) -> usize {
        self.ran.load(Ordering::Relaxed)
    }

    /// How many texts the mutation changed.
    pub(super) fn changed(&self) -> usize {
        self.changed.load(Ordering::Relaxed)
    }

    fn program(&self, said: &Said, key: &Key) -> Arc<std::result::Result<Program, String>> {
        let mut programs = self.programs.lock();
        let program = programs.entry(key.clone()).or_insert_with(|| {
            let mut said = said.clone();
            if let Some((from, to)) = self.mutation {
                let text = said.text.replace(from, to);
                self.changed.fetch_add(usize::from(text != said.text), Ordering::Relaxed);
                said.text = text;
            }
            let program = Program::new(&said);
            // A test that changes text wants to see it run: what does not compile proves nothing.
            if let (Some(mutation), Err(why)) = (self.mutation, &program) {
                assert!(!why.contains(" generated."), "{mutation:?} does not compile:\n{why}");
            }
            Arc::new(program)
        });
        Arc::clone(program)
    }

    fn run(&self, dispatch: &Dispatch, said: &Said) -> std::result::Result<(), String> {
        let MadeOf { key, views, chunks, .. } = &dispatch.made_of;
        let program = self.program(said, key);
        let program = (*program).as_ref().map_err(String::clone)?;
        let mut arguments = vec![Argument::read(bytemuck::cast_slice(&dispatch.immediates))];
        for (view, binding) in views.iter().zip(&dispatch.pipeline.bindings) {
            arguments.push(Argument::Buffer { bytes: self.bytes(view), written: binding.access == Access::Write });
        }
        let chunks: Vec<Vec<u8>> = chunks.iter().map(|chunk| self.bytes(&whole(chunk))).collect();
        // Each chunk is bound as quads and as words.
        match (key.pool, &chunks[..]) {
            (PoolBinding::None, _) => {}
            (PoolBinding::Chunk, [chunk]) => arguments.extend([Argument::read(chunk), Argument::read(chunk)]),
            _ => arguments.extend([Argument::Array(chunks.clone()), Argument::Array(chunks)]),
        }
        let answers = program.run(dispatch.grid, &arguments)?;
        let written = views.iter().zip(&dispatch.pipeline.bindings).filter(|(_, b)| b.access == Access::Write);
        for ((view, _), answer) in written.zip(answers) {
            self.device.device().queue.write_buffer(&view.buffer, view.offset, &answer);
        }
        self.ran.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What a view holds after all work.
    fn bytes(&self, view: &View) -> Vec<u8> {
        let device = self.device.device();
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let block = device.block("test", view.bytes, usage).unwrap();
        let mut encoder = device.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(&view.buffer, view.offset, &block.raw, 0, view.bytes);
        device.queue.submit([encoder.finish()]);
        block.raw.map_async(wgpu::MapMode::Read, ..view.bytes, |_| ());
        device.wait(None).unwrap();
        block.raw.get_mapped_range(..view.bytes).unwrap().to_vec()
    }
}

fn whole(buffer: &wgpu::Buffer) -> View {
    View { buffer: buffer.clone(), offset: 0, bytes: buffer.size() }
}

impl Backend for OnCpu {
    fn facts(&self) -> &DeviceFacts {
        self.device.facts()
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }

    fn alloc(&self, label: &str, bytes: u64) -> Result<Buffer> {
        self.device.alloc(label, bytes)
    }

    fn upload(&self, target: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.upload(target, offset, bytes)
    }

    fn read_all(&self, parts: &mut [Readback<'_>]) -> Result<()> {
        self.device.read_all(parts)
    }

    fn alloc_pool(&self, layout: &RecordLayout, slots: u32) -> Result<Pool> {
        self.device.alloc_pool(layout, slots)
    }

    fn open_slot(&self, pool: &Pool, slot: u32) -> Result<Box<dyn SlotWriter>> {
        self.device.open_slot(pool, slot)
    }

    fn submit(&self, work: Work<'_>) -> Result<Submission> {
        let shared = self.device.shared();
        let mut last = shared.run(&[])?;
        for step in work.steps.chunks(1) {
            let mut steps = Vec::new();
            shared.encode(Work { steps: step, ..work }, &mut steps, None)?;
            for step in steps {
                let here = step.dispatch().and_then(|d| Some((d, said(d.made_of.kernel, &d.made_of.key)?)));
                match here {
                    Some((dispatch, said)) => self.run(dispatch, &said).map_err(Error::Refused)?,
                    None => last = shared.run(std::slice::from_ref::<Step>(&step))?,
                }
            }
        }
        Ok(last)
    }

    fn wait(&self, submission: Submission) -> Result<()> {
        self.device.wait(submission)
    }
}
