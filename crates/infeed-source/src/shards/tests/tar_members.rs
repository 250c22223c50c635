//! Tar shards: members that no record has, and archives whose names or order hide records.

use std::sync::Arc;

use tar::{Builder, EntryType};

use super::super::Shards;
use super::tar::{archive, bytes, header, request};
use super::{Shard, open, records};
use crate::Source as _;
use crate::formats::tar::Tar;
use crate::shards::values::{FieldRequest, KindHint};
use crate::store::Blob;

/// Opens an archive of these files, and returns the error.
fn open_error(fields: &[FieldRequest], files: &[(&str, &[u8])]) -> String {
    let error = open(Tar::new(fields), archive(files)).expect_err("rejected");
    error.chain()
}

/// Requests `image` and `label` by their extensions.
fn image_and_label() -> [FieldRequest; 2] {
    [("image", "png;jpg"), ("label", "cls")]
        .map(|(name, from)| request(name, Some(from), KindHint::Nothing))
}

#[test]
fn a_file_that_occurs_twice_is_rejected_with_both_bytes() {
    let once: (&str, &[u8]) = ("0.jpg", b"zero");
    for (files, bytes) in [
        (
            &[once, ("0.cls", b"1"), ("0.jpg", b"new")][..],
            "0 and 2048",
        ),
        // As `tar --append` adds a new version.
        (&[once, ("1.jpg", b"one"), ("0.jpg", b"new")], "0 and 2048"),
        (&[once, ("0.JPG", b"new")], "0 and 1024"),
    ] {
        let error = open_error(&[], files);
        assert!(error.contains("occurs twice"), "{error}");
        assert!(error.contains(&format!("bytes {bytes}")), "{error}");
        assert!(error.contains("; unpack the archive"), "{error}");
    }
}

#[test]
fn files_of_a_record_that_are_not_next_to_each_other_are_rejected() {
    let files: [(&str, &[u8]); 4] = [
        ("0.png", b"zero"),
        ("1.png", b"one"),
        ("0.cls", b"0"),
        ("1.cls", b"1"),
    ];
    for fields in [&[][..], &image_and_label()] {
        let error = open_error(fields, &files);

        let expected = "the files of `0` are not next to each other: `0.png` is at byte 0, and \
                        `0.cls` at byte 2048; pack the files again in the order of their names";
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn names_with_a_dot_before_the_extension_are_rejected_with_the_rule() {
    for names in [
        &[
            "a 2.0 (x).png",
            "a 2.0 (x).cls",
            "a 2.1 (x).png",
            "a 2.1 (x).cls",
        ][..],
        &["v1.0.png", "v1.0.cls", "v1.1.png", "v1.1.cls"],
        &["img.png", "img.1.png", "img.2.png"],
        &["Mr. A.png", "Mr. B.png"],
    ] {
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, &b"1"[..])).collect();

        let error = open_error(&[], &files);

        assert!(error.contains("become one record: the extension begins at the first dot"));
        assert!(error.contains("; rename the files"), "{error}");
    }
}

#[test]
fn a_requested_extension_after_further_dots_is_rejected_with_the_rule() {
    for names in [["a 2.0 (x).png", "a 2.1 (x).png"], ["v1.0.png", "v1.1.png"]] {
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, &b"1"[..])).collect();

        let error = open_error(&[request("image", None, KindHint::Nothing)], &files);

        assert!(
            error.contains("field `image`: no file has the extension"),
            "{error}"
        );
        assert!(error.contains("; rename the files"), "{error}");
    }
}

#[test]
fn over_1024_files_of_a_stem_are_rejected_with_the_rule() {
    let names: Vec<String> = (0..1025).map(|n| format!("a.{n}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&name[..], &b""[..])).collect();

    let error = open_error(&[], &files);

    assert!(
        error.contains("over 1024 files have the stem `a`: the extension begins"),
        "{error}"
    );
}

#[test]
fn extensions_with_a_number_are_read_if_they_are_declared() {
    let frames = ["0.jpg", "1.jpg"].map(|from| request(from, None, KindHint::Nothing));
    let files: [(&str, &[u8]); 3] = [("a.0.jpg", b"x"), ("a.1.jpg", b"y"), ("a.2.jpg", b"z")];

    let shards = open(Tar::new(&frames), archive(&files)).expect("a shard");

    assert_eq!(records(&shards), [Ok(bytes(&[b"x", b"y"]))]);
    assert_eq!(shards.left_out(), []);
}

#[test]
fn a_file_with_a_further_dot_next_to_a_requested_one_is_left_out() {
    let files: [(&str, &[u8]); 4] = [
        ("a.png", b"x"),
        ("a.cls", b"1"),
        ("a.2.png", b"y"),
        ("a.2.cls", b"2"),
    ];

    let shards = open(Tar::new(&image_and_label()), archive(&files)).expect("a shard");

    assert_eq!(shards.len(), 1);
    let left_out = shards.left_out()[0].to_string();
    let expected = "shard: 2 files with several dots in the base name are left out: \
                    a.2.cls, a.2.png; the extension begins";
    assert!(left_out.starts_with(expected), "{left_out}");
}

#[test]
fn a_field_that_only_some_records_have_is_rejected_with_both_records() {
    let error = open_error(
        &[],
        &[
            ("a.jpg", b"x"),
            ("a.cls", b"1"),
            ("b.jpg", b"y"),
            ("c.jpg", b"z"),
        ],
    );
    let expected = "only some records have `cls`: record 0 (`a`) has it, record 1 (`b`) has `jpg`; \
                    declare the fields to read with fields=";
    assert!(error.contains(expected), "{error}");

    let error = open_error(&[], &[("a.jpg", b"x"), ("b.jpg", b"y"), ("b.json", b"{}")]);
    let expected = "only some records have `json`: record 1 (`b`) has it, record 0 (`a`) has `jpg`";
    assert!(error.contains(expected), "{error}");

    let error = open_error(&[], &[("a.jpg", b"x"), ("b.jpg", b"y"), ("b.png", b"y")]);
    assert!(
        error.contains("only some records have `png`: record 1"),
        "{error}"
    );
}

#[test]
fn a_field_that_only_some_shards_have_is_rejected_with_two_of_them() {
    let shards = [
        &[("a.jpg", &b"x"[..]), ("a.cls", b"1")][..],
        &[("b.jpg", b"y")],
        &[],
    ];
    let blobs = shards.into_iter().rev().map(|files| {
        let blob: Arc<dyn Blob> = Arc::new(Shard(archive(files).into()));
        blob
    });
    let blobs: Vec<_> = blobs.collect();
    let first_has_no_label = Shards::open(Box::new(Tar::new(&[])), blobs.clone(), true);
    let last_first: Vec<_> = blobs.into_iter().rev().collect();

    let error = Shards::open(Box::new(Tar::new(&[])), last_first, true).expect_err("rejected");

    let expected = "only some shards have `cls`: shard has it, shard has `jpg`; declare the fields";
    assert!(error.chain().contains(expected), "{}", error.chain());
    let left_out = first_has_no_label.expect("shards").left_out()[0].to_string();
    assert!(
        left_out.contains("the first records do not have is left out: a.cls"),
        "{left_out}"
    );
}

#[test]
fn an_image_may_have_another_format_in_each_record() {
    let files: [(&str, &[u8]); 2] = [("a.jpg", b"x"), ("b.png", b"y")];

    let shards = open(Tar::new(&[]), archive(&files)).expect("a shard");

    assert_eq!(shards.fields()[0].name, "image");
    assert_eq!(records(&shards), [Ok(bytes(&[b"x"])), Ok(bytes(&[b"y"]))]);
}

#[test]
fn an_extension_that_no_file_has_is_rejected_with_the_others() {
    let files: [(&str, &[u8]); 2] = [("0.image.jpg", b"x"), ("0.text.txt", b"y")];

    let error = open_error(&[request("image", Some("jpg"), KindHint::Nothing)], &files);

    let expected = "field `image`: no file has the extension `jpg`; the extensions are `image.jpg`, \
                    `text.txt`";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn members_that_no_record_has_are_counted_and_named() {
    let mut files: Vec<(String, &[u8])> = (0..20)
        .map(|n| (format!("{n:02}.jpg"), &b"x"[..]))
        .collect();
    for name in [
        "README",
        "b/LICENSE",
        ".hidden",
        "._a.jpg",
        ".DS_Store",
        "__info__/a.txt",
        "20.jpg",
        "20.json",
    ] {
        files.push((name.to_owned(), b"x"));
    }
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, data)| (&name[..], *data))
        .collect();
    let mut shard = archive(&files);
    shard.extend(b"junk");
    let end = shard.len() - 4;

    let shards = open(Tar::new(&[]), shard).expect("a shard");

    let left_out: Vec<String> = shards.left_out().iter().map(ToString::to_string).collect();
    assert_eq!(
        left_out,
        [
            "shard: 2 files without an extension are left out: README, b/LICENSE".to_owned(),
            "shard: 1 hidden file is left out: .hidden".to_owned(),
            "shard: 1 file below a name such as `__info__` is left out: __info__/a.txt".to_owned(),
            "shard: 1 file with an extension that the first records do not have is left out: \
             20.json; declare the fields to read with fields="
                .to_owned(),
            format!(
                "shard: 1 piece of data after the end mark is left out: 4 bytes from byte {end}"
            ),
        ]
    );
}

#[test]
fn an_archive_after_the_end_mark_is_rejected_with_its_offset() {
    let one = archive(&[("0.jpg", b"zero")]);
    let other = archive(&[("1.jpg", b"one")]);
    for zeros in [0, 512, 10_240, 200 * 512] {
        let joined = [&one[..], &vec![0; zeros], &other].concat();

        let error = open(Tar::new(&[]), joined).expect_err("rejected").chain();

        let begin = one.len() + zeros;
        let expected = format!("at byte {begin}: another archive follows the end mark; unpack");
        assert!(error.contains(&expected), "{error}");
    }
    let padded = [&one[..], &vec![0; 300 * 512]].concat();
    let shards = open(Tar::new(&[]), padded).expect("a shard");
    assert_eq!(shards.left_out(), []);
}

#[test]
fn shards_without_records_list_their_members() {
    let error = open_error(&[], &[("0001", b"x"), ("0002", b"y")]);

    let expected = "no records; shard: 2 files without an extension are left out: 0001, 0002";
    assert!(error.contains(expected), "{error}");
}

/// An archive of a folder, a label, and a link as the image.
fn with_link(kind: EntryType) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    let mut folder = header(0, EntryType::Directory);
    builder
        .append_data(&mut folder, "a.dir/", &b""[..])
        .expect("writes");
    let mut file = header(1, EntryType::Regular);
    builder
        .append_data(&mut file, "a.dir/0.cls", &b"1"[..])
        .expect("writes");
    let mut link = header(0, kind);
    builder
        .append_link(&mut link, "a.dir/0.jpg", "../../x.jpg")
        .expect("writes");
    builder.into_inner().expect("writes")
}

#[test]
fn a_link_as_a_field_is_rejected_with_the_option_of_tar() {
    for (kind, expected) in [
        (
            EntryType::Link,
            "`a.dir/0.jpg` is a hard link, which has no content; pack the files again with \
             --hard-dereference",
        ),
        (
            EntryType::Symlink,
            "`a.dir/0.jpg` is a symbolic link, which has no content; pack the files again with \
             --dereference",
        ),
    ] {
        for fields in [&[][..], &image_and_label()] {
            let error = open(Tar::new(fields), with_link(kind)).expect_err("rejected");
            assert!(error.chain().contains(expected), "{}", error.chain());
        }
    }
}

#[test]
fn a_link_that_is_no_field_is_left_out() {
    let label = [request("label", None, KindHint::Nothing)];

    let shards = open(Tar::new(&label), with_link(EntryType::Link)).expect("a shard");

    assert_eq!(shards.len(), 1);
    let left_out = shards.left_out()[0].to_string();
    assert!(
        left_out.contains("1 hard link is left out: a.dir/0.jpg"),
        "{left_out}"
    );
}
