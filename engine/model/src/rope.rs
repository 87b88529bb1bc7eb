//! Owns: rotary angles (architecture.md section 5). Made on the host in F64, so that no device's sine matters
//! (engine.md 3.6).
//! Invariants: a row's angles depend on its position alone.

use ss_checkpoint::Geometry;

/// Position of a token on the three axes of M-RoPE: time, height, width. Text has the same number on all three.
pub type Position = [u32; 3];

/// Frequencies and the axis that each one follows.
#[derive(Clone, Debug)]
pub struct Rope {
    bands: Vec<(f64, usize)>,
}

impl Rope {
    /// The table of a geometry: `theta^(-2i/R)`, interleaved sections.
    pub fn new(g: &Geometry) -> Self {
        let half = g.rotary / 2;
        let axis = |i: u32| match i % 3 {
            1 if i < 3 * g.mrope_section[1] => 1,
            2 if i < 3 * g.mrope_section[2] => 2,
            _ => 0,
        };
        let frequency = |i: u32| g.rope_theta.powf(-2.0 * f64::from(i) / f64::from(g.rotary));
        Rope { bands: (0..half).map(|i| (frequency(i), axis(i))).collect() }
    }

    /// Appends cosine and sine of every band at `position`: `[rotary / 2, 2]`.
    pub fn push(&self, position: Position, out: &mut Vec<f32>) {
        for &(frequency, axis) in &self.bands {
            let (sin, cos) = (f64::from(position[axis]) * frequency).sin_cos();
            out.extend([cos as f32, sin as f32]);
        }
    }
}
