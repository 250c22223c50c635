//! The type of running feeders in a build without the cargo feature `feed`.

use std::convert::Infallible;

use infeed::loader::remote::{RemoteBatches, RemoteRows, RemoteWorkers, RunDescription};
use infeed_core::error::Error;

/// Running feeders. None exist: the cargo feature `feed` is off.
#[derive(Clone, Debug)]
pub struct AbsentFeeders(Infallible);

impl RemoteRows for AbsentFeeders {
    fn workers(&self) -> usize {
        match self.0 {}
    }

    fn in_flight_batches(&self) -> usize {
        match self.0 {}
    }

    fn start(
        &self,
        _run: &RunDescription,
        _batches: RemoteBatches,
    ) -> Result<Box<dyn RemoteWorkers>, Error> {
        match self.0 {}
    }
}
