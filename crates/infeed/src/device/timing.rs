//! How long commands take on a device's own clock: what checks and explanations measure with.

use std::sync::Arc;
use std::time::Duration;

use infeed_raw::kernel::Kernel;
use infeed_raw::slab::Slab;

use super::ring::{Route, Upload};
use super::{Device, DeviceError, HostSource};
use crate::batch::ColumnSpec;
use crate::error::Error;

/// Commands that are timed together last about so long.
const ENOUGH: Duration = Duration::from_millis(20);

/// Runs of a command that are timed together at most: a kernel of 20 µs lasts [`ENOUGH`] all the same.
const MOST: u32 = 1000;

/// How often that is done; the least counts, since nothing makes a command faster than it is.
const ROUNDS: usize = 3;

/// What a batch takes on its way, each with nothing beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchTimes {
    /// Bytes over the bus.
    pub bytes: u64,
    /// Copies from pinned memory.
    pub copying: Duration,
    /// Kernels.
    pub expanding: Duration,
}

/// Times the copies and kernels of a batch of so many rows, on memory of their own.
///
/// # Errors
///
/// [`Error::Device`] if there is no memory for them, or the device fails.
///
/// # Cost
///
/// A batch's memory on the host and on the device; a second or less, unless one batch takes longer.
pub fn batch_times<D: Device>(
    device: &D,
    routes: &[Route],
    rows: usize,
) -> Result<BatchTimes, Error> {
    let told = |error: DeviceError| error.on(device.name());
    let queue = device.stream().map_err(told)?;
    let mut times = BatchTimes::default();
    for route in routes {
        let (Some(from), Some(to)) = (bytes(&route.host, rows), bytes(&route.device, rows)) else {
            continue;
        };
        if matches!(route.upload, Upload::Stay) || from == 0 {
            continue;
        }
        let staging = device.memory(from).map_err(told)?;
        let source = pinned(device, from)?;
        let copying = each(|times| copies(device, queue, &source, from, &staging, times));
        times.bytes += from as u64;
        times.copying += copying.map_err(told)?;
        if let Upload::Expand(kernel) = &route.upload {
            let output = device.memory(to).map_err(told)?;
            let launch = |times| launches(device, queue, (kernel, rows), &staging, &output, times);
            times.expanding += each(launch).map_err(told)?;
        }
    }
    Ok(times)
}

/// Bytes of so many rows; None where rows differ, or for more than there can be.
fn bytes(column: &ColumnSpec, rows: usize) -> Option<usize> {
    column.kind.row_bytes()?.checked_mul(rows)
}

/// Bytes on the host that copies read at the full rate of the bus.
fn pinned<D: Device>(device: &D, bytes: usize) -> Result<HostSource, Error> {
    let mut slab = Slab::zeroed(1, bytes).map_err(|error| Error::OutOfMemory {
        bytes: error.requested_bytes as u64,
    })?;
    // Memory that nothing was written to may all be one page.
    slab.as_mut().fill(1);
    device
        .pin(&mut slab)
        .map_err(|error| error.on(device.name()))?;
    Ok(Arc::new(slab))
}

/// Time of one command, of which `take` enqueues and times so many.
fn each(
    mut take: impl FnMut(u32) -> Result<Duration, DeviceError>,
) -> Result<Duration, DeviceError> {
    take(1)?;
    let one = take(1)?;
    let times = (ENOUGH.as_nanos() / one.as_nanos().max(1)).clamp(1, MOST.into()) as u32;
    let mut least = one;
    for _ in 0..ROUNDS {
        least = least.min(take(times)? / times);
    }
    Ok(least)
}

/// Time on the device's clock of what is enqueued; waits for it.
pub(super) fn timed<D: Device>(
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

/// Time of so many copies of the same bytes, one after another.
fn copies<D: Device>(
    device: &D,
    queue: D::Queue,
    source: &HostSource,
    bytes: usize,
    to: &Arc<D::Memory>,
    times: u32,
) -> Result<Duration, DeviceError> {
    let mut under_way = Vec::new();
    timed(device, queue, || {
        for _ in 0..times {
            under_way.push(device.copy(queue, Arc::clone(source), bytes, to, 0)?);
        }
        Ok(())
    })
}

/// Time of so many runs of a kernel over the same rows.
fn launches<D: Device>(
    device: &D,
    queue: D::Queue,
    (kernel, rows): (&Kernel, usize),
    from: &Arc<D::Memory>,
    to: &Arc<D::Memory>,
    times: u32,
) -> Result<Duration, DeviceError> {
    timed(device, queue, || {
        (0..times).try_for_each(|_| device.launch(queue, kernel, rows, from, None, to))
    })
}

#[cfg(test)]
mod tests {
    use infeed_raw::simd::{Dtype, Layout};

    use super::*;
    use crate::batch::ColumnKind;
    use crate::device::Sim;
    use crate::sample::DType;

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
    fn a_batch_takes_what_the_simulated_device_was_told() {
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
            // Above lies what a busy host takes from one command to the next.
            assert!(us < expected_us * 1.5, "{us}");
        };
        near(times.copying, 751.0);
        // 750 kB read and 3 MB written at 4 GB/s.
        near(times.expanding, 938.5);
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }

    #[test]
    fn a_batch_for_which_there_is_no_memory_is_an_error_that_names_the_device() {
        let sim = Sim::parse("sim:memory=1e6").expect("a device");
        let routes = [Route::copy(column(DType::UInt8, &[1 << 20]))];

        let error = batch_times(&sim, &routes, 1).expect_err("too large");

        assert!(matches!(error, Error::Device { .. }), "{error}");
        assert!(error.chain().contains("memory"), "{}", error.chain());
    }
}
