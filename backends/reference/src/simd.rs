//! Owns: the two ways a kernel is compiled, and the choice between them at start.
//! Refuses: kernels; each lives beside its operation.
//! Invariants: a tier fixes every rounding, so it gives the same bits on any number of threads; how wide the vector units
//! behind [`Fused`] are never shows.

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
    /// Lanes, on vector units that every processor of the target has.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// Lanes, on vector units that were found when the backend was opened.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Tier {
    /// The widest tier of this processor, or the plain twin.
    pub fn detect(simd: bool) -> Tier {
        #[cfg(target_arch = "aarch64")]
        if simd {
            return Tier::Neon;
        }
        #[cfg(target_arch = "x86_64")]
        if simd && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Tier::Avx2;
        }
        Tier::Plain
    }

    /// Name for the device facts.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Plain => "plain",
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => "NEON",
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => "AVX2",
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
            Tier::Neon => kernel.run::<Fused>(),
            // SAFETY: only `detect` makes this tier, where the processor has AVX2 and FMA.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => unsafe { avx2(kernel) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(kernel: impl Kernel) {
    kernel.run::<Fused>()
}
