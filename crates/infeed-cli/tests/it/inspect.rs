//! Tests of `infeed inspect`.

use std::fs;
use std::io::BufReader;
use std::path::Path;

use crate::{infeed, json, photos, stderr, stdout, streets};

#[test]
fn classes_formats_and_sizes_of_photos_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 12);

    let report = json(&infeed(["inspect", &photos, "--json"]));

    assert_eq!(report["images"]["files"], 12);
    assert_eq!(report["images"]["checked"], 12);
    assert_eq!(report["images"]["bad"].as_array().unwrap().len(), 0);
    let classes = report["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 3);
    assert!(classes.iter().all(|class| class["count"] == 4));
    let (min, max) = (
        &report["images"]["width"]["min"],
        &report["images"]["width"]["max"],
    );
    assert!(min.as_u64() > Some(0) && min.as_u64() <= max.as_u64());
}

#[test]
fn bad_files_are_listed_with_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let streets = streets(dir.path(), 3);
    let bad = Path::new(&streets).join("images/0001.png");
    let whole = fs::read(&bad).unwrap();
    fs::write(&bad, &whole[..whole.len() / 2]).unwrap();

    let report = json(&infeed(["inspect", &streets, "--json"]));

    let listed = report["images"]["bad"].as_array().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["path"], bad.to_str().unwrap());
    assert!(!listed[0]["reason"].as_str().unwrap().is_empty());
}

#[test]
fn names_cannot_send_control_characters_to_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 4);
    let hostile = "cat\u{1b}[2J\nbad         0\u{202e}";
    fs::create_dir(Path::new(&photos).join(hostile)).unwrap();
    fs::write(Path::new(&photos).join(hostile).join("a\u{9b}.jpg"), "x").unwrap();

    let shown = infeed(["inspect", &photos]);
    let failed = infeed(["bench", &photos, "--seconds", "0.1"]);

    let shown = stdout(&shown);
    assert!(
        shown.contains(r"cat\u{1b}[2J\nbad         0\u{202e} 1"),
        "{shown}"
    );
    for text in [shown, stdout(&failed), stderr(&failed)] {
        let unsafe_char = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(unsafe_char), "{text:?}");
        assert!(!text.contains("\nbad         0"), "{text}");
    }
    assert!(
        stderr(&failed).contains(r"a\u{9b}.jpg"),
        "{}",
        stderr(&failed)
    );
}

/// Copies photographs with EXIF orientations 1, 6 and 3 into a folder.
fn turned_photos(root: &Path) {
    let conformance = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/conformance");
    fs::create_dir_all(root).unwrap();
    for (name, orientation) in [("a.jpg", 1), ("b.jpg", 6), ("c.jpg", 3)] {
        let file = conformance.join(format!("orientation{orientation}.jpg"));
        fs::copy(file, root.join(name)).unwrap();
    }
}

#[test]
fn turned_images_are_counted_and_named_with_the_effect_of_orient() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("photos");
    turned_photos(&root);
    let root = root.to_str().unwrap();

    let text = stdout(&infeed(["inspect", root]));
    let report = json(&infeed(["inspect", root, "--json"]));

    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    for part in [
        "turned 2 by an EXIF orientation: b.jpg, c.jpg",
        "decoded as stored; .decode(orient=True) turns them",
        "exchanges height and width of 1 of them",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let turned = report["images"]["turned"].as_array().unwrap();
    assert_eq!(turned.len(), 2, "{report}");
    assert_eq!(turned[0]["stored"], serde_json::json!([19, 23]));
    assert_eq!(turned[0]["displayed"], serde_json::json!([23, 19]));

    let pipeline = dir.path().join("pipeline.toml");
    let toml = format!("[source]\nkind = \"folder\"\npath = {root:?}\n[decode]\norient = true\n");
    fs::write(&pipeline, toml).unwrap();
    let text = stdout(&infeed(["inspect", pipeline.to_str().unwrap()]));
    assert!(text.contains("the pipeline turns them"), "{text}");
}

#[test]
fn records_of_shards_count_turned_images() {
    let dir = tempfile::tempdir().unwrap();
    let (root, out) = (dir.path().join("photos/x"), dir.path().join("packed"));
    turned_photos(&root);
    let root = root.parent().unwrap();
    let packed = infeed([
        "pack",
        root.to_str().unwrap(),
        out.to_str().unwrap(),
        "--to",
        "webdataset",
    ]);
    assert!(packed.status.success(), "{}", stderr(&packed));

    let report = json(&infeed(["inspect", out.to_str().unwrap(), "--json"]));

    let turned = report["images"]["turned"].as_array().unwrap();
    assert_eq!(turned.len(), 2, "{report}");
}

#[test]
fn a_pair_of_unequal_size_that_orient_makes_equal_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let (images, masks) = (dir.path().join("images"), dir.path().join("masks"));
    turned_photos(&images);
    fs::create_dir(&masks).unwrap();
    for (name, height, width) in [("a", 19, 23), ("b", 23, 19), ("c", 19, 23)] {
        let mut mask = infeed_core::sample::Image::default();
        mask.reset(
            infeed_core::sample::Size { height, width },
            1,
            infeed_core::sample::Depth::U8,
        );
        let file = infeed_sample::png(&mask).unwrap();
        fs::write(masks.join(format!("{name}.png")), file).unwrap();
    }

    let report = json(&infeed(["inspect", dir.path().to_str().unwrap(), "--json"]));

    let mismatched = report["size_mismatches"].as_array().unwrap();
    assert_eq!(mismatched.len(), 1, "{report}");
    let text = mismatched[0].as_str().unwrap();
    assert!(text.ends_with("equal with .decode(orient=True)"), "{text}");
}

#[test]
fn parts_that_no_record_contains_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let streets = streets(dir.path(), 2);
    let at = |path: &str| Path::new(&streets).join(path);
    for name in [
        "images/a.txt",
        "images/b.md",
        "images/c.csv",
        "images/d.txt",
    ] {
        fs::write(at(name), "x").unwrap();
    }
    fs::create_dir(at("images/cat")).unwrap();
    fs::copy(at("images/0000.png"), at("images/cat/0000.png")).unwrap();

    let folder = at("images");
    let (text, report) = (
        stdout(&infeed(["inspect", folder.to_str().unwrap()])),
        json(&infeed(["inspect", folder.to_str().unwrap(), "--json"])),
    );

    for line in [
        "left out    4 files without an image extension: a.txt, b.md, c.csv and 1 more",
        "left out    2 images outside the class folders: 0000.png, 0001.png; move such",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let listed = report["left_out"].as_array().unwrap();
    assert_eq!(listed.len(), 2, "{report}");
    assert_eq!(listed[0]["count"], 4);
    assert_eq!(
        listed[0]["names"],
        serde_json::json!(["a.txt", "b.md", "c.csv"])
    );
}

#[test]
fn missing_masks_and_pairs_of_unequal_size_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let streets = streets(dir.path(), 3);
    let at = |path: &str| Path::new(&streets).join(path);
    fs::remove_file(at("masks/0002.png")).unwrap();
    fs::rename(at("images/0000.png"), at("images/extra.png")).unwrap();
    let other = infeed([
        "sample",
        "segmentation",
        at("other").to_str().unwrap(),
        "--count",
        "2",
        "--size",
        "48x40",
    ]);
    assert!(other.status.success());
    fs::copy(at("other/masks/0001.png"), at("masks/0001.png")).unwrap();
    fs::remove_dir_all(at("other")).unwrap();

    let output = infeed(["inspect", &streets, "--json"]);

    let report = json(&output);
    assert_eq!(
        report["images_without_mask"],
        serde_json::json!(["0002", "extra"])
    );
    assert_eq!(report["masks_without_image"], serde_json::json!(["0000"]));
    let mismatched = report["size_mismatches"].as_array().unwrap();
    assert_eq!(mismatched.len(), 1, "{report}");
    assert!(
        mismatched[0].as_str().unwrap().starts_with("0001"),
        "{report}"
    );
}

#[test]
fn pixels_of_masks_are_counted_by_class() {
    let dir = tempfile::tempdir().unwrap();
    let streets = streets(dir.path(), 3);

    let report = json(&infeed(["inspect", &streets, "--json"]));

    let shares = report["mask_classes"].as_array().unwrap();
    let sum: f64 = shares
        .iter()
        .map(|class| class["share"].as_f64().unwrap())
        .sum();
    assert!((sum - 1.0).abs() < 1e-9, "{report}");
    assert!(
        shares.iter().any(|class| class["name"] == "Road"),
        "{report}"
    );
    assert!(
        shares.iter().all(|class| class["name"] != "(in no class)"),
        "{report}"
    );
}

#[test]
fn a_limit_checks_fewer_files_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 12);

    let output = infeed(["inspect", &photos, "--limit", "5"]);

    assert!(
        stdout(&output).contains("checked     5 of them"),
        "{}",
        stdout(&output)
    );
}

/// Returns width, height and RGB bytes of a PNG.
fn pixels(path: &Path) -> (u32, u32, Vec<u8>) {
    let file = BufReader::new(fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut data = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut data).unwrap();
    (info.width, info.height, data)
}

#[test]
fn a_sheet_undoes_normalization_and_layout() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 1);
    let described = |name: &str, rest: &str| {
        let path = dir.path().join(name);
        let text = format!(
            "[source]\nkind = \"folder\"\npath = {photos:?}\n[decode]\n\
             [[transforms]]\nkind = \"CenterCrop\"\nsize = 32\n{rest}"
        );
        fs::write(&path, text).unwrap();
        let sheet = path.with_extension("png");
        let args = [
            "inspect",
            path.to_str().unwrap(),
            "--sheet",
            sheet.to_str().unwrap(),
        ];
        let output = infeed(args);
        assert!(output.status.success(), "{}", stderr(&output));
        pixels(&sheet)
    };

    let plain = described("plain.toml", "");
    let normalized = described(
        "normalized.toml",
        "[[transforms]]\nkind = \"Normalize\"\nmean = [0.5, 0.4, 0.3]\nstd = [0.2, 0.3, 0.4]\n\
         [output]\nlayout = \"CHW\"\ndtype = \"float32\"\n",
    );

    assert_eq!((plain.0, plain.1), (normalized.0, normalized.1));
    let worst = plain
        .2
        .iter()
        .zip(&normalized.2)
        .map(|(a, b)| a.abs_diff(*b))
        .max();
    assert!(worst <= Some(1), "{worst:?}");
    assert!(
        plain.2.iter().any(|&level| level != plain.2[0]),
        "an empty sheet"
    );
}

#[test]
fn a_sheet_of_streets_shows_their_masks_in_colours() {
    let dir = tempfile::tempdir().unwrap();
    let streets = streets(dir.path(), 2);
    let sheet = dir.path().join("sheet.png");

    let output = infeed([
        "inspect",
        &streets,
        "--sheet",
        sheet.to_str().unwrap(),
        "--samples",
        "2",
    ]);

    assert!(
        stdout(&output).contains("wrote 2 samples"),
        "{}",
        stderr(&output)
    );
    // Roads are (128, 64, 128) in the palette: blended, green stays below red and blue.
    let (_, _, data) = pixels(&sheet);
    let purple = data
        .chunks_exact(3)
        .filter(|p| p[0] > p[1] + 16 && p[2] > p[1] + 16)
        .count();
    assert!(
        purple * 20 > data.len() / 3,
        "{purple} purple pixels of {}",
        data.len() / 3
    );
}

#[test]
fn a_sheet_outlines_the_boxes_of_its_samples() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (images, labels) = (root.join("images"), root.join("labels"));
    fs::create_dir_all(&images).unwrap();
    fs::create_dir_all(&labels).unwrap();
    let photos = photos(root, 1);
    let photo = walk(Path::new(&photos)).remove(0);
    fs::copy(photo, images.join("a.jpg")).unwrap();
    let pipeline = root.join("pipeline.toml");
    fs::write(
        &pipeline,
        format!(
            "[source]\nkind = \"yolo\"\nimages = {images:?}\n[decode]\n\
             [[transforms]]\nkind = \"Resize\"\nsize = [40, 50]\n"
        ),
    )
    .unwrap();
    let shown = |text: &str| {
        fs::write(labels.join("a.txt"), text).unwrap();
        let sheet = root.join("sheet.png");
        let sheet = sheet.to_str().unwrap();
        let output = infeed(["inspect", pipeline.to_str().unwrap(), "--sheet", sheet]);
        assert!(output.status.success(), "{}", stderr(&output));
        pixels(Path::new(sheet))
    };

    let far = shown("0 3 3 0.1 0.1\n");
    let near = shown("0 0.5 0.5 0.4 0.5\n");

    assert_eq!((far.0, far.1), (near.0, near.1));
    let pairs = far.2.chunks_exact(3).zip(near.2.chunks_exact(3));
    let changed: Vec<&[u8]> = pairs.filter(|(a, b)| a != b).map(|(_, b)| b).collect();
    // 20 by 20 pixels: a line of two pixels has 144, of which a few may have the colour already.
    assert!((120..=144).contains(&changed.len()), "{}", changed.len());
    assert!(changed.iter().all(|pixel| *pixel == changed[0]));
}

#[test]
fn boxes_that_lie_mostly_outside_their_image_are_counted_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (images, labels) = (root.join("images"), root.join("labels"));
    fs::create_dir_all(&images).unwrap();
    fs::create_dir_all(&labels).unwrap();
    let photo = walk(Path::new(&photos(root, 1))).remove(0);
    for (name, text) in [
        ("a", "0 0.5 0.5 0.4 0.5\n0 0.95 0.5 0.2 0.2\n"),
        ("b", "0 1.2 0.5 0.5 0.5\n0 3 3 0.1 0.1\n"),
    ] {
        fs::copy(&photo, images.join(name).with_extension("jpg")).unwrap();
        fs::write(labels.join(name).with_extension("txt"), text).unwrap();
    }
    let pipeline = root.join("pipeline.toml");
    let text = format!("[source]\nkind = \"yolo\"\nimages = {images:?}\n");
    fs::write(&pipeline, text).unwrap();
    let pipeline = pipeline.to_str().unwrap();

    let report = json(&infeed(["inspect", pipeline, "--json"]));
    let text = stdout(&infeed(["inspect", pipeline]));

    assert_eq!(report["records"]["boxes"], 4);
    let outside = report["records"]["boxes_outside"].as_array().unwrap();
    assert_eq!(outside.len(), 1);
    assert_eq!(outside[0]["boxes"], 2);
    assert!(outside[0]["name"].as_str().unwrap().ends_with("b.jpg"));
    let line = "outside     2 of 4 boxes lie mostly outside their image, in 1 records";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_sheet_draws_the_visible_points_of_its_samples() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let photos = photos(root, 1);
    let photo = walk(Path::new(&photos)).remove(0);
    fs::copy(photo, root.join("a.jpg")).unwrap();
    let (pipeline, file) = (root.join("pipeline.toml"), root.join("points.json"));
    fs::write(
        &pipeline,
        format!(
            "[source]\nkind = \"coco\"\nimages = {root:?}\nannotations = {file:?}\nkeypoints = 2\n\
             [decode]\n[[transforms]]\nkind = \"Resize\"\nsize = [40, 50]\n"
        ),
    )
    .unwrap();
    let shown = |points: &str| {
        let text = format!(
            "{{\"images\": [{{\"id\": 1, \"file_name\": \"a.jpg\"}}], \"annotations\": [{{\"id\": 1, \
             \"image_id\": 1, \"category_id\": 1, \"bbox\": [0, 0, 9, 9], \"keypoints\": {points}}}], \
             \"categories\": [{{\"id\": 1, \"name\": \"x\"}}]}}"
        );
        fs::write(&file, text).unwrap();
        let sheet = root.join("sheet.png");
        let sheet = sheet.to_str().unwrap();
        let output = infeed(["inspect", pipeline.to_str().unwrap(), "--sheet", sheet]);
        assert!(output.status.success(), "{}", stderr(&output));
        pixels(Path::new(sheet))
    };

    let none = shown("[0, 0, 0, 30, 30, 0]");
    let one = shown("[0, 0, 0, 30, 30, 2]");

    let pairs = none.2.chunks_exact(3).zip(one.2.chunks_exact(3));
    let changed: Vec<&[u8]> = pairs.filter(|(a, b)| a != b).map(|(_, b)| b).collect();
    assert!((5..=9).contains(&changed.len()), "{}", changed.len());
    assert!(changed.iter().all(|pixel| *pixel == changed[0]));
}

#[test]
fn a_sheet_tints_the_objects_of_its_samples() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let photos = photos(root, 1);
    let photo = walk(Path::new(&photos)).remove(0);
    fs::copy(photo, root.join("a.jpg")).unwrap();
    let (pipeline, file) = (root.join("pipeline.toml"), root.join("masks.json"));
    fs::write(
        &pipeline,
        format!(
            "[source]\nkind = \"coco\"\nimages = {root:?}\nannotations = {file:?}\nmasks = true\n\
             [decode]\n[[transforms]]\nkind = \"Resize\"\nsize = [40, 50]\n"
        ),
    )
    .unwrap();
    let shown = |outline: &str| {
        let text = format!(
            "{{\"images\": [{{\"id\": 1, \"file_name\": \"a.jpg\"}}], \"annotations\": [{{\"id\": 1, \
             \"image_id\": 1, \"category_id\": 1, \"bbox\": [0, 0, 9, 9], \"segmentation\": {outline}}}], \
             \"categories\": [{{\"id\": 1, \"name\": \"x\"}}]}}"
        );
        fs::write(&file, text).unwrap();
        let sheet = root.join("sheet.png");
        let sheet = sheet.to_str().unwrap();
        let output = infeed(["inspect", pipeline.to_str().unwrap(), "--sheet", sheet]);
        assert!(output.status.success(), "{}", stderr(&output));
        pixels(Path::new(sheet))
    };

    let none = shown("[[-9, -9, -8, -9, -9, -8]]");
    let all = shown("[[-1, -1, 9999, -1, 9999, 9999, -1, 9999]]");

    let pairs = none.2.chunks_exact(3).zip(all.2.chunks_exact(3));
    let changed: Vec<(&[u8], &[u8])> = pairs.filter(|(a, b)| a != b).collect();
    assert!((1900..=2000).contains(&changed.len()), "{}", changed.len());
    assert!(
        changed
            .iter()
            .all(|(a, b)| b[0] >= 127 && b[1] == a[1] / 2 && b[2] == a[2] / 2)
    );
}

#[test]
fn records_of_shards_are_checked_and_damaged_ones_named() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 20);
    let mut images: Vec<_> = walk(Path::new(&photos));
    images.sort();
    let mut tar = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let mut content = fs::read(image).unwrap();
        if number == 1 {
            content.truncate(content.len() / 2);
        }
        member(&mut tar, &format!("{number}.jpg"), &content);
        // The first 16 records decide the fields.
        if number != 18 {
            member(&mut tar, &format!("{number}.cls"), b"7");
        }
    }
    tar.resize(tar.len() + 1024, 0);
    fs::write(dir.path().join("train-0.tar"), tar).unwrap();
    let pattern = dir.path().join("train-{0..0}.tar");

    let report = json(&infeed(["inspect", pattern.to_str().unwrap(), "--json"]));

    assert_eq!(report["records"]["count"], 20);
    assert_eq!(report["records"]["fields"][0]["name"], "image");
    let damaged = report["records"]["damaged"].as_array().unwrap();
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    let damaged = damaged[0].as_object().unwrap();
    let names = |value: &serde_json::Value| value.to_string().contains("record 18 of");
    assert_eq!(damaged.values().filter(|value| names(value)).count(), 1);
    let damaged = damaged["reason"].as_str().unwrap();
    assert!(!damaged.contains("record 18 of"), "named twice: {damaged}");
    assert!(damaged.contains("`cls`"), "{damaged}");
    let bad = report["images"]["bad"].as_array().unwrap();
    assert_eq!(bad.len(), 1);
    assert!(bad[0]["path"].as_str().unwrap().contains("record 1 of"));
    assert_eq!(report["classes"][0]["count"], 19);
    let text = stdout(&infeed(["inspect", pattern.to_str().unwrap()]));
    assert!(
        text.contains("records     20") && text.contains("damaged     1"),
        "{text}"
    );
}

#[test]
fn a_shard_that_does_not_open_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tfrecord");
    fs::write(&path, "this is no such file").unwrap();

    let output = infeed(["inspect", path.to_str().unwrap()]);

    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("a.tfrecord") && text.contains("not a TFRecord file"),
        "{text}"
    );
}

#[test]
fn an_index_is_cached_rebuilt_when_damaged_and_optional() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Vec::new();
    for number in 0..30 {
        member(&mut tar, &format!("{number}.bin"), &vec![number; 50_000]);
    }
    member(&mut tar, "README", b"text");
    tar.resize(tar.len() + 1024, 0);
    let shard = dir.path().join("a.tar");
    fs::write(&shard, tar).unwrap();
    let cache = dir.path().join("cache");
    let count = || {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_infeed"))
            .args(["inspect", "--json"])
            .arg(&shard)
            .env("XDG_CACHE_HOME", &cache)
            .output()
            .unwrap();
        let report = json(&output);
        assert!(
            report["left_out"].to_string().contains("README"),
            "{report}"
        );
        report["records"]["count"].as_u64()
    };

    assert_eq!(count(), Some(30));
    let kept = walk(&cache);
    assert_eq!(kept.len(), 1, "{kept:?}");
    let whole = fs::read(&kept[0]).unwrap();
    assert_eq!(count(), Some(30), "as it was kept");
    fs::write(&kept[0], &whole[..whole.len() - 9]).unwrap();
    assert_eq!(count(), Some(30));
    assert_eq!(fs::read(&kept[0]).unwrap(), whole, "it was made again");
    fs::remove_dir_all(&cache).unwrap();
    fs::write(&cache, "no folder").unwrap();
    assert_eq!(count(), Some(30));
}

/// Returns the files below a folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let below = |path: std::path::PathBuf| match path.is_dir() {
        true => walk(&path),
        false => vec![path],
    };
    entries.flat_map(below).collect()
}

/// Adds a file to a tar.
fn member(tar: &mut Vec<u8>, name: &str, content: &[u8]) {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    tar.extend(header);
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

#[test]
fn only_the_records_that_a_pipeline_selects_are_read_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), 12);
    let mut entries = fs::read_dir(&photos).unwrap().map(Result::unwrap);
    let class = entries.find(|entry| entry.path().is_dir()).unwrap();
    let class = class.file_name().into_string().unwrap();
    let file = dir.path().join("selected.toml");
    let text = format!(
        "take = 3\nrepeat = 2\n\n[source]\nkind = \"folder\"\npath = \"{photos}\"\n\n\
         [[filter]]\nlabel = \"{class}\"\n\n[batch]\nsize = 2\n"
    );
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();

    let report = json(&infeed(["inspect", file, "--json"]));
    let text = stdout(&infeed(["inspect", file]));

    assert_eq!(
        (&report["records"]["count"], &report["records"]["of"]),
        (&3.into(), &12.into())
    );
    assert_eq!(report["images"]["files"], 3);
    assert_eq!(report["classes"][0]["name"], class.as_str());
    assert_eq!(report["classes"][0]["count"], 3);
    for line in [
        "records     3 of 12",
        &format!("filter     label {class}"),
        "take       the first 3",
        "epoch       6 positions",
        "repeat     2 passes",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
}

#[test]
fn images_of_which_a_part_is_left_out_are_counted_by_that_part() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("photos");
    fs::create_dir(&folder).unwrap();
    let mut file = fs::File::create(folder.join("a.png")).unwrap();
    let mut encoder = png::Encoder::new(&mut file, 4, 4);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_animated(2, 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    for shade in [0, 255] {
        writer.write_image_data(&[shade; 48]).unwrap();
    }
    writer.finish().unwrap();

    let shown = stdout(&infeed(["inspect", folder.to_str().unwrap()]));

    assert!(
        shown.contains("PNG RGB, frames after the first left out 1"),
        "{shown}"
    );
}
