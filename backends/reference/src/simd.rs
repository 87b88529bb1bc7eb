//! Owns: the three ways a kernel is compiled, and the choice between them at start.
//! Refuses: kernels; each lives beside its operation.
//! Invariants: a tier fixes every rounding, so one tier gives the same bits on any number of threads, and the widths of
//! the vector units behind `Fused` never show.

/// How products are added, and whether long sums run in lanes.
pub trait Arith: Copy + Send + Sync + 'static {
    /// Sums in [`LANES`](crate::dot::LANES) independent lanes instead of one after the other.
    const LANES: bool;
    /// `a * b + c`.
    fn fma(a: f32, b: f32, c: f32) -> f32;
}

/// The plain twin: one sum, one term after the other.
#[derive(Clone, Copy)]
pub struct Plain;

/// Lanes, products rounded before they are added: processors without fused multiply-add.
#[derive(Clone, Copy)]
pub struct Separate;

/// Lanes, products added without rounding them first.
#[derive(Clone, Copy)]
pub struct Fused;

impl Arith for Plain {
    const LANES: bool = false;

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

impl Arith for Separate {
    const LANES: bool = true;

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

impl Arith for Fused {
    const LANES: bool = true;

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// An inner loop with everything it reads and writes. `run` is `#[inline(always)]` in every kernel, so that it is
/// compiled for the vector units of the tier that runs it. Loops, not closures: a closure that is not inlined is compiled
/// without those units, and calls a library for every fused product.
pub trait Kernel {
    /// Runs the loop.
    fn run<A: Arith>(self);
}

/// How kernels run on this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The plain twin.
    Plain,
    /// Lanes on the vector units that every processor of the target has.
    Baseline,
    /// Lanes on AVX2 with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Lanes on AVX-512; the same bits as AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Tier {
    /// The widest tier of this processor, or the plain twin.
    pub fn detect(simd: bool) -> Tier {
        if !simd {
            return Tier::Plain;
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return if is_x86_feature_detected!("avx512f") { Tier::Avx512 } else { Tier::Avx2 };
        }
        Tier::Baseline
    }

    /// Name for the device facts.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Plain => "plain",
            Tier::Baseline => "baseline vectors",
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => "AVX-512",
        }
    }

    /// The next narrower tier with the same arithmetic.
    #[cfg(test)]
    pub fn narrower(self) -> Option<Tier> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => Some(Tier::Avx2),
            _ => None,
        }
    }

    /// Whether sums run in lanes.
    pub fn lanes(self) -> bool {
        self != Tier::Plain
    }

    /// Runs a kernel.
    #[inline]
    pub fn run(self, kernel: impl Kernel) {
        match self {
            Tier::Plain => kernel.run::<Plain>(),
            #[cfg(target_arch = "aarch64")]
            Tier::Baseline => kernel.run::<Fused>(),
            #[cfg(not(target_arch = "aarch64"))]
            Tier::Baseline => kernel.run::<Separate>(),
            // SAFETY: `detect` found AVX2 and FMA.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => unsafe { avx2(kernel) },
            // SAFETY: `detect` found AVX2, FMA and AVX-512F.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => unsafe { avx512(kernel) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(kernel: impl Kernel) {
    kernel.run::<Fused>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f")]
fn avx512(kernel: impl Kernel) {
    kernel.run::<Fused>()
}
