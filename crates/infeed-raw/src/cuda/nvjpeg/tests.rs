use std::mem::offset_of;
use std::sync::{Arc, LazyLock};

use fake_cuda::testing::{self, FileFault, add_fault, clear_faults, fail, fail_nothing, note};

use super::functions::{Functions, Nvjpeg, NvjpegImage};
use super::*;
use crate::cuda::testing::{begin_capture, calls, consumers_stream, end_capture, handle};
use crate::cuda::{Context, GpuMemory, Queue};
use crate::jpeg_batch::{
    Backend, Baseline, DecoderSettings, ImagePosition, RejectedFile, ScannedJpeg,
};
use crate::jpeg_encode::{Subsampling, encode};
use crate::slab::Slab;

/// The fake nvJPEG.
static FAKE: LazyLock<Nvjpeg> = LazyLock::new(|| Nvjpeg {
    functions: Functions::fake_table(),
    file: String::new(),
});

/// The same without the functions that some versions lack.
static OLD: LazyLock<Nvjpeg> = LazyLock::new(|| Nvjpeg {
    functions: Functions {
        supported: None,
        engines: None,
        reserve: None,
        ..Functions::fake_table()
    },
    file: String::new(),
});

/// Opens a device of a new driver and clears the log of calls.
fn gpu() -> Arc<Context> {
    let context = crate::cuda::testing::context();
    calls();
    context
}

fn open(context: &Arc<Context>) -> NvjpegDecoder {
    let decoder = NvjpegDecoder::open_with(context, &FAKE, &DecoderSettings::default()).unwrap();
    calls();
    decoder
}

/// A JPEG of 16x8. Its length differs for each quality.
fn jpeg(quality: u8) -> Vec<u8> {
    let rgb: Vec<u8> = (0..16 * 8 * 3_u32).map(|n| (n * 37 % 251) as u8).collect();
    encode(&rgb, 16, 8, quality, Subsampling::Quarter).unwrap()
}

/// Bytes whose drop appears in the log of calls.
struct LoggedBytes(Vec<u8>);

impl AsRef<[u8]> for LoggedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for LoggedBytes {
    fn drop(&mut self) {
        note("file freed");
    }
}

fn sources(files: &[Vec<u8>]) -> Vec<ScannedJpeg> {
    let source = |file: &Vec<u8>| ScannedJpeg::scan(Arc::new(LoggedBytes(file.clone()))).unwrap();
    files.iter().map(source).collect()
}

/// Files with different lengths, and a position for each.
fn files(count: u8) -> (Vec<Vec<u8>>, Vec<ImagePosition>) {
    let files: Vec<_> = (0..count).map(|n| jpeg(20 + 8 * n)).collect();
    let lengths: std::collections::HashSet<_> = files.iter().map(Vec::len).collect();
    assert_eq!(lengths.len(), files.len());
    let positions = (0..usize::from(count)).map(|n| ImagePosition::dense(n * 512, 8, 16));
    (files, positions.collect())
}

fn memory(context: &Arc<Context>) -> Arc<GpuMemory> {
    Arc::new(context.memory(8192).unwrap())
}

fn bytes(context: &Arc<Context>, queue: Queue, memory: &GpuMemory) -> Vec<u8> {
    let slab = Slab::zeroed(1, memory.len()).unwrap();
    let slab = context.read(queue, memory, slab).unwrap();
    slab.as_ref().to_vec()
}

/// Checks that each file's pixels are in its position, except for the rows in `but`, and that no
/// other byte was written.
fn check(seen: &[u8], files: &[Vec<u8>], positions: &[ImagePosition], but: &[usize]) {
    // Contents of the fake driver's memory before it is written.
    let mut expected = vec![0xa5; seen.len()];
    for (row, (file, position)) in files.iter().zip(positions).enumerate() {
        if but.contains(&row) {
            continue;
        }
        let pixels = testing::pixels(file).unwrap();
        for (y, line) in pixels.chunks_exact(3 * 16).enumerate() {
            expected[position.offset + y * position.row_bytes..][..line.len()]
                .copy_from_slice(line);
        }
    }
    assert_eq!(seen, expected);
}

fn rows(rejected: &[RejectedFile]) -> Vec<usize> {
    rejected.iter().map(|rejected| rejected.row).collect()
}

#[test]
fn the_image_struct_has_the_layout_of_the_header() {
    assert_eq!(
        (size_of::<NvjpegImage>(), offset_of!(NvjpegImage, pitch)),
        (64, 32)
    );
}

#[test]
fn a_decoder_prefers_the_engine_and_falls_back_to_the_cores() {
    let context = gpu();
    let decoder = NvjpegDecoder::open_with(&context, &FAKE, &DecoderSettings::default()).unwrap();
    assert_eq!(decoder.backend(), Backend::Engine);
    assert_eq!(
        (decoder.engines(), decoder.version()),
        (Some((1, 1)), (12, 4))
    );
    assert_eq!(calls()[0], "nvjpegCreateEx 3 32", "chroma is interpolated");
    drop(decoder);

    // Status 7: the GPU has no engine.
    testing::fail_call("nvjpegCreateEx", 7, 1);
    let decoder = NvjpegDecoder::open_with(&context, &FAKE, &DecoderSettings::default()).unwrap();
    assert_eq!(decoder.backend(), Backend::Cores);
    drop(decoder);

    testing::fail_call("nvjpegCreateEx", 7, 1);
    testing::fail_call("nvjpegCreateEx", 9, 2);
    calls();
    let error = NvjpegDecoder::open_with(&context, &FAKE, &DecoderSettings::default()).unwrap_err();
    assert_eq!(calls(), ["nvjpegCreateEx 3 32", "nvjpegCreateEx 2 32"]);
    let text = error.to_string();
    assert!(
        text.contains("for Fake GPU: the engine: nvjpegCreateEx: the GPU does"),
        "{text}"
    );
    assert!(text.contains("(status 7); the GPU's cores: "), "{text}");

    let backend = Some(Backend::Cores);
    let settings = DecoderSettings {
        backend,
        ..DecoderSettings::default()
    };
    calls();
    drop(NvjpegDecoder::open_with(&context, &FAKE, &settings).unwrap());
    assert_eq!(
        calls()[0],
        "nvjpegCreateEx 2 32",
        "a configured backend has no fallback"
    );
}

#[test]
fn a_library_without_interpolation_gets_no_flag_for_it() {
    let context = gpu();
    testing::fail_call("nvjpegCreateEx", 2, 1);

    let decoder = NvjpegDecoder::open_with(&context, &FAKE, &DecoderSettings::default()).unwrap();

    assert_eq!(decoder.backend(), Backend::Engine);
    assert_eq!(calls()[..2], ["nvjpegCreateEx 3 32", "nvjpegCreateEx 3 0"]);
}

#[test]
fn memory_is_reserved_for_the_largest_batch_so_far_and_a_quarter_more() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(8);
    let mut reserved = |count: usize| {
        calls();
        let sources = sources(&files[..count]);
        let decoding = decoder.decode(queue, &sources, &to, &positions[..count]);
        drop(decoding.unwrap());
        let calls = calls();
        let reserved: Vec<_> = calls
            .iter()
            .filter_map(|call| call.strip_prefix("nvjpegDecodeBatchedPreAllocate "))
            .map(str::to_owned)
            .collect();
        reserved
    };

    // Two lanes take turns. 4 files of 16x8 and a quarter more are 640 pixels: 10 rows of 4 times
    // 16.
    let four = ["4 of 16x10, chroma 2"];
    assert_eq!(reserved(4), four);
    assert_eq!(reserved(4), four);
    assert!(reserved(3).is_empty(), "no growth");
    assert!(reserved(4).is_empty(), "no growth");
    assert_eq!(reserved(8), ["8 of 16x10, chroma 2"]);

    // The library allocates memory that it could not reserve.
    fail("nvjpegDecodeBatchedPreAllocate", 5);
    assert_eq!(reserved(8).len(), 1);
    assert!(reserved(8).is_empty(), "it is not called again");
}

#[test]
fn a_call_has_one_subsampling_on_the_engine_and_all_on_the_cores() {
    let context = gpu();
    let kinds = [
        Subsampling::Quarter,
        Subsampling::None,
        Subsampling::Gray,
        Subsampling::None,
        Subsampling::Quarter,
        Subsampling::Half,
        Subsampling::HalfRows,
    ];
    let rgb: Vec<u8> = (0..16 * 8 * 3_u32).map(|n| (n * 37 % 251) as u8).collect();
    let file = |(n, &kind)| encode(&rgb, 16, 8, 20 + 8 * n as u8, kind).unwrap();
    let files: Vec<_> = kinds.iter().enumerate().map(file).collect();
    let positions: Vec<_> = (0..kinds.len())
        .map(|n| ImagePosition::dense(n * 512, 8, 16))
        .collect();
    for (backend, expected) in [(Backend::Engine, 5), (Backend::Cores, 1)] {
        let settings = DecoderSettings {
            backend: Some(backend),
            ..DecoderSettings::default()
        };
        let mut decoder = NvjpegDecoder::open_with(&context, &FAKE, &settings).unwrap();
        let (queue, to) = (context.stream().unwrap(), memory(&context));
        for turn in 0..3 {
            calls();
            let decoding = decoder
                .decode(queue, &sources(&files), &to, &positions)
                .unwrap();
            assert!(decoding.rejected.is_empty());
            let made = calls();
            let count = |name: &str| made.iter().filter(|call| call.starts_with(name)).count();
            assert_eq!(count("nvjpegDecodeBatched "), expected, "{backend}");
            assert_eq!(count("cuStreamSynchronize"), 0, "no call waits");
            if turn == 2 {
                assert_eq!(count("nvjpegJpegStateCreate"), 0, "states are reused");
                assert_eq!(
                    count("nvjpegDecodeBatchedInitialize"),
                    0,
                    "states are reused"
                );
            }
            drop(decoding);
        }
        check(&bytes(&context, queue, &to), &files, &positions, &[]);
    }
    assert_eq!(testing::live("decoders"), 0);
}

#[test]
fn a_failed_open_destroys_everything_it_created() {
    for call in [
        "nvjpegSetDeviceMemoryPadding",
        "nvjpegSetPinnedMemoryPadding",
        "nvjpegJpegStreamCreate",
        "nvjpegJpegStateCreate",
    ] {
        let context = gpu();
        fail(call, 8);

        let error =
            NvjpegDecoder::open_with(&context, &FAKE, &DecoderSettings::default()).unwrap_err();

        assert!(
            matches!(error, NoDecoder::NotOnThisGpu { .. }),
            "{call}: {error}"
        );
        assert!(error.to_string().contains("internal error"), "{error}");
        assert_eq!(testing::live("decoders"), 0, "{call}");
    }
    let context = gpu();
    fail("cuEventCreate", 700);
    let error = NvjpegDecoder::open_with(&context, &FAKE, &DecoderSettings::default()).unwrap_err();
    assert!(matches!(error, NoDecoder::Cuda(_)), "{error}");
    assert_eq!(testing::live("decoders"), 0);
    assert_eq!(testing::context_depth(), 0);
}

#[test]
fn one_call_decodes_a_batch_into_the_positions_of_its_rows() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, mut positions) = files(3);
    // Longer rows than necessary, and another order than the files.
    positions.swap(0, 2);
    positions[1].row_bytes = 50;
    calls();

    let decoding = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap();

    assert!(decoding.rejected.is_empty());
    let stream = handle(queue, &context);
    let made = calls();
    let made: Vec<_> = made
        .iter()
        .filter(|call| *call != "nvjpegJpegStreamParse")
        .collect();
    assert_eq!(
        made,
        [
            "cuEventCreate 3",
            "cuEventSynchronize",
            "nvjpegDecodeBatchedPreAllocate 3 of 16x10, chroma 2",
            "nvjpegDecodeBatchedInitialize 3 by 1",
            &format!("nvjpegDecodeBatched on {stream}"),
            &format!("cuEventRecord {stream}"),
            &format!("cuEventRecord {stream}")
        ]
    );
    drop(decoding);
    check(&bytes(&context, queue, &to), &files, &positions, &[]);
    assert_eq!(testing::context_depth(), 0, "the context is popped");
}

#[test]
fn files_and_memory_are_held_until_the_batch_is_done() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(2);
    let decoding = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap();
    drop(to);
    assert!(!calls().contains(&"file freed".to_owned()));

    drop(decoding);

    let kept = [
        "cuEventSynchronize",
        "file freed",
        "file freed",
        "cuMemFree_v2",
    ];
    let seen = calls();
    let seen: Vec<_> = seen
        .iter()
        .filter(|call| kept.contains(&call.as_str()))
        .collect();
    assert_eq!(seen, kept);
}

#[test]
fn a_state_is_reused_after_its_last_batch_and_initialised_when_the_size_changes() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(3);
    const INITIALIZE: &str = "nvjpegDecodeBatchedInitialize";
    const DECODE: &str = "nvjpegDecodeBatched ";
    let of = |call: &String| {
        let names = [INITIALIZE, "cuEventSynchronize", DECODE];
        names.into_iter().find(|name| call.starts_with(name))
    };
    let mut made = Vec::new();
    for count in [3, 3, 3, 2] {
        let sources = sources(&files[..count]);
        calls();
        let decoding = decoder
            .decode(queue, &sources, &to, &positions[..count])
            .unwrap();
        made.push(calls().iter().filter_map(of).collect::<Vec<_>>());
        drop(decoding);
    }

    let fresh = ["cuEventSynchronize", INITIALIZE, DECODE];
    let again = ["cuEventSynchronize", DECODE];
    assert_eq!(made, [&fresh[..], &fresh[..], &again[..], &fresh[..]]);
}

#[test]
fn files_that_differ_from_their_scan_never_reach_the_library() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(4);
    let mut scanned = sources(&files);
    scanned[1].header.width = 17;
    scanned[2].source = Arc::new(files[2][..100].to_vec());
    calls();

    let decoding = decoder.decode(queue, &scanned, &to, &positions).unwrap();

    assert_eq!(rows(&decoding.rejected), [1, 2]);
    let texts: Vec<_> = decoding
        .rejected
        .iter()
        .map(|r| r.why.to_string())
        .collect();
    assert_eq!(texts[0], "the file is 17x8, but its position is for 16x8");
    assert_eq!(texts[1], "the file is shorter than its scan");
    let parsed = calls()
        .iter()
        .filter(|call| *call == "nvjpegJpegStreamParse")
        .count();
    assert_eq!(parsed, 2);
    drop(decoding);
    check(&bytes(&context, queue, &to), &files, &positions, &[1, 2]);
}

#[test]
fn a_batch_without_accepted_files_makes_no_decode_call() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let header = Baseline::read(&jpeg(50), u64::MAX).unwrap();
    let source = Arc::new(vec![1, 2]);

    let broken = ScannedJpeg { source, header };
    let broken = decoder.decode(queue, &[broken], &to, &[ImagePosition::dense(0, 8, 16)]);
    let empty = decoder.decode(queue, &[], &to, &[]);

    assert_eq!(rows(&broken.unwrap().rejected), [0]);
    assert!(empty.unwrap().rejected.is_empty());
    assert!(
        !calls()
            .iter()
            .any(|call| call.starts_with("nvjpegDecodeBatched "))
    );
}

#[test]
fn halving_finds_broken_files_and_decodes_the_others() {
    let context = gpu();
    for broken in [&[0][..], &[8], &[3, 4], &[0, 2, 4, 6, 8]] {
        clear_faults();
        let mut decoder = open(&context);
        let (queue, to) = (context.stream().unwrap(), memory(&context));
        let (files, positions) = files(9);
        for &row in broken {
            add_fault(files[row].len(), FileFault::Broken(3));
        }
        calls();

        let decoding = decoder
            .decode(queue, &sources(&files), &to, &positions)
            .unwrap();

        assert_eq!(rows(&decoding.rejected), broken);
        let text = decoding.rejected[0].why.to_string();
        assert_eq!(
            text,
            "nvJPEG rejects the file: the JPEG is damaged (status 3)"
        );
        // A call after a failed one is made when nothing is in flight.
        let made = calls();
        let tries: Vec<_> = made
            .iter()
            .filter(|call| call.starts_with("nvjpegDecodeBatched "))
            .collect();
        let waits = made
            .iter()
            .filter(|call| call.starts_with("cuStreamSynchronize"));
        assert_eq!(waits.count(), tries.len() - 1);
        if broken.len() == 1 {
            assert!(tries.len() <= 9, "{tries:?}");
        }
        drop(decoding);
        check(&bytes(&context, queue, &to), &files, &positions, broken);

        // The next batches are decoded completely.
        clear_faults();
        for _ in 0..2 {
            let next = decoder
                .decode(queue, &sources(&files), &to, &positions)
                .unwrap();
            assert!(next.rejected.is_empty());
        }
        check(&bytes(&context, queue, &to), &files, &positions, &[]);
    }
}

#[test]
fn a_gpu_that_decodes_no_file_is_an_error_of_the_batch() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(4);
    fail("nvjpegDecodeBatched", 6);

    let error = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap_err();

    let text = error.to_string();
    assert!(
        text.starts_with("nvjpegDecodeBatched: the GPU did not execute it"),
        "{text}"
    );
    assert!(text.contains("; decode on the host"), "{text}");
    assert!(calls().iter().filter(|call| *call == "file freed").count() == 4);
}

#[test]
fn out_of_memory_and_unknown_statuses_are_errors_with_the_free_memory() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(2);
    for (call, code, words) in [
        (
            "nvjpegDecodeBatched",
            5,
            "out of memory (status 5): 1073733632 of 1073741824 bytes",
        ),
        (
            "nvjpegDecodeBatchedInitialize",
            5,
            "nvjpegDecodeBatchedInitialize: out of memory",
        ),
        (
            "nvjpegDecodeBatched",
            99,
            "status 99, which this build does not know",
        ),
    ] {
        fail_nothing();
        fail(call, code);

        let error = decoder
            .decode(queue, &sources(&files), &to, &positions)
            .unwrap_err();

        assert!(error.to_string().contains(words), "{error}");
    }
    fail_nothing();
    let decoding = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap();
    assert!(decoding.rejected.is_empty(), "the decoder still works");
}

#[test]
fn a_file_that_the_library_reads_differently_is_never_decoded() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(4);
    add_fault(files[1].len(), FileFault::Misread);
    add_fault(files[2].len(), FileFault::Unsupported);

    let decoding = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap();

    assert_eq!(rows(&decoding.rejected), [1, 2]);
    let texts: Vec<_> = decoding
        .rejected
        .iter()
        .map(|r| r.why.to_string())
        .collect();
    assert!(
        texts[0].contains("it reads 17x8 with 3 components"),
        "{}",
        texts[0]
    );
    assert!(
        texts[1].contains("the engine does not support this"),
        "{}",
        texts[1]
    );
    drop(decoding);
    check(&bytes(&context, queue, &to), &files, &positions, &[1, 2]);

    fail("nvjpegJpegStreamParse", 3);
    let decoding = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap();
    assert_eq!(rows(&decoding.rejected), [0, 1, 2, 3]);
}

#[test]
fn a_library_without_the_newer_functions_decodes() {
    let context = gpu();
    let mut decoder =
        NvjpegDecoder::open_with(&context, &OLD, &DecoderSettings::default()).unwrap();
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(2);

    let decoding = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap();

    assert!(decoding.rejected.is_empty());
    assert_eq!(decoder.engines(), None);
}

#[test]
fn invalid_arguments_are_rejected_before_the_library_is_called() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(2);
    let sources = sources(&files);
    let mut rejected = |queue, to: &Arc<GpuMemory>, positions: &[ImagePosition]| {
        decoder
            .decode(queue, &sources, to, positions)
            .unwrap_err()
            .to_string()
    };
    calls();

    let far = ImagePosition {
        offset: 8192 - 100,
        ..positions[1]
    };
    assert!(rejected(queue, &to, &[positions[0], far]).contains("row 1: 8 rows of 48 bytes"));
    assert!(rejected(queue, &to, &[positions[0], positions[0]]).contains("overlap"));
    assert!(rejected(queue, &to, &positions[..1]).contains("give one position per file"));
    let other = Context::open_with(&crate::cuda::testing::FAKE, 0).unwrap();
    let foreign = memory(&other);
    assert!(
        rejected(queue, &foreign, &positions).contains("the memory belongs to another open GPU")
    );
    let stream = other.stream().unwrap();
    assert!(rejected(stream, &to, &positions).contains("the stream belongs to another open GPU"));
    let consumers = consumers_stream(&context);
    begin_capture(&context, consumers);
    assert!(rejected(Queue::LEGACY, &to, &positions).contains("being captured"));

    assert!(
        !calls()
            .iter()
            .any(|call| call.starts_with("nvjpegDecodeBatched ") || call == "nvjpegJpegStreamParse")
    );
    end_capture(&context, consumers);
}

#[test]
fn memory_is_freed_after_the_consumers_stream_that_decodes_to_it() {
    let context = gpu();
    let mut decoder = open(&context);
    let to = memory(&context);
    let (files, positions) = files(1);

    let decoding = decoder
        .decode(Queue::LEGACY, &sources(&files), &to, &positions)
        .unwrap();
    calls();
    drop(decoding);
    drop(to);

    let seen = calls();
    let waits = seen
        .iter()
        .filter(|call| *call == "cuEventSynchronize")
        .count();
    assert_eq!(waits, 2, "one for the files, one for the stream: {seen:?}");
    assert_eq!(seen.last().unwrap(), "cuMemFree_v2");
}

#[test]
fn a_decoder_waits_if_it_cannot_record_the_event() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(2);
    fail("cuEventRecord", 700);

    let error = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap_err();

    assert_eq!(error.code(), Some(700));
    let seen = calls();
    let at = |name: &str| seen.iter().position(|call| call.starts_with(name)).unwrap();
    assert!(at("nvjpegDecodeBatched ") < at("cuStreamSynchronize"));
    assert!(at("cuStreamSynchronize") < at("file freed"));
    fail_nothing();
    assert!(
        decoder
            .decode(queue, &sources(&files), &to, &positions)
            .is_ok()
    );
}

#[test]
fn a_batch_on_a_failed_gpu_is_leaked() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(2);
    fail("cuEventRecord", 700);
    fail("cuStreamSynchronize", 700);

    let error = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap_err();
    assert_eq!(error.code(), Some(700));
    assert!(!calls().contains(&"file freed".to_owned()));
    let again = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap_err();
    assert!(
        again.to_string().contains("open the decoder again"),
        "{again}"
    );
    drop(decoder);

    let seen = calls();
    assert!(
        !seen.iter().any(|call| call.contains("Destroy")),
        "{seen:?}"
    );
    assert_eq!(testing::live("decoders"), 4);
}

#[test]
fn a_dropped_decoder_waits_and_destroys_in_reverse_order() {
    let context = gpu();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, positions) = files(1);
    let decoding = decoder
        .decode(queue, &sources(&files), &to, &positions)
        .unwrap();
    calls();

    drop(decoder);

    assert_eq!(
        calls(),
        [
            "cuEventSynchronize",
            "cuEventSynchronize",
            "nvjpegJpegStateDestroy",
            "nvjpegJpegStateDestroy",
            "nvjpegJpegStreamDestroy",
            "nvjpegDestroy",
        ]
    );
    assert_eq!(testing::live("decoders"), 0);
    drop(decoding);

    let decoder = open(&context);
    fail("cuEventSynchronize", 700);
    drop(decoder);
    assert_eq!(testing::live("decoders"), 4, "it may still be busy");
}
