//! The fake CUDA driver (`fake-cuda`), linked into this crate's tests, which use private functions.
//! Each test has its own driver and log of calls.

use std::ffi::c_uint;
use std::sync::{Arc, LazyLock};

use fake_cuda::testing::{self, Call};

use super::driver::Driver;
use super::{Context, Queue};

/// The functions of the fake driver.
pub(super) static FAKE: LazyLock<Driver> = LazyLock::new(Driver::fake_table);

unsafe extern "C" {
    fn cuStreamBeginCapture_v2(stream: usize, mode: c_uint) -> c_uint;
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> c_uint;
}

/// Returns the calls since the last time as text: commands, and calls that make, wait for or free
/// an object, with the arguments that tests check.
pub(super) fn calls() -> Vec<String> {
    testing::calls().iter().filter_map(text).collect()
}

fn text(
    Call {
        function,
        arguments: a,
    }: &Call,
) -> Option<String> {
    let detail = match *function {
        // Queries, and calls around every other call.
        "cuInit"
        | "cuDeviceGetCount"
        | "cuDeviceGet"
        | "cuDeviceGetName"
        | "cuDeviceTotalMem_v2"
        | "cuDeviceGetAttribute"
        | "cuDeviceGetPCIBusId"
        | "cuDeviceCanAccessPeer"
        | "cuCtxPushCurrent_v2"
        | "cuCtxPopCurrent_v2"
        | "cuThreadExchangeStreamCaptureMode"
        | "cuMemGetInfo_v2"
        | "cuPointerGetAttribute"
        | "cuStreamIsCapturing"
        | "cuEventQuery"
        | "cuEventElapsedTime"
        | "nvjpegGetProperty"
        | "nvjpegGetHardwareDecoderInfo"
        | "nvjpegJpegStreamGetFrameDimensions"
        | "nvjpegJpegStreamGetComponentsNum"
        | "nvjpegDecodeBatchedSupported" => return None,
        "cuDevicePrimaryCtxRelease_v2" => a[0].to_string(),
        "cuMemAlloc_v2" | "cuEventCreate" => a[1].to_string(),
        "cuMemHostRegister_v2" => format!("{} {}", a[1], a[2]),
        "cuMemcpyHtoDAsync_v2" | "cuMemcpyDtoHAsync_v2" | "cuMemcpyDtoDAsync_v2" => {
            format!("{} on {:#x}", a[2], a[3])
        }
        "cuStreamSynchronize" | "cuStreamWaitEvent" => format!("{:#x}", a[0]),
        "cuEventRecord" => format!("{:#x}", a[1]),
        "cuLaunchKernel" => {
            let entry = testing::kernel(a[0])?;
            format!("{entry} {:?} {:?} on {:#x}", &a[1..4], &a[4..7], a[8])
        }
        "nvjpegCreateEx" => format!("{} {}", a[0], a[3]),
        "nvjpegDecodeBatchedPreAllocate" => {
            format!("{} of {}x{}, chroma {}", a[2], a[3], a[4], a[5])
        }
        "nvjpegDecodeBatchedInitialize" => format!("{} by {}", a[2], a[3]),
        "nvjpegDecodeBatched" => format!("on {:#x}", a[5]),
        _ => return Some((*function).to_owned()),
    };
    Some(format!("{function} {detail}"))
}

/// Starts a driver for this thread, and opens one of its devices.
pub(crate) fn context() -> Arc<Context> {
    testing::start();
    Context::open_with(&FAKE, 1).expect("the fake driver's device opens")
}

/// Makes a consumer's stream on the context's device. The stream waits for the legacy default
/// stream.
pub(super) fn consumers_stream(context: &Context) -> Queue {
    let bound = context.bind().expect("the context is alive");
    let mut stream = 0;
    // SAFETY: writes one handle; the context is current.
    let code = unsafe { (FAKE.stream_create)(&raw mut stream, 0) };
    assert_eq!(code, 0);
    drop(bound);
    // SAFETY: the stream was just made and is never destroyed.
    unsafe { Queue::consumers(stream) }
}

/// Starts to capture a consumer's stream into a graph.
pub(super) fn begin_capture(context: &Context, queue: Queue) {
    let stream = queue.handle_in(0).expect("a consumer's stream");
    let _bound = context.bind().expect("the context is alive");
    // SAFETY: a live stream, in the mode that affects all threads.
    assert_eq!(unsafe { cuStreamBeginCapture_v2(stream, 0) }, 0);
}

/// Ends the capture.
pub(super) fn end_capture(context: &Context, queue: Queue) {
    let stream = queue.handle_in(0).expect("a consumer's stream");
    let _bound = context.bind().expect("the context is alive");
    let mut graph = 0;
    // SAFETY: a live stream; writes one handle.
    assert_eq!(unsafe { cuStreamEndCapture(stream, &raw mut graph) }, 0);
}

/// Returns the handle of a queue, as in the log of calls.
pub(super) fn handle(queue: Queue, context: &Context) -> String {
    format!(
        "{:#x}",
        queue.handle_in(context.id).expect("of this context")
    )
}
