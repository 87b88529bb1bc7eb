//! Owns: the pipeline cache of a device as bytes that can be kept: sealed, so that damage is seen.
//! Refuses: bytes that were changed since they were sealed; a device that gets none starts with an empty cache.
//! Invariants: what reaches the driver is what the driver gave.

use crate::backend::WgpuBackend;

/// Begins every sealed cache; the last character is the version of this layout.
const MAGIC: [u8; 8] = *b"SSPIPES1";
/// Bytes of the checksum behind it.
const SUM_BYTES: usize = 4;

/// The cache of a device, filled with sealed bytes where they are whole; none where the device has none.
pub(crate) fn open(device: &wgpu::Device, sealed: Option<&[u8]>) -> Option<wgpu::PipelineCache> {
    if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
        return None;
    }
    let data = sealed.and_then(unseal);
    let descriptor = wgpu::PipelineCacheDescriptor { label: Some("slotstream"), data, fallback: true };
    // SAFETY: the data, if any, came from `get_data` of a cache: `sealed` is the only writer of the seal, whose checksum
    // was just verified. wgpu itself compares its header with this adapter and driver, and falls back to an empty cache.
    Some(unsafe { device.create_pipeline_cache(&descriptor) })
}

impl WgpuBackend {
    /// What the driver keeps of the pipelines built so far, sealed, for [`Options::pipeline_cache`] of a later run on the
    /// same device; none where the adapter keeps nothing.
    ///
    /// [`Options::pipeline_cache`]: crate::Options::pipeline_cache
    pub fn pipeline_cache(&self) -> Option<Vec<u8>> {
        self.device().cache.as_ref()?.get_data().map(|data| seal(&data))
    }
}

fn seal(data: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &crc32fast::hash(data).to_le_bytes(), data].concat()
}

/// The bytes that were sealed, if nothing changed since.
fn unseal(sealed: &[u8]) -> Option<&[u8]> {
    let (sum, data) = sealed.strip_prefix(&MAGIC)?.split_first_chunk::<SUM_BYTES>()?;
    (crc32fast::hash(data) == u32::from_le_bytes(*sum)).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_comes_back_and_every_damage_is_seen() {
        let sealed = seal(b"pipelines");
        assert_eq!(unseal(&sealed), Some(&b"pipelines"[..]));
        for length in 0..sealed.len() {
            assert_eq!(unseal(&sealed[..length]), None, "cut off after {length} bytes");
        }
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 4;
            assert_eq!(unseal(&damaged), None, "byte {at} changed");
        }
        assert_eq!(unseal(&[&sealed[..], b"x"].concat()), None);
    }
}
