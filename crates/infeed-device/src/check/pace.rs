//! Length of measurements: after a warm-up, over a minimum time, and over more memory than the
//! device's cache holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bytes::memory_with_bytes;
use super::checked_device::CheckedDevice;
use super::plan::Effort;
use crate::timing::time_commands;
use crate::{Device, DeviceError};

/// Maximum number of runs measured together.
const MAX_REPETITIONS: u32 = 4096;

/// Maximum number of buffers of a command.
const BUFFERS: usize = 64;

/// Lower bounds of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Time under load before the measurement. An idle GPU has raised its clocks by then.
    pub(super) warm_up: Duration,
    /// Time over which runs are averaged.
    pub(super) least: Duration,
    /// Bytes that the buffers of one command take together, several times the largest L2 in use
    /// (60 MB on an H200, 126 MB on a B200).
    pub(super) span_bytes: usize,
}

impl Pace {
    pub(super) fn of(effort: Effort) -> Pace {
        match effort {
            Effort::Small => Pace {
                warm_up: Duration::ZERO,
                least: Duration::ZERO,
                span_bytes: 1 << 12,
            },
            Effort::Full => Pace {
                warm_up: Duration::from_millis(200),
                least: Duration::from_millis(20),
                span_bytes: 512 << 20,
            },
        }
    }

    /// Returns the number of buffers to rotate for a command that uses `bytes` bytes per run; at
    /// least two.
    pub(super) fn buffers(self, bytes: usize) -> usize {
        self.span_bytes.div_ceil(bytes.max(1)).clamp(2, BUFFERS)
    }

    /// Returns the time of one run. `take` makes a number of runs and returns their total time.
    pub(super) fn each<E>(
        self,
        mut take: impl FnMut(u32) -> Result<Duration, E>,
    ) -> Result<Duration, E> {
        let mut times = 1;
        let mut one = take(times)?;
        let start = Instant::now();
        loop {
            let warm = start.elapsed() >= self.warm_up;
            // Use a quarter more than needed, because runs become faster as clocks rise.
            let needed = self.least.as_nanos() * 5 / 4 / one.as_nanos().max(1) + 1;
            times = needed.min(MAX_REPETITIONS.into()).max(times.into()) as u32;
            let taken = take(times)?;
            one = taken / times;
            if warm && (taken >= self.least || times == MAX_REPETITIONS) {
                return Ok(one);
            }
        }
    }

    /// Returns the time of one run on the device's clock. `enqueue` receives the number of the run.
    pub(super) fn time_runs<D: CheckedDevice>(
        self,
        device: &D,
        queue: D::Queue,
        mut enqueue: impl FnMut(usize) -> Result<(), DeviceError>,
    ) -> Result<Duration, DeviceError> {
        let mut run = 0;
        self.each(|times| {
            time_commands(device, queue, || {
                for _ in 0..times {
                    enqueue(run)?;
                    run += 1;
                }
                Ok(())
            })
        })
    }
}

/// Shared memory of a device.
type SharedMemory<D> = Arc<<D as Device>::Memory>;

/// Inputs and outputs that a command uses in rotation.
pub(super) struct Rotation<D: CheckedDevice> {
    pairs: Vec<(SharedMemory<D>, SharedMemory<D>)>,
}

impl<D: CheckedDevice> Rotation<D> {
    /// Creates inputs with these bytes, and outputs of this length.
    pub(super) fn new(
        device: &D,
        queue: D::Queue,
        pace: Pace,
        input: &[u8],
        output_bytes: usize,
    ) -> Result<Rotation<D>, DeviceError> {
        let count = pace.buffers(input.len() + output_bytes);
        let pair = |_| {
            Ok((
                memory_with_bytes(device, queue, input)?,
                device.memory(output_bytes)?,
            ))
        };
        Ok(Rotation {
            pairs: (0..count).map(pair).collect::<Result<_, DeviceError>>()?,
        })
    }

    /// Returns the input and the output of a run.
    pub(super) fn at(&self, run: usize) -> (&Arc<D::Memory>, &Arc<D::Memory>) {
        let (input, output) = &self.pairs[run % self.pairs.len()];
        (input, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates runs of equal duration. Returns the measured time and the numbers of runs measured
    /// together.
    fn runs(pace: Pace, one: Duration) -> (Duration, Vec<u32>) {
        let mut taken = Vec::new();
        let each = pace.each(|times| {
            taken.push(times);
            Ok::<_, DeviceError>(one * times)
        });
        (each.expect("nothing fails"), taken)
    }

    #[test]
    fn a_measurement_takes_at_least_the_time_of_its_pace() {
        let pace = Pace {
            warm_up: Duration::from_millis(2),
            ..Pace::of(Effort::Full)
        };
        for us in [0, 1, 7, 300, 19_999, 20_000, 90_000] {
            let one = Duration::from_micros(us);

            let (each, taken) = runs(pace, one);

            let last = *taken.last().expect("it ran");
            assert_eq!(each, one);
            assert!(
                one * last >= pace.least || last == MAX_REPETITIONS,
                "{us}: {taken:?}"
            );
        }
    }

    #[test]
    fn a_small_measurement_takes_two_runs() {
        let (_, taken) = runs(Pace::of(Effort::Small), Duration::from_micros(3));

        assert_eq!(taken, [1, 1]);
    }

    #[test]
    fn buffers_of_a_full_measurement_take_more_than_a_cache_holds() {
        let pace = Pace::of(Effort::Full);
        for bytes in [1 << 20, 38 << 20, 115 << 20, 700 << 20] {
            let held = pace.buffers(bytes) * bytes;

            let most = bytes * BUFFERS;
            assert!(held >= pace.span_bytes.min(most), "{bytes}");
            assert!(pace.buffers(bytes) >= 2);
        }
    }
}
