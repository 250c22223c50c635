//! The memory that kernels read and write.

/// Memory of a GPU (global space). Kernels of several streams may use it at once.
///
/// The interpreter has checked the alignment of addresses, but not their range.
pub trait KernelMemory {
    /// Copies the bytes from an address on.
    ///
    /// # Errors
    ///
    /// [`AddressFault`] if some of them are not readable memory.
    fn load(&self, address: u64, to: &mut [u8]) -> Result<(), AddressFault>;

    /// Copies bytes to memory from an address on.
    ///
    /// # Errors
    ///
    /// [`AddressFault`] if some of the memory is not writable; nothing is written then.
    fn store(&self, address: u64, from: &[u8]) -> Result<(), AddressFault>;
}

/// The address is not valid memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressFault;
