//! Devices by their names, as users give them.

use super::cuda::Cuda;
use super::ring::DeviceArray;
use super::sim::Sim;
use crate::error::Error;

/// A device of one of the kinds there are.
#[derive(Clone, Debug)]
pub enum Named {
    /// An NVIDIA card.
    Cuda(Cuda),
    /// A simulated one.
    Sim(Sim),
}

impl Named {
    /// Opens the device of a name: `cuda`, which is `cuda:0`, or another number; or `sim`, with or
    /// without rates as in [`SimConfig`](super::sim::SimConfig).
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for another name; [`Error::Device`] if it cannot be opened.
    pub fn open(name: &str) -> Result<Named, Error> {
        let (kind, rest) = match name.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (name, None),
        };
        match kind {
            "sim" => Sim::parse(name).map(Named::Sim),
            "cuda" => {
                let ordinal = rest.map_or(Ok(0), str::parse);
                let ordinal = ordinal.map_err(|_| {
                    let problem =
                        format!("{name:?} names no device; cards are \"cuda:0\", \"cuda:1\", ...");
                    Error::config("device", problem)
                })?;
                Cuda::open(ordinal).map(Named::Cuda)
            }
            _ => {
                let problem = format!(
                    "{name:?} names no device; there are \"cuda\", \"cuda:1\" and so on, and \
                     \"sim\", which simulates one"
                );
                Err(Error::config("device", problem))
            }
        }
    }
}

impl DeviceArray<Sim> {
    /// Its bytes, once they are ready, as a consumer on the host reads them.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed since.
    pub fn to_host(&self) -> Result<Vec<u8>, Error> {
        self.synchronize()?;
        Ok(self.memory().first(self.bytes()))
    }
}
