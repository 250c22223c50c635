//! Memory with exactly the bytes that a kernel may access.

use std::cell::RefCell;
use std::collections::BTreeMap;

use fake_cuda::ptx::{AddressFault, KernelMemory};

/// Readable bytes by address, and an output that is written once.
pub(crate) struct TestGpu {
    /// Keyed by the address of the first byte.
    inputs: BTreeMap<u64, Vec<u8>>,
    output: u64,
    written: RefCell<Vec<Option<u8>>>,
}

impl TestGpu {
    pub(crate) fn new(output: u64, len: usize) -> TestGpu {
        TestGpu {
            inputs: BTreeMap::new(),
            output,
            written: RefCell::new(vec![None; len]),
        }
    }

    /// Adds readable bytes. Bytes that directly follow the last ones added extend them.
    pub(crate) fn add(&mut self, address: u64, bytes: &[u8]) {
        if let Some((start, last)) = self.inputs.range_mut(..=address).next_back() {
            let end = start + last.len() as u64;
            assert!(end <= address, "inputs do not overlap");
            if end == address {
                last.extend_from_slice(bytes);
                return;
            }
        }
        self.inputs.insert(address, bytes.to_vec());
    }

    /// Returns the output, if every byte of it was written.
    pub(crate) fn output(self) -> Option<Vec<u8>> {
        self.written.into_inner().into_iter().collect()
    }
}

impl TestGpu {
    /// Returns a readable byte.
    fn byte(&self, address: u64) -> Option<u8> {
        let (start, bytes) = self.inputs.range(..=address).next_back()?;
        bytes.get((address - start) as usize).copied()
    }
}

impl KernelMemory for TestGpu {
    fn load(&self, address: u64, to: &mut [u8]) -> Result<(), AddressFault> {
        // Memory ends with a whole word, so a word with any readable byte can be read; its other
        // bytes are unspecified.
        let is_word = to.len() == 4;
        let found: Vec<_> = (address..).take(to.len()).map(|at| self.byte(at)).collect();
        let are_there = found.iter().filter(|byte| byte.is_some()).count();
        if are_there < to.len() && !(is_word && are_there > 0) {
            return Err(AddressFault);
        }
        for ((to, byte), at) in to.iter_mut().zip(found).zip(address..) {
            *to = byte.unwrap_or(0x5a ^ (at as u8).wrapping_mul(29));
        }
        Ok(())
    }

    /// Threads of a GPU run in any order, so a second write to the same byte is an error, like a
    /// write outside of the output.
    fn store(&self, address: u64, from: &[u8]) -> Result<(), AddressFault> {
        let begin = address.checked_sub(self.output).ok_or(AddressFault)? as usize;
        let mut written = self.written.borrow_mut();
        let end = begin.checked_add(from.len()).ok_or(AddressFault)?;
        let cells = written.get_mut(begin..end).ok_or(AddressFault)?;
        if cells.iter().any(Option::is_some) {
            return Err(AddressFault);
        }
        for (cell, &byte) in cells.iter_mut().zip(from) {
            *cell = Some(byte);
        }
        Ok(())
    }
}
