//! The 4-bit GEMV at released shapes, in bytes of weights a second, beside a plain read of the same bytes in the same run.

use criterion::{Criterion, Throughput};
use ss_backend::op::Head;
use ss_backend::{Arithmetic, Backend, Form, Format, Linear, Matrix, Recorder, Rows, Scalar};
use ss_benches::Kernels;
use ss_reference::Reference;

/// Released hidden size.
const HIDDEN: u32 = 2560;
/// Rows of the weight: a slice of the output head, 47 MB of codes, more than a processor's caches hold.
const OUTPUTS: u32 = 36_864;

fn filled(backend: &Reference, bytes: u64) -> ss_backend::Buffer {
    let buffer = backend.alloc("bench", bytes).expect("room");
    // BF16 numbers around 0.01, and codes of every value.
    let words: Vec<u32> =
        (0..bytes as u32 / 4).map(|i| 0x3c24_3c24 ^ (i.wrapping_mul(0x9e37_79b9) & 0x000f_000f)).collect();
    backend.upload(&buffer, 0, bytemuck::cast_slice(&words)).expect("an upload");
    buffer
}

fn gemv(c: &mut Criterion) {
    let matrix =
        Matrix { rows: OUTPUTS, cols: HIDDEN, format: Format::Affine { bits: 4, group: 64, scale: Scalar::Bf16 } };
    let mut group = c.benchmark_group("gemv");
    group.throughput(Throughput::Bytes(matrix.bytes())).sample_size(20);
    for kernels in Kernels::ALL {
        let backend = Reference::new(kernels.options()).expect("threads");
        let weight = Linear {
            matrix,
            codes: filled(&backend, matrix.code_bytes()),
            scales: Some(filled(&backend, matrix.scale_bytes())),
            biases: Some(filled(&backend, matrix.scale_bytes())),
        };
        let (x, logits) = (filled(&backend, 4 * u64::from(HIDDEN)), filled(&backend, 4 * u64::from(OUTPUTS)));
        group.bench_function(format!("{kernels:?}"), |b| {
            b.iter(|| {
                let mut rec = Recorder::new(Arithmetic::Exact);
                let rows = Rows { count: 1, form: Form::Generated };
                rec.head(Head { rows, x: x.clone(), weight: weight.clone(), logits: logits.clone() });
                backend.submit(rec.all()).expect("a submission")
            });
        });
    }
    let bytes = vec![1u64; matrix.bytes() as usize / 8];
    group.bench_function("read of the same bytes, one thread", |b| {
        b.iter(|| bytes.iter().fold(0u64, |sum, v| sum.wrapping_add(*v)))
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    gemv(&mut criterion);
    criterion.final_summary();
}
