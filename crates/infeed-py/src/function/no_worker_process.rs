//! Takes the place of worker processes on systems without Unix sockets: none can start.

use std::io::{self, ErrorKind};
use std::time::Duration;

use infeed::function::{DrawKey, ValueSink};
use infeed_core::batch::Column;

use super::worker_failure::{LaunchCommand, WorkerFailure};

/// A process that runs a function. None exists.
#[derive(Debug)]
pub(super) enum NoWorkerProcess {}

impl NoWorkerProcess {
    pub(super) fn start(_: &LaunchCommand) -> io::Result<NoWorkerProcess> {
        let text = "worker processes need Linux or macOS; leave `processes` out";
        Err(io::Error::new(ErrorKind::Unsupported, text))
    }

    pub(super) fn ready(&mut self) -> Result<(), WorkerFailure> {
        match *self {}
    }

    pub(super) fn call(
        &mut self,
        _: &[Column],
        _: DrawKey,
        _: &mut dyn ValueSink,
    ) -> Result<Duration, WorkerFailure> {
        match *self {}
    }

    pub(super) fn is_over(&mut self) -> bool {
        match *self {}
    }
}
