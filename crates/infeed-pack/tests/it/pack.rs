//! A packed dataset gives the batches of its source, and packing does not change the source.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use infeed::pipeline::{Decode, MemoryField, Pipeline, SourceSpec};
use infeed_codec::decode::{ColorMode, Decoder, Limits, Request};
use infeed_codec::transform::{
    CenterCrop, ClassIndex, Crop, CropPosition, Pad, RandomCrop, Resize,
};
use infeed_core::error::Error;
use infeed_core::sample::{DType, Depth, Image, Size};
use infeed_pack::{Encoding, MANIFEST, PackOptions, PackedDataset, Target, pack};
use infeed_sample::png;
use infeed_source::class_names::ClassNames;
use tempfile::TempDir;

use crate::data;

pub(crate) fn pack_with(
    pipeline: &Pipeline,
    out: &Path,
    change: impl FnOnce(&mut PackOptions),
) -> Result<PackedDataset, Error> {
    let mut options = PackOptions::new(Target::Folder);
    change(&mut options);
    pack(pipeline, &[], None, out, &options, &|_| true)
}

fn png_up() -> Encoding {
    "png:up:fast".parse().expect("an encoding")
}

/// Returns every column of an epoch in the source's own order, as bytes.
fn epoch(pipeline: &Pipeline) -> Vec<(Vec<u64>, Vec<u8>)> {
    data::bits(&data::epoch(&data::open(pipeline, 2)))
}

/// Writes photographs by class, and returns a pipeline that shows all their pixels.
fn photos() -> (TempDir, Pipeline) {
    let root = data::photos(10);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(CenterCrop::new([36, 40]))
        .batch(4);
    (root, pipeline)
}

fn pairs() -> (TempDir, Pipeline) {
    let root = data::pairs(5, 24, 32);
    let csv = root.path().join("class_dict.csv");
    let source = SourceSpec::pairs(root.path().join("images"), root.path().join("masks"));
    let pipeline = Pipeline::new(source)
        .decode()
        .transform(Crop::new(24, 32))
        .transform(ClassIndex::new(csv.to_string_lossy()))
        .batch(2);
    (root, pipeline)
}

#[test]
fn pairs_with_suffixes_pair_after_packing() {
    let (root, plain) = pairs();
    for entry in fs::read_dir(root.path().join("masks")).expect("a folder") {
        let path = entry.expect("readable").path();
        let stem = path.file_stem().expect("a name").to_string_lossy();
        fs::rename(&path, path.with_file_name(format!("{stem}_mask.png"))).expect("moves");
    }
    let mut pipeline = plain;
    let SourceSpec::Pairs { mask_suffix, .. } = &mut pipeline.source else {
        panic!("pairs");
    };
    "_mask".clone_into(mask_suffix);
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), |o| o.image = png_up()).expect("packs");

    assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
}

/// Returns the files below a folder with their bytes.
fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = fs::read(&path).expect("readable");
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

fn decode_file(path: &Path, mode: ColorMode) -> Image {
    let bytes = fs::read(path).expect("a file");
    let mut decoder = Decoder::new();
    let header = decoder
        .header(&bytes, false, &Limits::default())
        .expect("an image");
    let mut image = Image::default();
    let request = Request::whole(&header, mode);
    decoder
        .decode(&bytes, &header, &request, &mut image)
        .expect("decodes");
    image
}

#[test]
fn a_lossless_pack_gives_the_same_batches_in_the_same_order() {
    let (root, pipeline) = photos();
    let before = files(root.path());
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, &out.path().join("p"), |o| o.image = png_up()).expect("packs");

    assert_eq!((done.records, done.reused), (10, 0));
    assert_eq!(done.source, SourceSpec::folder(out.path().join("p")));
    assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
    assert!(out.path().join("p/cat/0000.png").is_file());
    assert_eq!(files(root.path()), before, "the original is as it was");
    let sum: usize = before.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(done.bytes_in, sum as u64 + 10 * 8);
    let written = files(&out.path().join("p"));
    let pngs = written
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "png"));
    assert_eq!(
        done.bytes_out,
        pngs.map(|(_, bytes)| bytes.len() as u64).sum::<u64>()
    );
}

#[test]
fn without_options_the_files_are_copied_byte_for_byte() {
    let (root, pipeline) = photos();
    let out = tempfile::tempdir().expect("a temporary folder");

    pack_with(&pipeline, out.path(), |_| {}).expect("packs");

    for n in 0..10 {
        let (from, to) = (data::photo(root.path(), n), data::photo(out.path(), n));
        assert_eq!(
            fs::read(from).expect("a file"),
            fs::read(to).expect("a copy")
        );
    }
}

#[test]
fn a_resize_done_once_is_the_resize_done_each_time() {
    let (_root, pipeline) = photos();
    let pipeline = Pipeline {
        transforms: vec![Resize::new(30).into(), CenterCrop::new([28, 28]).into()],
        ..pipeline
    };
    let out = tempfile::tempdir().expect("a temporary folder");

    let one = pack_with(&pipeline, &out.path().join("one"), |o| {
        o.transforms = vec![Resize::new(30).into()];
        o.image = png_up();
    });
    let both = pack_with(&pipeline, &out.path().join("both"), |o| {
        o.transforms = pipeline.transforms.clone();
        o.image = png_up();
    });

    let (one, both) = (one.expect("packs"), both.expect("packs"));
    assert_eq!(epoch(&one.pipeline), epoch(&pipeline));
    assert_eq!(epoch(&both.pipeline), epoch(&pipeline));
}

#[test]
fn baked_transforms_that_would_change_pixels_again_are_removed() {
    let (_root, pipeline) = photos();
    let away = Crop {
        at: CropPosition::Offset([3, 4]),
        ..Crop::new(30, 30)
    };
    let padded = vec![Crop::new(30, 30).into(), Pad::new(2).into()];
    for (steps, side) in [(padded, 34), (vec![away.into()], 30)] {
        let pipeline = Pipeline {
            transforms: steps.clone(),
            ..pipeline.clone()
        };
        let out = tempfile::tempdir().expect("a temporary folder");

        let done = pack_with(&pipeline, out.path(), |o| {
            o.transforms = steps;
            o.image = png_up();
        });

        let done = done.expect("packs");
        assert_eq!(done.pipeline.transforms, vec![Crop::new(side, side).into()]);
        assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
    }
}

#[test]
fn arrays_give_the_same_batches_as_their_source_files() {
    let (_root, pipeline) = pairs();
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), |o| o.to = Target::Arrays).expect("packs");

    assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
    let array = fs::read(out.path().join("image.npy")).expect("an array");
    assert_eq!(array.len(), 128 + 5 * 24 * 32 * 3);
    let written = fs::metadata(out.path().join("mask.npy"))
        .expect("an array")
        .len();
    assert_eq!(done.bytes_out, array.len() as u64 + written);
    let toml = done.pipeline.to_toml().expect("arrays in files");
    assert_eq!(Pipeline::from_toml(&toml).expect("valid"), done.pipeline);
}

#[test]
fn arrays_of_labelled_photos_contain_the_labels() {
    let (_root, pipeline) = photos();
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), |o| {
        o.to = Target::Arrays;
        o.transforms = vec![CenterCrop::new([36, 40]).into()];
    });

    let done = done.expect("packs");
    assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
    let labels = fs::read(out.path().join("label.npy")).expect("an array");
    assert_eq!(labels[128..136], 0_i64.to_le_bytes());
    assert_eq!(labels[labels.len() - 8..], 1_i64.to_le_bytes());
}

#[test]
fn photos_of_different_sizes_cannot_become_arrays_and_the_fix_is_named() {
    let (root, pipeline) = photos();
    let out = tempfile::tempdir().expect("a temporary folder");

    let error = pack_with(&pipeline, out.path(), |o| o.to = Target::Arrays).expect_err("sizes");

    let text = error.chain();
    let (first, second) = (data::photo(root.path(), 0), data::photo(root.path(), 2));
    for part in [
        first.to_str().expect("Unicode"),
        second.to_str().expect("Unicode"),
        "48x40",
        "70x54",
        "--crop",
        "--center-crop",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    pack_with(&pipeline, out.path(), |_| {}).expect("nothing is left in the way");
}

#[test]
fn masks_keep_their_numbers_their_palette_and_16_bits_through_a_resize() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let size = Size {
        height: 20,
        width: 20,
    };
    for folder in ["image", "mask"] {
        fs::create_dir(root.path().join(folder)).expect("a new folder");
    }
    for name in ["a", "b"] {
        let image = png(&data::picture(1, 20, 20)).expect("encodes");
        fs::write(root.path().join(format!("image/{name}.png")), image).expect("writes");
    }
    let mut wide = Image::default();
    wide.reset(size, 1, Depth::U16);
    for (at, pixel) in wide.data.chunks_exact_mut(2).enumerate() {
        pixel.copy_from_slice(&((at / 40) as u16 * 1000).to_ne_bytes());
    }
    fs::write(root.path().join("mask/a.png"), png(&wide).expect("encodes")).expect("writes");
    let indices: Vec<u8> = (0..400).map(|at| (at / 100) as u8).collect();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 20, 20);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(vec![0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255]);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&indices).expect("pixels");
    writer.finish().expect("an end");
    fs::write(root.path().join("mask/b.png"), bytes).expect("writes");
    let source = SourceSpec::pairs(root.path().join("image"), root.path().join("mask"));
    let out = root.path().join("out");

    let done = pack_with(&Pipeline::new(source).decode(), &out, |o| {
        o.transforms = vec![Resize::new(10).into()];
    });

    done.expect("packs");
    let wide = decode_file(&out.join("mask/a.png"), ColorMode::Stored16);
    let values: Vec<u16> = wide
        .data
        .chunks_exact(20)
        .map(|row| u16::from_ne_bytes([row[0], row[1]]))
        .collect();
    assert_eq!(
        values,
        [0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000]
    );
    let narrow = decode_file(&out.join("mask/b.png"), ColorMode::Stored);
    assert_eq!(narrow.data.iter().max(), Some(&3));
    let colours = decode_file(&out.join("mask/b.png"), ColorMode::Rgb);
    assert_eq!(colours.row(9)[..3], [0, 0, 255], "the palette is there");
}

#[test]
fn lossy_masks_random_transforms_and_rgba_jpegs_are_rejected_before_writing() {
    let (root, pipeline) = pairs();
    let out = root.path().join("out");
    let mut rgba = pipeline.clone();
    let decode = Decode {
        modes: [("image".to_owned(), ColorMode::Rgba)].into(),
        ..Decode::default()
    };
    rgba.decode = Some(decode);
    let jpeg = Encoding::Jpeg { quality: 90 };

    let mask = pack_with(&pipeline, &out, |o| o.mask = jpeg).expect_err("lossy");
    let random = pack_with(&pipeline, &out, |o| {
        o.transforms = vec![RandomCrop::new(10).into()];
    });
    let alpha = pack_with(&rgba, &out, |o| o.image = jpeg).expect_err("alpha");
    let array = pack_with(&pipeline, &out, |o| {
        o.to = Target::Arrays;
        o.image = jpeg;
    });

    for (error, part) in [
        (mask, "mask: JPEG changes values"),
        (random.expect_err("random"), "transform 1 (RandomCrop)"),
        (alpha, "which JPEG cannot store"),
        (array.expect_err("encoded"), "leave out jpeg:90"),
    ] {
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.chain().contains(part), "{error}");
    }
    assert!(!out.exists());
}

#[test]
fn the_source_is_never_overwritten() {
    let (root, pipeline) = photos();
    let inside = root.path().join("cat/packed");
    let around = root.path().parent().expect("a folder").to_owned();
    let linked = tempfile::tempdir().expect("a temporary folder");
    let link = linked.path().join("link");
    std::os::unix::fs::symlink(root.path(), &link).expect("a link");
    let before = files(root.path());

    for (out, how) in [
        (root.path().to_owned(), " is the original"),
        (inside, " is inside the original"),
        (around, " contains the original"),
        (link.clone(), " is the original"),
        (link.join("new/../other"), " is inside the original"),
    ] {
        let error = pack_with(&pipeline, &out, |_| {}).expect_err("in the way");
        assert!(error.to_string().contains(how), "{error}");
    }

    assert_eq!(files(root.path()), before);
}

#[test]
fn a_foreign_folder_or_one_of_other_options_is_rejected_by_name() {
    let (_root, pipeline) = photos();
    let other = tempfile::tempdir().expect("a temporary folder");
    fs::write(other.path().join("thesis.txt"), "dear").expect("writes");
    let out = tempfile::tempdir().expect("a temporary folder");
    pack_with(&pipeline, out.path(), |_| {}).expect("packs");
    let before = files(out.path());

    let stranger = pack_with(&pipeline, other.path(), |_| {}).expect_err("not ours");
    let differs = pack_with(&pipeline, out.path(), |o| o.image = png_up()).expect_err("options");

    assert!(stranger.to_string().contains("is not empty"), "{stranger}");
    let text = differs.to_string();
    assert!(text.contains(&*out.path().to_string_lossy()), "{text}");
    assert!(
        text.contains("\"keep\" there, \"png:up:fast\" requested"),
        "{text}"
    );
    assert_eq!(files(out.path()), before);
}

/// Packs with a bad record, repairs the record, and packs again.
fn pack_after_repair(to: Target) -> (Error, PackedDataset, PackedDataset, Pipeline, TempDir) {
    let (root, pipeline) = photos();
    let bad = data::photo(root.path(), 7);
    let good = fs::read(&bad).expect("a photo");
    fs::write(&bad, &good[..good.len() / 2]).expect("writes");
    let out = root.path().with_extension("packed");
    let options = |o: &mut PackOptions| {
        o.to = to;
        o.max_bad = Some(0);
        o.transforms = vec![CenterCrop::new([36, 40]).into()];
        o.image = match to {
            Target::Folder => png_up(),
            _ => Encoding::Keep,
        };
    };
    let error = pack_with(&pipeline, &out, options).expect_err("a bad record");
    assert!(!out.join(MANIFEST).exists(), "it is not complete");
    fs::write(&bad, &good).expect("writes");
    let second = pack_with(&pipeline, &out, options).expect("packs");
    let third = pack_with(&pipeline, &out, options).expect("packs");
    assert_eq!(epoch(&third.pipeline), epoch(&pipeline));
    let left: Vec<_> = files(&out)
        .into_iter()
        .map(|(path, _)| {
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| name.starts_with('.') || name.ends_with(".begun"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    fs::remove_dir_all(out).expect("ours");
    (error, second, third, pipeline, root)
}

#[test]
fn a_bad_record_is_named_and_the_next_run_resumes_after_it() {
    for to in [Target::Folder, Target::Arrays] {
        let (error, second, third, _, root) = pack_after_repair(to);

        assert!(matches!(error, Error::Decode { .. }), "{error:?}");
        // In class order: the cats 0, 2, 4, 6, 8 come first, then the dogs 1, 3, 5 and 7.
        let bad = data::photo(root.path(), 7);
        assert_eq!(error.record().expect("a record").index, 8);
        assert!(
            error.chain().contains(&*bad.to_string_lossy()),
            "{}",
            error.chain()
        );
        assert!(
            (1..10).contains(&second.reused),
            "{} were reused",
            second.reused
        );
        assert_eq!((second.records, third.reused), (10, 10));
        assert_eq!(second.bytes_out, third.bytes_out);
    }
}

/// Returns the bytes of the files below a folder by their names.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let name = |path: &Path| path.strip_prefix(root).expect("below").to_owned();
    let found = files(root).into_iter();
    found.map(|(path, bytes)| (name(&path), bytes)).collect()
}

#[test]
fn a_run_over_a_complete_dataset_with_bad_records_can_be_killed_and_repeated() {
    let (root, pipeline) = photos();
    let bad = data::photo(root.path(), 7);
    let good = fs::read(&bad).expect("a photo");
    fs::write(&bad, &good[..good.len() / 2]).expect("writes");
    for to in Target::ALL {
        let mut options = PackOptions::new(to);
        options.transforms = vec![CenterCrop::new([36, 40]).into()];
        if to == Target::Folder {
            options.image = png_up();
        }
        let run = |out: &Path, progress: &(dyn Fn() + Sync)| {
            let done = pack(&pipeline, &[], None, out, &options, &|_| {
                progress();
                true
            });
            let done = done.expect("packs");
            assert_eq!((done.records, done.bad), (9, 1), "{}", to.name());
        };
        let place = tempfile::tempdir().expect("a temporary folder");
        let (out, killed) = (place.path().join("out"), place.path().join("killed"));
        run(&out, &|| ());
        let expected = contents(&out);
        if to == Target::Arrays {
            // A run that is killed at its end leaves the list of rows that it wrote.
            fs::write(out.join("infeed-pack.rows"), [0xFF; 2]).expect("writes");
        }

        // `progress` is called before the first record.
        run(&out, &|| {
            if !killed.exists() {
                for (name, bytes) in contents(&out) {
                    let path = killed.join(name);
                    fs::create_dir_all(path.parent().expect("a folder")).expect("creates");
                    fs::write(path, bytes).expect("writes");
                }
            }
        });
        run(&killed, &|| ());

        assert!(contents(&killed) == expected, "{}", to.name());
    }
}

#[test]
fn stopping_reports_how_to_resume() {
    let (_root, pipeline) = photos();
    let out = tempfile::tempdir().expect("a temporary folder");
    let options = PackOptions::new(Target::Folder);
    let calls = AtomicU64::new(0);

    let stopped = pack(&pipeline, &[], None, out.path(), &options, &|at| {
        assert_eq!(at.total, 10);
        calls.fetch_add(1, Ordering::Relaxed) > 0
    });
    let done = pack(&pipeline, &[], None, out.path(), &options, &|_| true);

    let error = stopped.expect_err("stopped");
    assert!(
        matches!(error, Error::Interrupted { done: 0, total: 10 }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("run the same command again"),
        "{error}"
    );
    assert_eq!(done.expect("goes on").records, 10);
}

#[test]
fn a_file_that_changed_after_it_was_packed_is_packed_again() {
    let (root, pipeline) = photos();
    let out = tempfile::tempdir().expect("a temporary folder");
    pack_with(&pipeline, out.path(), |_| {}).expect("packs");
    let (changed, lost) = (data::photo(root.path(), 0), data::photo(out.path(), 1));
    fs::copy(data::photo(root.path(), 2), &changed).expect("copies");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    let file = fs::File::options()
        .write(true)
        .open(&changed)
        .expect("a file");
    file.set_modified(later).expect("a time");
    fs::remove_file(lost).expect("there was one");

    let again = pack_with(&pipeline, out.path(), |_| {}).expect("packs");

    assert_eq!(again.reused, 8);
    assert_eq!(epoch(&again.pipeline), epoch(&pipeline));
}

#[test]
fn a_part_keeps_the_numbers_of_its_classes_and_the_order() {
    let (_root, pipeline) = photos();
    let out = tempfile::tempdir().expect("a temporary folder");
    let options = PackOptions::new(Target::Folder);

    // Records 5 to 9 are dogs.
    let some = Some(&[9, 5, 6, 5][..]);
    let done = pack(&pipeline, &[], some, out.path(), &options, &|_| true).expect("packs");

    assert_eq!(done.records, 3);
    let loader = data::open(&done.pipeline, 1);
    let batch = &data::epoch(&loader)[0];
    let labels = batch.array("label").expect("labels").bytes().to_vec();
    assert_eq!(labels, [1_i64; 3].map(i64::to_le_bytes).concat());
    let names: Vec<String> = (0..3)
        .map(|n| loader.source().expect("open").id(n, None).name)
        .collect();
    assert!(
        names[0].ends_with("0001.jpg") && names[2].ends_with("0009.jpg"),
        "{names:?}"
    );
}

#[test]
fn labels_from_a_csv_keep_their_names() {
    let root = data::photos(6);
    let list = root.path().join("list.csv");
    let text = "path,label\ndog/0001.jpg,hound\ncat/0000.jpg,tom\ndog/0001.jpg,hound\n";
    fs::write(&list, text).expect("writes");
    let source = SourceSpec::Folder {
        path: root.path().to_owned(),
        labels: list.to_string_lossy().into_owned(),
        classes: None,
        allow_empty: false,
        follow_links: true,
    };
    let pipeline = Pipeline::new(source)
        .decode()
        .transform(CenterCrop::new(30))
        .batch(3);
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), |o| o.image = png_up()).expect("packs");

    let written = fs::read_to_string(out.path().join("labels.csv")).expect("a list");
    let expected = "path,label\ndog/0001.png,hound\ncat/0000.png,tom\ndog/0001.png,hound\n";
    assert_eq!(written, expected);
    assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
}

#[test]
fn classes_without_records_or_in_another_order_keep_their_numbers() {
    let root = data::photos(6);
    let classes = ["dog", "bird", "cat"].map(str::to_owned);
    let list = root.path().join("list.csv");
    let text = "path,label\ndog/0001.jpg,dog\ncat/0000.jpg,cat\n";
    fs::write(&list, text).expect("writes");
    for labels in ["auto".to_owned(), list.to_string_lossy().into_owned()] {
        let source = SourceSpec::Folder {
            path: root.path().to_owned(),
            labels,
            classes: Some(ClassNames::List(classes.to_vec())),
            allow_empty: false,
            follow_links: true,
        };
        let pipeline = Pipeline::new(source).decode().batch(1);
        let out = tempfile::tempdir().expect("a temporary folder");

        let done = pack_with(&pipeline, out.path(), |_| {}).expect("packs");

        assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
        let source = done.pipeline.open_source(&[]).expect("opens");
        assert_eq!(source.classes(), Some(&classes[..]));
    }
}

#[test]
fn a_class_whose_records_are_all_bad_keeps_its_number() {
    let root = data::photos(6);
    for name in fs::read_dir(root.path().join("cat")).expect("a class") {
        fs::write(name.expect("a file").path(), "no image").expect("writes");
    }
    let pipeline = Pipeline::new(SourceSpec::folder(root.path())).decode();
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), |o| o.max_bad = Some(3)).expect("packs");

    assert_eq!(done.bad, 3);
    let source = done.pipeline.open_source(&[]).expect("opens");
    let (before, after) = (pipeline.open_source(&[]).expect("opens"), source);
    assert_eq!(after.classes(), before.classes());
    assert_eq!(after.label(0), Some(1), "a dog");
}

#[test]
fn colliding_or_reordered_file_names_are_reported() {
    let (root, pipeline) = photos();
    fs::rename(
        root.path().join("cat/0000.jpg"),
        root.path().join("cat/a.jpg"),
    )
    .expect("moves");
    fs::copy(
        root.path().join("cat/a.jpg"),
        root.path().join("cat/a.jpeg"),
    )
    .expect("copies");
    let out = root.path().with_extension("packed");

    let meet = pack_with(&pipeline, &out, |o| o.image = png_up()).expect_err("one name");
    fs::rename(
        root.path().join("cat/a.jpeg"),
        root.path().join("cat/a.gif"),
    )
    .expect("moves");
    fs::rename(
        root.path().join("cat/a.jpg"),
        root.path().join("cat/a.h.jpg"),
    )
    .expect("moves");
    let places = pack_with(&pipeline, &out, |o| o.image = png_up()).expect_err("places");

    let (meet, places) = (meet.to_string(), places.to_string());
    assert!(
        meet.contains("cat/a.jpeg and ") && meet.contains("would both become"),
        "{meet}"
    );
    assert!(
        places.contains("cat/a.gif") && places.contains("in the other order"),
        "{places}"
    );
    assert!(!out.exists());
}

#[test]
fn arrays_in_memory_become_numbered_files_with_the_same_pixels() {
    let (count, size) = (12_usize, (9_usize, 8_usize));
    let pixels: Vec<u8> = (0..count * size.0 * size.1)
        .map(|at| (at * 31 % 256) as u8)
        .collect();
    let labels: Vec<u8> = (0..count as u8).map(|n| n % 3).collect();
    let field = |name: &str, kind: &str, shape: Vec<usize>, handle| {
        MemoryField::array(name, kind, DType::UInt8, shape, handle)
    };
    let fields = vec![
        field("image", "image", vec![size.0, size.1], 0),
        field("label", "tensor", vec![], 1),
    ];
    let pipeline = Pipeline::new(SourceSpec::Memory { fields })
        .transform(Crop::new(9, 8))
        .batch(12);
    let out = tempfile::tempdir().expect("a temporary folder");
    let handles = [pixels.clone(), labels].map(|bytes| Bytes::from(bytes).into());
    let options = PackOptions::new(Target::Folder);

    let done = pack(&pipeline, &handles, None, out.path(), &options, &|_| true);

    let done = done.expect("packs");
    assert!(out.path().join("07.png").is_file());
    let batch = &data::epoch(&data::open(&done.pipeline, 1))[0];
    assert_eq!(batch.array("image").expect("pixels").bytes(), pixels);
    let expected: Vec<u8> = (0..12_i64).flat_map(|n| (n % 3).to_le_bytes()).collect();
    assert_eq!(batch.array("label").expect("labels").bytes(), expected);
}

#[test]
fn a_gray_photo_stays_gray_and_still_reads_as_rgb() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let mut gray = Image::default();
    let size = Size {
        height: 12,
        width: 16,
    };
    gray.reset(size, 1, Depth::U8);
    gray.data
        .iter_mut()
        .enumerate()
        .for_each(|(at, byte)| *byte = at as u8);
    fs::write(root.path().join("a.png"), png(&gray).expect("encodes")).expect("writes");
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(Crop::new(12, 16));
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&pipeline, out.path(), |o| o.image = png_up()).expect("packs");

    assert_eq!(
        decode_file(&out.path().join("a.png"), ColorMode::Stored),
        gray
    );
    assert_eq!(epoch(&done.pipeline), epoch(&pipeline));
}
