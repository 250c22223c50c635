use std::mem::offset_of;
use std::path::Path;
use std::sync::Arc;

use super::fake::{FAKE, OLD, state};
use super::find::Candidate;
use super::functions::Image;
use super::*;
use crate::cuda::fake::{self, calls};
use crate::cuda::{Context, Memory, Queue};
use crate::jpeg_batch::{Baseline, Place, Refused, ScannedJpeg};
use crate::jpeg_encode::{Subsampling, encode};
use crate::slab::Slab;

/// A card of this thread's own with a library that was told nothing.
fn card() -> Arc<Context> {
    super::fake::reset();
    let context = crate::cuda::fake_context();
    calls();
    context
}

fn open(context: &Arc<Context>) -> Decoder {
    let decoder = Decoder::open_with(context, &FAKE, &Settings::default()).unwrap();
    calls();
    decoder
}

/// A JPEG of 16x8, whose length differs from quality to quality.
fn jpeg(quality: u8) -> Vec<u8> {
    let rgb: Vec<u8> = (0..16 * 8 * 3_u32).map(|n| (n * 37 % 251) as u8).collect();
    encode(&rgb, 16, 8, quality, Subsampling::Quarter).unwrap()
}

/// Bytes that say when they are dropped.
struct Told(Vec<u8>);

impl AsRef<[u8]> for Told {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        fake::state(|state| state.calls.push("file freed".to_owned()));
    }
}

fn sources(files: &[Vec<u8>]) -> Vec<ScannedJpeg> {
    let source = |file: &Vec<u8>| ScannedJpeg::scan(Arc::new(Told(file.clone()))).unwrap();
    files.iter().map(source).collect()
}

/// Files of lengths that all differ, with a place for each.
fn files(count: u8) -> (Vec<Vec<u8>>, Vec<Place>) {
    let files: Vec<_> = (0..count).map(|n| jpeg(20 + 8 * n)).collect();
    let lengths: std::collections::HashSet<_> = files.iter().map(Vec::len).collect();
    assert_eq!(lengths.len(), files.len());
    let places = (0..usize::from(count)).map(|n| Place::dense(n * 512, 8, 16));
    (files, places.collect())
}

fn memory(context: &Arc<Context>) -> Arc<Memory> {
    Arc::new(context.memory(8192).unwrap())
}

fn bytes(context: &Arc<Context>, queue: Queue, memory: &Memory) -> Vec<u8> {
    let slab = Slab::zeroed(1, memory.len()).unwrap();
    let slab = context.read(queue, memory, slab).unwrap();
    slab.as_ref().to_vec()
}

fn fail(call: &'static str, code: u32) {
    fake::state(|state| state.failing.push((call, code)));
}

/// That each file's pixels are in its place, but for those of the rows named, and nothing beside.
fn check(seen: &[u8], files: &[Vec<u8>], places: &[Place], but: &[usize]) {
    let mut expected = vec![0xcd; seen.len()];
    for (row, (file, place)) in files.iter().zip(places).enumerate() {
        if !but.contains(&row) {
            expected[place.bytes().unwrap()].fill(file.len() as u8);
        }
    }
    assert_eq!(seen, expected);
}

fn rows(refused: &[Refused]) -> Vec<usize> {
    refused.iter().map(|refused| refused.row).collect()
}

#[test]
fn an_image_is_laid_out_as_the_header_says() {
    assert_eq!((size_of::<Image>(), offset_of!(Image, pitch)), (64, 32));
}

#[test]
fn the_engine_is_taken_first_and_the_cores_where_there_is_none() {
    let context = card();
    let decoder = Decoder::open_with(&context, &FAKE, &Settings::default()).unwrap();
    assert_eq!(decoder.way(), Way::Engine);
    assert_eq!(
        (decoder.engines(), decoder.version()),
        (Some((7, 4)), (12, 4))
    );
    assert_eq!(calls()[0], "create 3 32", "chroma is interpolated");
    drop(decoder);

    // Status 7: the card is of another kind.
    state(|state| state.refused = vec![(3, 32, 7)]);
    let decoder = Decoder::open_with(&context, &FAKE, &Settings::default()).unwrap();
    assert_eq!(decoder.way(), Way::Cores);
    drop(decoder);

    state(|state| state.refused.push((2, 32, 9)));
    let error = Decoder::open_with(&context, &FAKE, &Settings::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("for Fake 1: the engine: nvjpegCreateEx: the card is"),
        "{text}"
    );
    assert!(text.contains("(status 7); the card's cores: "), "{text}");

    let way = Some(Way::Cores);
    let settings = Settings {
        way,
        ..Settings::default()
    };
    state(|state| state.refused.clear());
    calls();
    drop(Decoder::open_with(&context, &FAKE, &settings).unwrap());
    assert_eq!(
        calls()[0],
        "create 2 32",
        "a way that is asked for is the only one"
    );
}

#[test]
fn a_library_that_knows_no_interpolation_is_asked_without_it() {
    let context = card();
    state(|state| state.refused = vec![(3, 32, 2)]);

    let decoder = Decoder::open_with(&context, &FAKE, &Settings::default()).unwrap();

    assert_eq!(decoder.way(), Way::Engine);
    assert_eq!(calls()[..2], ["create 3 32", "create 3 0"]);
}

#[test]
fn room_is_reserved_for_the_largest_batch_so_far_and_a_quarter_more() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(8);
    let mut reserved = |count: usize| {
        calls();
        let sources = sources(&files[..count]);
        let decoding = decoder.decode(queue, &sources, &to, &places[..count]);
        drop(decoding.unwrap());
        let calls = calls();
        let reserved: Vec<_> = calls
            .iter()
            .filter_map(|call| call.strip_prefix("reserve "))
            .map(str::to_owned)
            .collect();
        reserved
    };

    // Two lanes in turn. 4 files of 16x8 and a quarter more are 640 pixels: 10 rows of 4 times 16.
    let four = ["4 of 16x10, chroma 2"];
    assert_eq!(reserved(4), four);
    assert_eq!(reserved(4), four);
    assert!(reserved(3).is_empty(), "there is room");
    assert!(reserved(4).is_empty(), "there is room");
    assert_eq!(reserved(8), ["8 of 16x10, chroma 2"]);

    // What it cannot reserve it allocates when it must.
    fail("reserve", 5);
    assert_eq!(reserved(8).len(), 1);
    assert!(reserved(8).is_empty(), "it is not asked again");
}

#[test]
fn the_engine_gets_files_of_one_subsampling_in_a_call_and_the_cores_get_all() {
    let context = card();
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
    let places: Vec<_> = (0..kinds.len())
        .map(|n| Place::dense(n * 512, 8, 16))
        .collect();
    for (way, expected) in [(Way::Engine, 5), (Way::Cores, 1)] {
        let settings = Settings {
            way: Some(way),
            ..Settings::default()
        };
        let mut decoder = Decoder::open_with(&context, &FAKE, &settings).unwrap();
        let (queue, to) = (context.stream().unwrap(), memory(&context));
        for turn in 0..3 {
            calls();
            let decoding = decoder
                .decode(queue, &sources(&files), &to, &places)
                .unwrap();
            assert!(decoding.refused.is_empty());
            let made = calls();
            let count = |name: &str| made.iter().filter(|call| call.starts_with(name)).count();
            assert_eq!(count("decode "), expected, "{way}");
            assert_eq!(count("stream_synchronize"), 0, "no call waits for another");
            if turn == 2 {
                assert_eq!(count("state_create"), 0, "states are used again");
                assert_eq!(count("initialize"), 0, "states are used again");
            }
            drop(decoding);
        }
        check(&bytes(&context, queue, &to), &files, &places, &[]);
    }
    assert!(state(|state| state.alive.is_empty()));
}

#[test]
fn a_failure_at_any_call_of_opening_leaves_nothing_behind() {
    for call in [
        "device_padding",
        "pinned_padding",
        "header_create",
        "state_create",
    ] {
        let context = card();
        fail(call, 8);

        let error = Decoder::open_with(&context, &FAKE, &Settings::default()).unwrap_err();

        assert!(
            matches!(error, NoDecoder::NotOnThisCard { .. }),
            "{call}: {error}"
        );
        assert!(
            error.to_string().contains("something failed inside"),
            "{error}"
        );
        assert!(state(|state| state.alive.is_empty()), "{call}");
    }
    let context = card();
    fail("event_create", 700);
    let error = Decoder::open_with(&context, &FAKE, &Settings::default()).unwrap_err();
    assert!(matches!(error, NoDecoder::Cuda(_)), "{error}");
    assert!(state(|state| state.alive.is_empty()));
    assert_eq!(fake::state(|state| state.pushed), 0);
}

#[test]
fn a_batch_is_decoded_by_one_call_into_the_places_of_its_rows() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, mut places) = files(3);
    // Rows longer than needed, and in another order than the files.
    places.swap(0, 2);
    places[1].row_bytes = 50;
    calls();

    let decoding = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap();

    assert!(decoding.refused.is_empty());
    let lengths: Vec<_> = files.iter().map(Vec::len).collect();
    let made = calls();
    let made: Vec<_> = made.iter().filter(|call| *call != "parse").collect();
    assert_eq!(
        made,
        [
            "event_create 3",
            "event_synchronize",
            "reserve 3 of 16x10, chroma 2",
            "initialize 3 by 1",
            &format!("decode {lengths:?} on 0x300"),
            "event_record 0x300",
            "event_record 0x300"
        ]
    );
    drop(decoding);
    check(&bytes(&context, queue, &to), &files, &places, &[]);
    assert_eq!(
        fake::state(|state| state.pushed),
        0,
        "the context is taken off again"
    );
}

#[test]
fn files_and_memory_are_held_until_the_batch_is_done() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(2);
    let decoding = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap();
    drop(to);
    assert!(!calls().contains(&"file freed".to_owned()));

    drop(decoding);

    let kept = [
        "event_synchronize",
        "file freed",
        "file freed",
        "memory_free",
    ];
    let seen = calls();
    let seen: Vec<_> = seen
        .iter()
        .filter(|call| kept.contains(&call.as_str()))
        .collect();
    assert_eq!(seen, kept);
}

#[test]
fn a_state_is_used_again_only_after_its_last_batch_and_made_ready_when_the_size_changes() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(3);
    let of = |call: &String| {
        let names = ["initialize", "event_synchronize", "decode"];
        names.into_iter().find(|name| call.starts_with(name))
    };
    let mut made = Vec::new();
    for count in [3, 3, 3, 2] {
        let sources = sources(&files[..count]);
        calls();
        let decoding = decoder
            .decode(queue, &sources, &to, &places[..count])
            .unwrap();
        made.push(calls().iter().filter_map(of).collect::<Vec<_>>());
        drop(decoding);
    }

    let fresh = ["event_synchronize", "initialize", "decode"];
    let again = ["event_synchronize", "decode"];
    assert_eq!(made, [&fresh[..], &fresh[..], &again[..], &fresh[..]]);
}

#[test]
fn files_that_are_not_what_their_scan_says_never_reach_the_library() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(4);
    let mut scanned = sources(&files);
    scanned[1].header.width = 17;
    scanned[2].source = Arc::new(files[2][..100].to_vec());
    calls();

    let decoding = decoder.decode(queue, &scanned, &to, &places).unwrap();

    assert_eq!(rows(&decoding.refused), [1, 2]);
    let texts: Vec<_> = decoding.refused.iter().map(|r| r.why.to_string()).collect();
    assert_eq!(texts[0], "the file is 17x8, and its place is for 16x8");
    assert_eq!(texts[1], "the file is shorter than its scan");
    let parsed = calls().iter().filter(|call| *call == "parse").count();
    assert_eq!(parsed, 2);
    drop(decoding);
    check(&bytes(&context, queue, &to), &files, &places, &[1, 2]);
}

#[test]
fn a_batch_without_a_file_that_is_taken_makes_no_call_to_decode() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let header = Baseline::read(&jpeg(50), u64::MAX).unwrap();
    let source = Arc::new(vec![1, 2]);

    let broken = ScannedJpeg { source, header };
    let broken = decoder.decode(queue, &[broken], &to, &[Place::dense(0, 8, 16)]);
    let empty = decoder.decode(queue, &[], &to, &[]);

    assert_eq!(rows(&broken.unwrap().refused), [0]);
    assert!(empty.unwrap().refused.is_empty());
    assert!(!calls().iter().any(|call| call.starts_with("decode")));
}

#[test]
fn broken_files_are_found_by_halving_and_the_others_are_decoded() {
    let context = card();
    for broken in [&[0][..], &[8], &[3, 4], &[0, 2, 4, 6, 8]] {
        super::fake::reset();
        let mut decoder = open(&context);
        let (queue, to) = (context.stream().unwrap(), memory(&context));
        let (files, places) = files(9);
        let is_broken = broken.iter().map(|&row: &usize| (files[row].len(), 3));
        state(|state| state.broken = is_broken.collect());
        calls();

        let decoding = decoder
            .decode(queue, &sources(&files), &to, &places)
            .unwrap();

        assert_eq!(rows(&decoding.refused), broken);
        let text = decoding.refused[0].why.to_string();
        assert_eq!(
            text,
            "nvJPEG refuses the file: the JPEG is broken (status 3)"
        );
        // Every call behind one that failed is made when nothing is under way.
        let made = calls();
        let tries: Vec<_> = made
            .iter()
            .filter(|call| call.starts_with("decode"))
            .collect();
        let waits = made
            .iter()
            .filter(|call| call.starts_with("stream_synchronize"));
        assert_eq!(waits.count(), tries.len() - 1);
        if broken.len() == 1 {
            assert!(tries.len() <= 9, "{tries:?}");
        }
        drop(decoding);
        check(&bytes(&context, queue, &to), &files, &places, broken);

        // The next batches are whole again.
        state(|state| state.broken.clear());
        for _ in 0..2 {
            let next = decoder
                .decode(queue, &sources(&files), &to, &places)
                .unwrap();
            assert!(next.refused.is_empty());
        }
        check(&bytes(&context, queue, &to), &files, &places, &[]);
    }
}

#[test]
fn a_card_that_decodes_nothing_is_an_error_and_no_row_of_broken_files() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(4);
    fail("decode", 6);

    let error = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap_err();

    let text = error.to_string();
    assert!(
        text.starts_with("nvjpegDecodeBatched: the card did not execute it"),
        "{text}"
    );
    assert!(text.contains("; decode on the host"), "{text}");
    assert!(calls().iter().filter(|call| *call == "file freed").count() == 4);
}

#[test]
fn no_memory_and_unknown_statuses_are_errors_that_say_what_is_free() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(2);
    for (call, code, words) in [
        (
            "decode",
            5,
            "it gets no memory (status 5): 1000 of 1073741824 bytes",
        ),
        (
            "initialize",
            5,
            "nvjpegDecodeBatchedInitialize: it gets no memory",
        ),
        ("decode", 99, "status 99, which this build does not know"),
    ] {
        fake::state(|state| state.failing = vec![(call, code)]);

        let error = decoder
            .decode(queue, &sources(&files), &to, &places)
            .unwrap_err();

        assert!(error.to_string().contains(words), "{error}");
    }
    fake::state(|state| state.failing.clear());
    let decoding = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap();
    assert!(decoding.refused.is_empty(), "the decoder works on");
}

#[test]
fn a_file_that_the_library_reads_otherwise_is_never_decoded() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(4);
    state(|state| {
        state.misread = vec![files[1].len()];
        state.unsupported = vec![files[2].len()];
    });

    let decoding = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap();

    assert_eq!(rows(&decoding.refused), [1, 2]);
    let texts: Vec<_> = decoding.refused.iter().map(|r| r.why.to_string()).collect();
    assert!(
        texts[0].contains("it reads 17x8 of 3 components"),
        "{}",
        texts[0]
    );
    assert!(
        texts[1].contains("the engine does not decode such"),
        "{}",
        texts[1]
    );
    drop(decoding);
    check(&bytes(&context, queue, &to), &files, &places, &[1, 2]);

    fail("parse", 3);
    let decoding = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap();
    assert_eq!(rows(&decoding.refused), [0, 1, 2, 3]);
}

#[test]
fn a_library_without_the_newer_functions_decodes_too() {
    let context = card();
    let mut decoder = Decoder::open_with(&context, &OLD, &Settings::default()).unwrap();
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(2);

    let decoding = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap();

    assert!(decoding.refused.is_empty());
    assert_eq!(decoder.engines(), None);
}

#[test]
fn what_cannot_be_right_is_refused_before_the_library_is_called() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(2);
    let sources = sources(&files);
    let mut refused = |queue, to: &Arc<Memory>, places: &[Place]| {
        decoder
            .decode(queue, &sources, to, places)
            .unwrap_err()
            .to_string()
    };
    calls();

    let far = Place {
        offset: 8192 - 100,
        ..places[1]
    };
    assert!(refused(queue, &to, &[places[0], far]).contains("row 1: 8 rows of 48 bytes"));
    assert!(refused(queue, &to, &[places[0], places[0]]).contains("share bytes"));
    assert!(refused(queue, &to, &places[..1]).contains("give one for each"));
    let other = Context::open_with(&fake::FAKE, 0).unwrap();
    let foreign = memory(&other);
    assert!(refused(queue, &foreign, &places).contains("a memory of another opening"));
    let stream = other.stream().unwrap();
    assert!(refused(stream, &to, &places).contains("a stream of another opening"));
    fake::state(|state| state.capturing = true);
    assert!(refused(Queue::LEGACY, &to, &places).contains("being captured"));

    assert!(
        !calls()
            .iter()
            .any(|call| call.starts_with("decode") || call == "parse")
    );
    fake::state(|state| state.capturing = false);
}

#[test]
fn a_memory_that_a_consumers_stream_decodes_to_is_freed_after_that() {
    let context = card();
    let mut decoder = open(&context);
    let to = memory(&context);
    let (files, places) = files(1);

    let decoding = decoder
        .decode(Queue::LEGACY, &sources(&files), &to, &places)
        .unwrap();
    calls();
    drop(decoding);
    drop(to);

    let seen = calls();
    let waits = seen
        .iter()
        .filter(|call| *call == "event_synchronize")
        .count();
    assert_eq!(waits, 2, "for the files, and for the stream: {seen:?}");
    assert_eq!(seen.last().unwrap(), "memory_free");
}

#[test]
fn an_end_that_cannot_be_marked_is_waited_for() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(2);
    fail("event_record", 700);

    let error = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap_err();

    assert_eq!(error.code(), Some(700));
    let seen = calls();
    let at = |name: &str| seen.iter().position(|call| call.starts_with(name)).unwrap();
    assert!(at("decode") < at("stream_synchronize"));
    assert!(at("stream_synchronize") < at("file freed"));
    fake::state(|state| state.failing.clear());
    assert!(
        decoder
            .decode(queue, &sources(&files), &to, &places)
            .is_ok()
    );
}

#[test]
fn what_is_under_way_on_a_card_that_is_lost_stays_for_good() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(2);
    fail("event_record", 700);
    fail("stream_synchronize", 700);

    let error = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap_err();
    assert_eq!(error.code(), Some(700));
    assert!(!calls().contains(&"file freed".to_owned()));
    let again = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap_err();
    assert!(again.to_string().contains("open it anew"), "{again}");
    drop(decoder);

    let seen = calls();
    assert!(
        !seen.iter().any(|call| call.contains("destroy")),
        "{seen:?}"
    );
    assert_eq!(state(|state| state.alive.len()), 4);
}

#[test]
fn a_decoder_waits_for_its_batches_and_is_taken_apart_in_reverse() {
    let context = card();
    let mut decoder = open(&context);
    let (queue, to) = (context.stream().unwrap(), memory(&context));
    let (files, places) = files(1);
    let decoding = decoder
        .decode(queue, &sources(&files), &to, &places)
        .unwrap();
    calls();

    drop(decoder);

    assert_eq!(
        calls(),
        [
            "event_synchronize",
            "event_synchronize",
            "state_destroy",
            "state_destroy",
            "header_destroy",
            "destroy",
        ]
    );
    assert!(state(|state| state.alive.is_empty()));
    drop(decoding);

    let decoder = open(&context);
    fail("event_synchronize", 700);
    drop(decoder);
    assert_eq!(
        state(|state| state.alive.len()),
        4,
        "nobody knows whether it is idle"
    );
}

#[test]
fn the_search_prefers_a_file_then_what_is_loaded_then_folders_then_the_system() {
    let folder = std::env::temp_dir().join(format!("infeed-nvjpeg-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libnvjpeg.so.12"), "").unwrap();
    let search = Search {
        file: None,
        folders: vec![folder.clone()],
    };
    let inside = folder
        .join("libnvjpeg.so.12")
        .to_string_lossy()
        .into_owned();

    let candidates = search.candidates(12);

    let name = |major: i32| format!("libnvjpeg.so.{major}");
    assert_eq!(
        candidates,
        [
            Candidate::Loaded(name(12)),
            Candidate::Loaded(name(11)),
            Candidate::File(inside),
            Candidate::File(name(12)),
            Candidate::File(name(11)),
        ],
        "a library for CUDA 13 does not work beside a driver for 12"
    );
    assert_eq!(
        search.candidates(0).len(),
        7,
        "a driver that does not tell excludes none"
    );
    let file = Some(Path::new("/a/b").to_owned());
    let given = Search { file, ..search }.candidates(13);
    assert_eq!(given, [Candidate::File("/a/b".to_owned())]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
#[test]
fn what_is_no_nvjpeg_is_named_with_what_it_lacks() {
    let search = |file: &str| Search {
        file: Some(file.into()),
        folders: Vec::new(),
    };

    let error = search("libnone.so.9").find(12).err().unwrap();
    let NoDecoder::NoLibrary { file, why } = &error else {
        panic!("{error}");
    };
    assert_eq!(file, "libnone.so.9");
    assert!(why.contains("libnone.so.9"), "{why}");
    assert!(error.to_string().contains("set INFEED_NVJPEG"), "{error}");
    let error = search("libc.so.6").find(12).err().unwrap().to_string();
    assert!(
        error.starts_with("libc.so.6 is too old: it has no nvjpegGetProperty"),
        "{error}"
    );
    assert!(search("a\0b").find(12).is_err());
}

/// Where the machine has the library, with or without a card.
#[cfg(not(miri))]
#[test]
fn the_library_of_this_machine_has_every_function_and_says_its_version() {
    let file = std::env::var_os("INFEED_NVJPEG").map(Into::into);
    let search = Search {
        file,
        folders: Vec::new(),
    };
    match search.find(0) {
        Ok(library) => {
            assert!(library.version() >= (11, 6), "{:?}", library.version());
            assert!(
                std::ptr::eq(search.find(0).ok().unwrap(), library),
                "it is loaded once"
            );
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
