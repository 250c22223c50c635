//! Measures commands on a device's own clock, for checks and explanations.

use std::sync::Arc;
use std::time::Duration;

use infeed_raw::kernel::Kernel;
use infeed_raw::slab::Slab;

use super::ring::{Route, Upload};
use super::{Device, DeviceError, HostSource};
use infeed_core::batch::ColumnSpec;
use infeed_core::error::Error;

/// Approximate duration of the commands that are timed together.
const ENOUGH: Duration = Duration::from_millis(20);

/// Maximum number of runs of a command timed together: a kernel of 20 us still lasts [`ENOUGH`].
const MAX_REPETITIONS: u32 = 1000;

/// Number of repetitions. The minimum is used, because delays only add time.
const ROUNDS: usize = 3;

/// Durations of the parts of sending a batch, each measured alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchTimes {
    /// Bytes over the bus.
    pub bytes: u64,
    /// Copies from pinned memory.
    pub copying: Duration,
    /// Kernels.
    pub expanding: Duration,
}

/// Times the copies and kernels of a batch of `rows` rows, on separate memory.
///
/// [`Error::Device`] if the device fails or does not have enough memory.
///
/// # Cost
///
/// Allocates a batch's memory on the host and on the device; takes up to a second unless one batch
/// takes longer.
pub fn batch_times<D: Device>(
    device: &D,
    routes: &[Route],
    rows: usize,
) -> Result<BatchTimes, Error> {
    let reported = |error: DeviceError| error.on(device.name());
    let queue = device.stream().map_err(reported)?;
    let mut times = BatchTimes::default();
    for route in routes {
        let (Some(from), Some(to)) = (bytes(&route.host, rows), bytes(&route.device, rows)) else {
            continue;
        };
        if matches!(route.upload, Upload::Stay) || from == 0 {
            continue;
        }
        let staging = device.memory(from).map_err(reported)?;
        let source = pinned_source(device, from)?;
        let copying = each(|times| copies(device, queue, &source, from, &staging, times));
        times.bytes += from as u64;
        times.copying += copying.map_err(reported)?;
        if let Upload::Expand(kernel) = &route.upload {
            let output = device.memory(to).map_err(reported)?;
            let launch = |times| launches(device, queue, (kernel, rows), &staging, &output, times);
            times.expanding += each(launch).map_err(reported)?;
        }
    }
    Ok(times)
}

/// Returns the bytes of `rows` rows. None if rows differ in size, or on overflow.
fn bytes(column: &ColumnSpec, rows: usize) -> Option<usize> {
    column.kind.row_bytes()?.checked_mul(rows)
}

/// Allocates bytes on the host that copies read at the full rate of the bus.
fn pinned_source<D: Device>(device: &D, bytes: usize) -> Result<HostSource, Error> {
    let mut slab = Slab::zeroed(1, bytes).map_err(|error| Error::OutOfMemory {
        bytes: error.requested_bytes as u64,
    })?;
    // Memory that was never written may be mapped to a single page.
    slab.as_mut().fill(1);
    device
        .pin(&mut slab)
        .map_err(|error| error.on(device.name()))?;
    Ok(Arc::new(slab))
}

/// Returns the time of one command. `take` enqueues a number of commands and returns their total
/// time.
fn each(
    mut take: impl FnMut(u32) -> Result<Duration, DeviceError>,
) -> Result<Duration, DeviceError> {
    take(1)?;
    let one = take(1)?;
    let times = (ENOUGH.as_nanos() / one.as_nanos().max(1)).clamp(1, MAX_REPETITIONS.into()) as u32;
    let mut least = one;
    for _ in 0..ROUNDS {
        least = least.min(take(times)? / times);
    }
    Ok(least)
}

/// Waits for the commands that `enqueue` adds, and returns their time on the device's clock.
pub(super) fn time_commands<D: Device>(
    device: &D,
    queue: D::Queue,
    enqueue: impl FnOnce() -> Result<(), DeviceError>,
) -> Result<Duration, DeviceError> {
    let (start, end) = (device.event(true)?, device.event(true)?);
    device.record(&start, queue)?;
    enqueue()?;
    device.record(&end, queue)?;
    device.synchronize(&end)?;
    device.elapsed(&start, &end)
}

/// Returns the time of `times` copies of the same bytes.
fn copies<D: Device>(
    device: &D,
    queue: D::Queue,
    source: &HostSource,
    bytes: usize,
    to: &Arc<D::Memory>,
    times: u32,
) -> Result<Duration, DeviceError> {
    let mut in_flight = Vec::new();
    time_commands(device, queue, || {
        for _ in 0..times {
            in_flight.push(device.copy(queue, Arc::clone(source), bytes, to, 0)?);
        }
        Ok(())
    })
}

/// Returns the time of `times` runs of a kernel over the same rows.
fn launches<D: Device>(
    device: &D,
    queue: D::Queue,
    (kernel, rows): (&Kernel, usize),
    from: &Arc<D::Memory>,
    to: &Arc<D::Memory>,
    times: u32,
) -> Result<Duration, DeviceError> {
    time_commands(device, queue, || {
        (0..times).try_for_each(|_| device.launch(queue, kernel, rows, from, None, to))
    })
}

#[cfg(test)]
mod tests {
    use infeed_raw::simd::{Dtype, Layout};

    use super::*;
    use crate::Sim;
    use infeed_core::batch::ColumnKind;
    use infeed_core::sample::DType;

    fn column(dtype: DType, shape: &[usize]) -> ColumnSpec {
        ColumnSpec {
            name: "image".to_owned(),
            kind: ColumnKind::Fixed {
                dtype,
                shape: shape.to_vec(),
            },
        }
    }

    #[test]
    fn times_match_the_rates_of_the_simulated_device() {
        let sim = "sim:bandwidth=1e9,latency=1us,kernel=4e9";
        let sim = Sim::parse(sim).expect("a device");
        let kernel = Kernel::Expand {
            height: 50,
            width: 50,
            channels: 3,
            dtype: Dtype::F32,
            layout: Layout::Chw,
            scale: [1.0; 4],
            bias: [0.0; 4],
        };
        let routes = [
            Route::expand(
                column(DType::UInt8, &[50, 50, 3]),
                kernel,
                column(DType::Float32, &[3, 50, 50]),
            ),
            Route::stay(column(DType::UInt8, &[9])),
        ];

        let times = batch_times(&sim, &routes, 100).expect("it is measured");

        assert_eq!(times.bytes, 750_000);
        let near = |time: Duration, expected_us: f64| {
            let us = time.as_secs_f64() * 1e6;
            assert!(us >= expected_us * 0.999, "{us}");
            // The upper bound leaves room for a busy host's delays between commands.
            assert!(us < expected_us * 1.5, "{us}");
        };
        near(times.copying, 751.0);
        // 750 kB read and 3 MB written at 4 GB/s.
        near(times.expanding, 938.5);
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }

    #[test]
    fn a_batch_too_large_for_the_device_is_an_error_that_names_the_device() {
        let sim = Sim::parse("sim:memory=1e6").expect("a device");
        let routes = [Route::copy(column(DType::UInt8, &[1 << 20]))];

        let error = batch_times(&sim, &routes, 1).expect_err("too large");

        assert!(matches!(error, Error::Device { .. }), "{error}");
        assert!(error.chain().contains("memory"), "{}", error.chain());
    }
}
