//! Bytes that checks send to a device.

use std::sync::Arc;

use infeed_core::random;

use crate::{Device, DeviceError, HostSource};

/// Allocates memory with these bytes, and waits until the copy is done.
pub(super) fn memory_with_bytes<D: Device>(
    device: &D,
    queue: D::Queue,
    bytes: &[u8],
) -> Result<Arc<D::Memory>, DeviceError> {
    let memory = device.memory(bytes.len())?;
    let source: HostSource = Arc::new(bytes.to_vec());
    drop(device.copy(queue, source, bytes.len(), &memory, 0)?);
    Ok(memory)
}

/// Returns pseudo-random bytes that depend on the key.
pub(super) fn noise(key: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|n| random::hash(&[key, n]));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}
