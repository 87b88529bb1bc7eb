//! Owns: the tests of device times: what is timed, and that kernels add up to their submissions.

use std::time::Duration;

use ss_backend::op::ExpertsIn;
use ss_backend::{Arithmetic, Backend, Counters, Form, Recorder, Rows, Scalar};

use super::fixture::{Random, Shape, filled, pool, timed};
use crate::{Timed, WHOLE};

const SMALL: Shape = Shape { hidden: 64, inner: 32, group: 32, scale: Scalar::Bf16 };

/// What a device counts that runs one kernel so often in one submission.
fn counted(kind: Timed, dispatches: u32) -> Counters {
    let device = timed(kind);
    let pool = pool(&device, SMALL, 1, &[(0, SMALL.record(1))]);
    let (u, slots) = (filled(&device, &Random(1).floats(SMALL.hidden)), filled(&device, &[0u32]));
    let out = filled(&device, &vec![0.0f32; SMALL.inner as usize]);
    let mut recorder = Recorder::new(Arithmetic::Fast);
    for _ in 0..dispatches {
        recorder.experts_in(ExpertsIn {
            rows: Rows { count: 1, form: Form::Generated },
            choices: 1,
            u: u.clone(),
            pool: pool.clone(),
            slots: slots.clone(),
            out: out.clone(),
            shared: None,
        });
    }
    let submission = device.submit(recorder.all()).unwrap();
    device.wait(submission).unwrap();
    device.counters()
}

#[test]
fn every_call_of_a_kernel_is_timed_and_the_kernels_add_up_to_their_submission() {
    let counters = counted(Timed::Kernels, 20);
    let (label, kernel) = counters.kernels.first_key_value().expect("software Vulkan marks inside passes");
    assert_eq!((&**label, kernel.calls, counters.kernels.len()), ("experts_in_alike 64x64", 20, 1));
    let whole = counters.stages[WHOLE];
    assert!(kernel.time > Duration::ZERO && whole.abs_diff(kernel.time) <= Duration::from_nanos(20), "{counters:?}");
}

#[test]
fn submissions_alone_are_timed_where_no_more_is_asked_for_or_marks_do_not_suffice() {
    for (kind, dispatches) in [(Timed::Submissions, 3), (Timed::Kernels, wgpu::QUERY_SET_MAX_QUERIES)] {
        let counters = counted(kind, dispatches);
        assert!(counters.kernels.is_empty() && counters.stages[WHOLE] > Duration::ZERO, "{kind:?}");
    }
    assert!(counted(Timed::Nothing, 3).stages.is_empty());
}
