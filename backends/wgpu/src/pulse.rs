//! Owns: the small work that keeps a GPU from slowing down while a reply waits for records (engine.md section 5.4): a
//! dispatch of a few microseconds now and then, from a thread of its own.
//! Refuses: when a reply waits; the engine says so.
//! Invariants: nothing is handed over but while somebody holds the device awake; the thread is over before the device is gone.

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::device::{Block, Device};
use crate::tuning::{PULSE_EVERY, PULSE_STEPS};

/// Keeps one device awake.
pub(crate) struct Pulse {
    state: Arc<State>,
    thread: OnceLock<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    holds: Mutex<Holds>,
    changed: Condvar,
}

#[derive(Default)]
struct Holds {
    /// How many hold the device awake.
    count: usize,
    /// Pulses handed over.
    pulses: u64,
    over: bool,
}

/// Holds a device awake while it lives.
struct Hold(Arc<State>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.lock().count -= 1;
    }
}

/// What a pulse is made of.
struct Beat {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    _kept: Block,
}

impl Pulse {
    /// At rest, no thread started.
    pub(crate) fn new() -> Self {
        Pulse { state: Arc::default(), thread: OnceLock::new() }
    }

    /// Keeps a device awake until what this gives is dropped. A device that cannot be is not: nothing depends on it.
    pub(crate) fn hold(&self, device: &Device) -> Option<Box<dyn Send>> {
        if self.thread.get().is_none() {
            let (beat, state) = (Beat::new(device).ok()?, self.state.clone());
            let thread =
                std::thread::Builder::new().name("ss-pulse".to_owned()).spawn(move || state.run(&beat)).ok()?;
            // Whoever was first keeps the thread; there is one caller at a time.
            let _ = self.thread.set(thread);
        }
        self.state.holds.lock().count += 1;
        self.state.changed.notify_one();
        Some(Box::new(Hold(self.state.clone())))
    }

    /// How many pulses were handed over.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.state.holds.lock().pulses
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.state.holds.lock().over = true;
        self.state.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl State {
    fn run(&self, beat: &Beat) {
        let mut holds = self.holds.lock();
        while !holds.over {
            if holds.count == 0 {
                self.changed.wait(&mut holds);
                continue;
            }
            holds.pulses += 1;
            parking_lot::MutexGuard::unlocked(&mut holds, || beat.hand_over());
            self.changed.wait_for(&mut holds, PULSE_EVERY);
        }
    }
}

impl Beat {
    fn new(device: &Device) -> ss_backend::Result<Self> {
        let kept = device.block("pulse", size_of::<f32>() as u64, wgpu::BufferUsages::STORAGE)?;
        let source = wgpu::ShaderSource::Wgsl(include_str!("../../../wgsl/pulse.wgsl").into());
        let module = device.raw.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some("pulse"), source });
        let pipeline = device.raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("pulse"),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[("STEPS", f64::from(PULSE_STEPS))],
                ..Default::default()
            },
            cache: None,
        });
        let group = device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("pulse"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: kept.raw.as_entire_binding() }],
        });
        Ok(Beat { device: device.raw.clone(), queue: device.queue.clone(), pipeline, group, _kept: kept })
    }

    fn hand_over(&self) {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        drop(pass);
        self.queue.submit([encoder.finish()]);
    }
}
