use std::sync::Arc;
use std::time::Duration;

use fake_cuda::testing::{self, fail_nothing, note};

use super::driver::Driver;
use super::testing::{FAKE, begin_capture, calls, consumers_stream, end_capture, handle};
use super::*;
use crate::host::HostSource;
use crate::kernel::{ENTRIES, ENTRIES_SM80, Kernel, RowView, Table};
use crate::simd::{Dtype, Layout};
use crate::slab::Slab;

/// Opens a device of a new driver and clears the log of calls.
fn open() -> Arc<Context> {
    let context = super::testing::context();
    calls();
    context
}

/// Makes calls of this function fail, and no other calls.
fn fail(function: &str, code: u32) {
    fail_nothing();
    testing::fail(function, code);
}

fn memory(context: &Arc<Context>, len: usize) -> Arc<GpuMemory> {
    Arc::new(context.memory(len).unwrap())
}

/// Contents of a memory.
fn bytes(context: &Arc<Context>, queue: Queue, memory: &GpuMemory) -> Vec<u8> {
    let slab = Slab::zeroed(1, memory.len()).unwrap();
    let slab = context.read(queue, memory, slab).unwrap();
    slab.as_ref().to_vec()
}

/// Bytes that log their drop.
struct LoggedBytes(Vec<u8>);

impl AsRef<[u8]> for LoggedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for LoggedBytes {
    fn drop(&mut self) {
        note("source freed");
    }
}

/// Two rows of one pixel each, as float32.
fn expand() -> Kernel {
    Kernel::Expand {
        height: 1,
        width: 1,
        channels: 3,
        dtype: Dtype::F32,
        layout: Layout::Chw,
        scale: [1.0; 4],
        bias: [0.0; 4],
    }
}

#[test]
fn without_a_driver_probing_is_an_error() {
    let Err(error) = probe() else {
        // This machine has a GPU with a name.
        assert!(!probe().unwrap()[0].name.is_empty());
        return;
    };

    assert!(!error.to_string().is_empty());
    assert_eq!(probe().unwrap_err(), error, "the result is cached");
    assert_eq!(Context::open(0).unwrap_err(), CudaError::NoCuda(error));
}

#[cfg(not(miri))]
#[cfg(not(target_feature = "crt-static"))] // A static program loads no libraries.
#[test]
fn the_error_of_a_missing_library_has_its_name_and_the_systems_reason() {
    let Err(NoCuda::NoDriver { library, why }) = Driver::load(&[c"libnone.so.9", c"none.so"])
    else {
        panic!("there is no such library");
    };

    assert_eq!(library, "libnone.so.9");
    assert!(why.contains("libnone.so.9"), "{why}");
}

#[cfg(all(linux_system, target_env = "gnu", not(miri)))]
#[test]
fn a_library_without_the_functions_is_too_old_and_names_the_first() {
    let Err(error) = Driver::load(&[c"libc.so.6"]) else {
        panic!("the C library is not a driver");
    };

    let function = "cuInit".to_owned();
    assert_eq!(error, NoCuda::NoFunction { function });
    assert!(error.to_string().contains("install one for CUDA 11.0"));
}

#[test]
fn the_error_of_a_driver_that_does_not_start_has_the_reason() {
    testing::start();
    let start = |code| {
        fail("cuInit", code);
        FAKE.start().unwrap_err()
    };

    assert_eq!(start(100), NoCuda::NoGpu);
    assert_eq!(start(3), NoCuda::Forked);
    let broken = start(700).to_string();
    assert!(
        broken.contains("cuInit returned 700 CUDA_ERROR_ILLEGAL_ADDRESS: an illegal"),
        "{broken}"
    );
    assert!(start(4711).to_string().ends_with("cuInit returned 4711"));
}

#[test]
fn a_gpu_has_its_properties_and_a_missing_gpu_is_an_error() {
    let context = open();

    let gpu = context.gpu();
    assert_eq!((gpu.ordinal, gpu.name.as_str()), (1, "Fake GPU"));
    assert_eq!((gpu.capability, gpu.driver), ((9, 0), (12, 8)));
    assert_eq!((gpu.multiprocessors, gpu.bus.as_str()), (4, "ffff:01:00.0"));
    let error = Context::open_with(&FAKE, 2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no cuda:2; 2 GPUs are visible: cuda:0 to cuda:1"
    );
}

#[test]
fn a_context_is_closed_last_and_in_reverse_order() {
    testing::start();
    let context = Context::open_with(&FAKE, 0).unwrap();
    assert_eq!(
        calls().len(),
        1 + 2 + ENTRIES.len() + ENTRIES_SM80.len(),
        "retained, loaded, looked up"
    );
    let stream = handle(context.stream().unwrap(), &context);
    let kept = memory(&context, 8);
    let event = context.event(true).unwrap();
    calls();

    drop(context);
    assert!(calls().is_empty(), "memory and event still exist");
    drop((kept, event));

    assert_eq!(
        calls(),
        [
            &format!("cuStreamSynchronize {stream}"),
            "cuMemFree_v2",
            "cuEventDestroy_v2",
            &format!("cuStreamSynchronize {stream}"),
            "cuStreamDestroy_v2",
            "cuModuleUnload",
            "cuModuleUnload",
            "cuDevicePrimaryCtxRelease_v2 0",
        ]
    );
    for kind in ["contexts", "events", "memory", "modules", "streams"] {
        assert_eq!(testing::live(kind), 0, "{kind}");
    }
    assert_eq!(testing::context_depth(), 0);
}

#[test]
fn kernels_that_cannot_be_loaded_are_an_error_with_the_compilers_log() {
    testing::start();
    fail("cuModuleLoadDataEx", 222);

    let error = Context::open_with(&FAKE, 0).unwrap_err();

    let text = error.to_string();
    assert!(text.contains("Fake GPU (compute capability 9.0)"), "{text}");
    assert!(
        text.contains("222") && text.contains("(the fake driver returns 222)"),
        "{text}"
    );
    assert_eq!(error.code(), Some(222));
    assert_eq!(calls().last().unwrap(), "cuDevicePrimaryCtxRelease_v2 0");
    assert_eq!(testing::context_depth(), 0);
}

#[test]
fn a_missing_kernel_unloads_the_others() {
    testing::start();
    fail("cuModuleGetFunction", 500);

    assert!(Context::open_with(&FAKE, 0).is_err());

    let calls = calls();
    assert_eq!(
        calls[calls.len() - 2..],
        ["cuModuleUnload", "cuDevicePrimaryCtxRelease_v2 0"]
    );
}

#[test]
fn opening_runs_every_kernel_once() {
    let context = open();

    context.warm_up().unwrap();

    let calls = calls();
    for entry in ENTRIES {
        let launch = format!("cuLaunchKernel {} ", entry.to_string_lossy());
        assert!(
            calls.iter().any(|call| call.starts_with(&launch)),
            "{launch}"
        );
    }
}

#[test]
fn bytes_are_copied_to_the_gpu_and_back() {
    let context = open();
    let queue = context.stream().unwrap();
    let (from, to) = (memory(&context, 6), memory(&context, 6));

    let source = Arc::new(LoggedBytes(vec![1, 2, 3, 4, 5]));
    let first = context.copy(queue, source.clone(), 5, &from, 0).unwrap();
    let second = context.copy(queue, source, 1, &from, 5).unwrap();
    context.copy_within(queue, &from, &to, 6).unwrap();

    assert_eq!(bytes(&context, queue, &to), [1, 2, 3, 4, 5, 1]);
    assert!(first.is_done().unwrap());
    drop((first, second));
}

#[test]
fn a_transfer_holds_its_source_until_it_has_waited_for_the_copy() {
    let context = open();
    let queue = context.stream().unwrap();
    let to = memory(&context, 3);
    let transfer = context
        .copy(queue, Arc::new(LoggedBytes(vec![7; 3])), 3, &to, 0)
        .unwrap();
    calls();

    drop(transfer);

    assert_eq!(calls(), ["cuEventSynchronize", "source freed"]);
}

#[test]
fn a_source_that_may_still_be_read_is_never_freed() {
    let context = open();
    let queue = context.stream().unwrap();
    let to = memory(&context, 3);
    let source = Arc::new(LoggedBytes(vec![7; 3]));
    let transfer = context.copy(queue, source.clone(), 3, &to, 0).unwrap();

    fail("cuEventSynchronize", 700);
    drop(transfer);
    assert_eq!(Arc::strong_count(&source), 2, "the share is leaked");

    // The same if the copy was enqueued and its event could not be recorded.
    fail("cuEventRecord", 700);
    testing::fail("cuStreamSynchronize", 700);
    assert!(context.copy(queue, source.clone(), 3, &to, 0).is_err());
    assert_eq!(Arc::strong_count(&source), 3);

    // If the wait for the stream succeeds, the source is freed.
    fail("cuEventRecord", 700);
    assert!(context.copy(queue, source.clone(), 3, &to, 0).is_err());
    assert_eq!(Arc::strong_count(&source), 3);
    fail_nothing();
}

#[test]
fn copies_and_kernels_stay_inside_their_memory() {
    let context = open();
    let queue = context.stream().unwrap();
    let (small, large) = (memory(&context, 4), memory(&context, 64));
    let source: HostSource = Arc::new(vec![0_u8; 8]);
    calls();

    for (bytes, at) in [(5, 0), (1, 4), (4, usize::MAX), (9, 0)] {
        let error = context.copy(queue, source.clone(), bytes, &small, at);
        assert!(matches!(error, Err(CudaError::OutOfRange { .. })));
    }
    assert!(context.copy_within(queue, &large, &small, 5).is_err());
    assert!(context.copy_within(queue, &small, &small, 4).is_err());
    let slab = Slab::zeroed(1, 5).unwrap();
    assert!(context.read(queue, &small, slab).is_err());
    let kernel = expand();
    assert!(
        context
            .launch(queue, &kernel, 2, &small, None, &large)
            .is_err()
    );
    assert!(
        context
            .launch(queue, &kernel, 1, &large, None, &small)
            .is_err()
    );
    assert!(
        context
            .launch(queue, &kernel, 1, &large, None, &large)
            .is_err()
    );
    let outside = [RowView {
        offset: 2,
        row_bytes: 3,
        flags: 0,
    }];
    let table = memory(&context, 16);
    let output = memory(&context, 12);
    let views = Some((Table::Views(&outside), &table));
    assert!(
        context
            .launch(queue, &kernel, 1, &small, views, &output)
            .is_err()
    );
    let inside = [RowView {
        offset: 1,
        row_bytes: 3,
        flags: 0,
    }];
    let views = Some((Table::Views(&inside), &small));
    assert!(
        context
            .launch(queue, &kernel, 1, &large, views, &output)
            .is_err()
    );

    let reported = calls();
    let reached =
        |call: &&String| call.starts_with("cuMemcpy") || call.starts_with("cuLaunchKernel");
    assert_eq!(reported.iter().find(reached), None);
}

#[test]
fn a_kernel_runs_over_the_views_that_were_checked() {
    let context = open();
    let queue = context.stream().unwrap();
    let (input, output) = (memory(&context, 32), memory(&context, 24));
    let table = memory(&context, 32);
    let pixels: HostSource = Arc::new((0..32).collect::<Vec<u8>>());
    drop(context.copy(queue, pixels, 32, &input, 0).unwrap());
    let view = |offset| RowView {
        offset,
        row_bytes: 3,
        flags: RowView::FLIP_X,
    };
    let views = [view(29), view(3)];
    let kernel = expand();
    calls();

    context
        .launch(
            queue,
            &kernel,
            2,
            &input,
            Some((Table::Views(&views), &table)),
            &output,
        )
        .unwrap();

    let reported = calls();
    let at = |start: &str| {
        reported
            .iter()
            .position(|call| call.starts_with(start))
            .unwrap()
    };
    assert!(at("cuMemcpyHtoDAsync_v2 32") < at("cuLaunchKernel infeed_expand_f32_chw"));
    assert!(
        !reported.iter().any(|call| call.contains("Synchronize")),
        "nothing waits"
    );
    assert_eq!(bytes(&context, queue, &table), RowView::bytes(&views));
    let expected: Vec<u8> = [29, 30, 31, 3, 4, 5]
        .iter()
        .flat_map(|&pixel: &u8| f32::from(pixel).to_le_bytes())
        .collect();
    assert_eq!(bytes(&context, queue, &output), expected);
    // The table keeps its copy, and drops it before the table itself is freed.
    calls();
    drop(table);
    let reported = calls();
    assert_eq!(reported[..1], ["cuEventSynchronize"]);
    assert_eq!(reported.last().unwrap(), "cuMemFree_v2");
}

#[test]
fn a_slab_is_pinned_once_and_unpinned_before_it_is_freed() {
    let context = open();
    for bytes in [100, 3 << 20] {
        let mut slab = Slab::zeroed(2, bytes / 2).unwrap();
        slab.as_mut().fill(9);

        context.pin(&mut slab).unwrap();
        context.pin(&mut slab).unwrap();
        let whole = bytes.next_multiple_of(4096);
        assert_eq!(calls(), [format!("cuMemHostRegister_v2 {whole} 1")]);
        assert!(slab.as_ref().iter().all(|&byte| byte == 9));
        // Cut into rows and sealed again, it is the same memory.
        let (filling, rows) = slab.into_rows();
        drop(rows);
        let slab = filling.seal().unwrap();
        assert!(calls().is_empty());
        drop(slab);

        assert_eq!(calls(), ["cuMemHostUnregister"]);
    }
    let mut nothing = Slab::zeroed(3, 0).unwrap();
    context.pin(&mut nothing).unwrap();
    assert!(calls().is_empty());
}

#[test]
fn memory_stays_pinned_for_the_next_slab_while_as_much_is_in_use() {
    let context = open();
    let pinned = |bytes: usize, fill: u8| {
        let mut slab = Slab::zeroed(1, bytes).unwrap();
        slab.as_mut().fill(fill);
        context.pin(&mut slab).unwrap();
        assert!(slab.as_ref().len() == bytes && slab.as_ref().iter().all(|&byte| byte == fill));
        slab
    };
    let count = |name: &str| calls().iter().filter(|call| call.starts_with(name)).count();
    const UNPIN: &str = "cuMemHostUnregister";
    const PIN: &str = "cuMemHostRegister";
    let training = [pinned(3 << 20, 1), pinned(3 << 20, 2)];
    drop(pinned(4 << 20, 3));
    assert_eq!(count(UNPIN), 0);

    // Memory of about this size is used again, with the contents of its new slab.
    let again = pinned((4 << 20) - 5000, 4);
    assert_eq!(count(PIN), 0);
    // There is none for a larger slab, and none that fits a small one.
    let others = [pinned(5 << 20, 5), pinned(4096, 6)];
    assert_eq!(count(PIN), 2);
    drop((again, others));
    // The oldest memory is unpinned: 4 of 9 MiB next to the 6 MiB in use.
    assert_eq!(count(UNPIN), 1);

    drop(training);
    assert_eq!(count(UNPIN), 4, "nothing stays pinned");
}

#[test]
fn a_slab_that_cannot_be_pinned_works_as_before() {
    let context = open();
    fail("cuMemHostRegister_v2", 2);
    let mut slab = Slab::zeroed(1, 10).unwrap();

    let error = context.pin(&mut slab).unwrap_err();

    assert_eq!(error.code(), Some(2));
    slab.as_mut().fill(1);
    drop(slab);
    assert!(!calls().contains(&"cuMemHostUnregister".to_owned()));
}

#[test]
fn out_of_memory_reports_the_requested_and_the_free_bytes() {
    let context = open();
    fail("cuMemAlloc_v2", 2);

    let error = context.memory(5000).unwrap_err();

    assert_eq!(
        error.to_string(),
        "Fake GPU is out of memory: cannot allocate 5000 bytes (1073741824 of 1073741824 are \
         free); use smaller or fewer batches, or a smaller model"
    );
}

#[test]
fn events_order_streams_and_timed_events_measure_time() {
    let context = open();
    let (ours, theirs) = (context.stream().unwrap(), context.stream().unwrap());
    let (start, end) = (context.event(true).unwrap(), context.event(true).unwrap());
    let plain = context.event(false).unwrap();
    assert_eq!(
        calls()[2..],
        ["cuEventCreate 1", "cuEventCreate 1", "cuEventCreate 3"]
    );

    start.record(ours).unwrap();
    start.hold(theirs).unwrap();
    end.record(theirs).unwrap();
    plain.synchronize().unwrap();

    let stream = |queue| handle(queue, &context);
    assert_eq!(
        calls(),
        [
            &format!("cuEventRecord {}", stream(ours)),
            &format!("cuStreamWaitEvent {}", stream(theirs)),
            &format!("cuEventRecord {}", stream(theirs)),
            "cuEventSynchronize"
        ]
    );
    context.finish(theirs).unwrap();
    assert!(start.until(&end).unwrap() > Duration::ZERO);
    assert_eq!(
        end.until(&start).unwrap(),
        Duration::ZERO,
        "elapsed time is never negative"
    );
    fail("cuEventQuery", 600);
    assert!(!plain.is_done().unwrap());
    fail("cuEventQuery", 700);
    let error = plain.is_done().unwrap_err().to_string();
    assert!(
        error.starts_with("cuEventQuery returned 700 CUDA_ERROR_ILLEGAL_ADDRESS"),
        "{error}"
    );
    assert!(error.contains("CUDA_LAUNCH_BLOCKING=1"), "{error}");
}

#[test]
fn a_release_on_a_threads_own_stream_waits_for_the_streams_of_all_threads() {
    let context = open();
    let event = context.event(false).unwrap();
    calls();

    event.record(Queue::PER_THREAD).unwrap();
    event.hold(Queue::PER_THREAD).unwrap();

    assert_eq!(calls(), ["cuEventRecord 0x1", "cuStreamWaitEvent 0x2"]);
}

#[test]
fn memory_is_freed_after_the_consumers_stream_that_uses_it() {
    let context = open();
    let consumers = consumers_stream(&context);
    let (from, to) = (memory(&context, 4), memory(&context, 4));
    context.copy_within(consumers, &from, &to, 4).unwrap();
    context.finish(consumers).unwrap();
    context.copy_within(consumers, &from, &to, 4).unwrap();
    calls();

    drop(from);

    assert_eq!(
        calls(),
        ["cuEventSynchronize", "cuMemFree_v2"],
        "one mark, since the first was already reached"
    );
}

#[test]
fn no_command_enters_a_captured_stream() {
    let context = open();
    let (own, event) = (context.stream().unwrap(), context.event(false).unwrap());
    let consumers = consumers_stream(&context);
    begin_capture(&context, consumers);
    calls();

    assert_eq!(event.record(consumers), Err(CudaError::Capturing));
    assert_eq!(event.hold(Queue::LEGACY), Err(CudaError::Capturing));
    assert_eq!(event.record(Queue::LEGACY), Err(CudaError::Capturing));
    event.record(own).unwrap();

    assert_eq!(
        calls(),
        [format!("cuEventRecord {}", handle(own, &context))]
    );
    end_capture(&context, consumers);
}

#[test]
fn an_object_of_another_context_is_rejected() {
    let context = open();
    let other = Context::open_with(&FAKE, 0).unwrap();
    let (queue, foreign) = (context.stream().unwrap(), other.stream().unwrap());
    let (here, there) = (memory(&context, 4), memory(&other, 4));
    let source: HostSource = Arc::new(vec![0_u8; 4]);

    let stream = CudaError::Foreign { what: "stream" };
    assert_eq!(
        context.event(false).unwrap().record(foreign),
        Err(stream.clone())
    );
    assert_eq!(
        context
            .copy(foreign, source.clone(), 4, &here, 0)
            .unwrap_err(),
        stream
    );
    let memory = CudaError::Foreign { what: "memory" };
    assert_eq!(
        context.copy(queue, source, 4, &there, 0).unwrap_err(),
        memory
    );
    assert_eq!(context.copy_within(queue, &here, &there, 4), Err(memory));
    let (one, two) = (context.event(true).unwrap(), other.event(true).unwrap());
    assert_eq!(one.until(&two), Err(CudaError::Foreign { what: "event" }));
}

#[cfg(all(unix, not(miri)))]
#[test]
fn calls_of_a_forked_child_are_errors_and_free_nothing() {
    let context = open();
    let held = memory(&context, 4);
    calls();

    // SAFETY: the child touches only its own memory and exits without running other code.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let rejected = matches!(context.stream(), Err(CudaError::Forked { .. }));
        drop((held, context));
        let silent = calls().is_empty();
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(if rejected && silent { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made; writes one integer.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };

    assert_eq!((waited, libc::WEXITSTATUS(status)), (child, 0));
    assert!(libc::WIFEXITED(status));
    context.stream().unwrap();
}

#[test]
fn a_table_on_two_queues_is_written_after_the_kernel_that_reads_it() {
    let context = open();
    let (one, other) = (context.stream().unwrap(), context.stream().unwrap());
    let (input, table_memory) = (memory(&context, 6), memory(&context, 32));
    let outputs = [memory(&context, 12), memory(&context, 12)];
    let view = [RowView {
        offset: 0,
        row_bytes: 3,
        flags: 0,
    }];
    let waits = |queue| format!("cuStreamWaitEvent {}", handle(queue, &context));
    let launch = |queue, output| {
        let table = Some((Table::Views(&view), &table_memory));
        context
            .launch(queue, &expand(), 1, &input, table, output)
            .unwrap();
    };
    launch(one, &outputs[0]);
    calls();

    launch(other, &outputs[1]);

    let reported = calls();
    let at = |what: &str| reported.iter().position(|call| call.starts_with(what));
    let stream = handle(other, &context);
    let (held, written) = (
        at(&waits(other)),
        at(&format!("cuMemcpyHtoDAsync_v2 16 on {stream}")),
    );
    assert!(held.is_some() && held < written, "{reported:?}");
    let (launched, marked) = (
        at("cuLaunchKernel "),
        reported
            .iter()
            .rposition(|call| *call == format!("cuEventRecord {stream}")),
    );
    assert!(launched < marked, "{reported:?}");

    // Other commands also write there only after the kernel.
    let source: HostSource = Arc::new(vec![0_u8; 8]);
    drop(context.copy(one, source, 8, &table_memory, 0).unwrap());
    assert_eq!(
        calls()
            .iter()
            .find(|c| c.starts_with("cuStreamWaitEvent"))
            .unwrap(),
        &waits(one)
    );
    context
        .copy_within(other, &input, &table_memory, 6)
        .unwrap();
    assert!(calls().contains(&waits(other)));
}

#[test]
fn written_memory_becomes_a_table_after_pending_writes() {
    let context = open();
    let queue = context.stream().unwrap();
    let (input, output) = (memory(&context, 6), memory(&context, 12));
    let view = [RowView {
        offset: 0,
        row_bytes: 3,
        flags: 0,
    }];
    let waited = |table_memory: &Arc<GpuMemory>| {
        calls();
        let table = Some((Table::Views(&view), table_memory));
        let launched = context.launch(queue, &expand(), 1, &input, table, &output);
        launched.unwrap();
        calls().contains(&format!("cuStreamSynchronize {}", handle(queue, &context)))
    };
    let (fresh, written) = (memory(&context, 16), memory(&context, 16));
    let source: HostSource = Arc::new(vec![0_u8; 8]);
    drop(context.copy(queue, source, 8, &written, 0).unwrap());

    assert!(!waited(&fresh));
    assert!(waited(&written), "the host waits the first time");
    assert!(!waited(&written), "the host does not wait again");
}

#[test]
fn tables_go_through_pinned_memory_that_grows_with_them() {
    let context = open();
    let queue = context.stream().unwrap();
    let (input, output) = (memory(&context, 6000), memory(&context, 12_000));
    let view = RowView {
        offset: 0,
        row_bytes: 3,
        flags: 0,
    };
    let pinned = |table_memory: &Arc<GpuMemory>, rows: usize| {
        calls();
        let views = vec![view; rows];
        let table = Some((Table::Views(&views), table_memory));
        let launched = context.launch(queue, &expand(), rows, &input, table, &output);
        launched.unwrap();
        assert_eq!(
            bytes(&context, queue, table_memory)[..16 * rows],
            *RowView::bytes(&views)
        );
        let reported = calls();
        reported
            .iter()
            .filter(|call| call.starts_with("cuMemHost"))
            .count()
    };

    let table_memory = memory(&context, 16_000);
    assert_eq!(pinned(&table_memory, 2), 1);
    assert_eq!(pinned(&table_memory, 1), 0, "the buffer is large enough");
    assert_eq!(
        pinned(&table_memory, 900),
        1,
        "a longer buffer; the first one stays pinned"
    );
    assert_eq!(pinned(&table_memory, 900), 0);

    fail("cuMemHostRegister_v2", 1);
    let table_memory = memory(&context, 64);
    assert_eq!(pinned(&table_memory, 2), 1);
    assert_eq!(
        pinned(&table_memory, 2),
        0,
        "pinning is not tried again after it failed"
    );
}

#[test]
fn a_stream_that_the_driver_rejects_is_an_error_with_the_fix() {
    let context = open();
    let event = context.event(false).unwrap();
    let stream = consumers_stream(&context);
    fail("cuStreamIsCapturing", 400);

    let error = event.record(stream).unwrap_err();

    assert!(matches!(error, CudaError::NoStream { code: 400, .. }));
    let text = error.to_string();
    assert!(
        text.contains("the stream was destroyed or belongs to another GPU; keep a stream"),
        "{text}"
    );
}
