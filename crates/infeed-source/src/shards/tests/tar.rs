//! Tar shards: the fields of members, and rejected archives.

use bytes::Bytes;
use tar::{Builder, EntryType, Header};

use super::{admits_what_values_take, check_damaged_shards, open, records};
use crate::Source as _;
use crate::formats::tar::Tar;
use crate::shards::values::{FieldRequest, KindHint};
use infeed_core::sample::{DType, Field, FieldKind, Pixels};

pub(super) fn header(size: u64, kind: EntryType) -> Header {
    let mut header = Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_entry_type(kind);
    header
}

pub(super) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, *content)
            .expect("writes to memory");
    }
    builder.into_inner().expect("writes to memory")
}

/// An archive of one file with a custom header.
fn by_hand(name: &[u8], change: impl Fn(&mut [u8; 512])) -> Vec<u8> {
    let mut block = *header(3, EntryType::Regular).as_bytes();
    block[..name.len()].copy_from_slice(name);
    change(&mut block);
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = block.to_vec();
    bytes.extend(b"123");
    bytes.resize(512 * 4, 0);
    bytes
}

pub(super) fn request(name: &str, from: Option<&str>, hint: KindHint) -> FieldRequest {
    FieldRequest {
        name: name.to_owned(),
        from: from.map(str::to_owned),
        hint,
    }
}

pub(super) fn bytes(fields: &[&[u8]]) -> Vec<Bytes> {
    fields
        .iter()
        .map(|field| Bytes::copy_from_slice(field))
        .collect()
}

const LABEL: FieldKind = FieldKind::Tensor {
    dtype: DType::Int64,
    shape: Vec::new(),
};

#[test]
fn consecutive_files_of_one_stem_are_a_record_and_extensions_its_fields() {
    let shards = open(
        Tar::new(&[]),
        archive(&[
            ("a/0001.jpg", b"first"),
            ("a/0001.cls", b"7"),
            ("a/0001.seg.png", b"mask"),
            ("a/0001.json", b"{}"),
            ("__info__/a.txt", b"not data"),
            ("README", b"not data"),
            (".hidden.jpg", b"not data"),
            ("b/0001.JPEG", b"second"),
            ("b/0001.seg.png", b""),
            ("b/0001.json", b"[]"),
            ("b/0001.cls", b" -1\n"),
        ]),
    )
    .expect("a shard");

    let field = |name: &str, kind| Field {
        name: name.to_owned(),
        kind,
    };
    assert_eq!(
        shards.fields(),
        [
            field("image", FieldKind::Image(Pixels::Encoded)),
            field("label", LABEL),
            field("mask", FieldKind::Mask(Pixels::Encoded)),
            field("json", FieldKind::Text),
        ]
    );
    let (first, second) = (7_i64.to_le_bytes(), (-1_i64).to_le_bytes());
    assert_eq!(
        records(&shards),
        [
            Ok(bytes(&[b"first", &first, b"mask", b"{}"])),
            Ok(bytes(&[b"second", &second, b"", b"[]"])),
        ]
    );
}

#[test]
fn fields_are_taken_from_the_first_extension_that_a_record_has() {
    let shard = archive(&[
        ("0.png", b"zero"),
        ("0.vec", b"1, 2.5"),
        ("0.vec.txt", b"1, 2.5"),
        ("1.jpg", b"one"),
        ("1.vec.txt", b"3 4"),
    ]);
    let vector = FieldKind::Tensor {
        dtype: DType::Float32,
        shape: vec![2],
    };
    let shards = open(
        Tar::new(&[
            request("picture", Some("jpg;png"), KindHint::Nothing),
            request("vector", Some("vec.txt"), KindHint::Kind(vector)),
            request("name", Some("__key__"), KindHint::Nothing),
        ]),
        shard,
    )
    .expect("a shard");

    let pair = |a: f32, b: f32| [a.to_le_bytes(), b.to_le_bytes()].concat();
    assert_eq!(
        records(&shards),
        [
            Ok(bytes(&[b"zero", &pair(1.0, 2.5), b"0"])),
            Ok(bytes(&[b"one", &pair(3.0, 4.0), b"1"])),
        ]
    );
}

#[test]
fn arrays_have_the_type_and_shape_of_the_first_or_are_damaged() {
    let npy = |shape: &str, elements: &[u8]| {
        let header = format!("{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}}}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(elements);
        file
    };
    let shards = open(
        Tar::new(&[]),
        archive(&[
            ("0.npy", &npy("(2,)", b"\x01\0\x02\0")),
            ("1.npy", &npy("(1,)", b"\x01\0")),
        ]),
    )
    .expect("a shard");

    let found = records(&shards);

    let kind = FieldKind::Tensor {
        dtype: DType::UInt16,
        shape: vec![2],
    };
    assert_eq!(shards.fields()[0].kind, kind);
    assert_eq!(found[0], Ok(bytes(&[b"\x01\0\x02\0"])));
    let error = found[1].as_ref().expect_err("another shape");
    assert!(
        error.contains("uint16 [1]") && error.contains("uint16 [2]"),
        "{error}"
    );
}

#[test]
fn a_record_without_a_field_is_damaged_and_lists_its_files() {
    let fields = ["image", "label"].map(|name| request(name, None, KindHint::Nothing));
    let shards = open(
        Tar::new(&fields),
        archive(&[
            ("0.jpg", b"zero"),
            ("0.cls", b"1"),
            ("1.cls", b"1"),
            ("2.jpg", b"two"),
            ("2.cls", b"x"),
        ]),
    )
    .expect("a shard");

    let found = records(&shards);

    assert!(found[0].is_ok());
    for (number, words) in [
        (1, ["`1`", "jpg", "`cls`", "record 1 of shard at byte 2048"]),
        (
            2,
            ["`2`", "`x` is not a number", "`label`", "record 2 of shard"],
        ),
    ] {
        let error = found[number].as_ref().expect_err("damaged");
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn long_names_and_large_numbers_are_read_in_each_encoding() {
    let folder = "d".repeat(90);
    let long = format!("{folder}/{folder}/{folder}/0.jpg");
    let gnu = archive(&[(&long, b"gnu")]);
    let mut builder = Builder::new(Vec::new());
    builder
        .append_pax_extensions([("path", long.as_bytes()), ("size", b"3"), ("mtime", b"1.5")])
        .expect("writes to memory");
    let mut short = header(3, EntryType::Regular);
    short.set_path("short.jpg").expect("a name");
    short.set_cksum();
    builder
        .append(&short, &b"pax"[..])
        .expect("writes to memory");
    let pax = builder.into_inner().expect("writes to memory");
    let prefix = by_hand(b"0.jpg", |block| block[345..349].copy_from_slice(b"some"));
    let binary = by_hand(b"some/0.jpg", |block| {
        block[124..136].copy_from_slice(b"\x80\0\0\0\0\0\0\0\0\0\0\x03");
    });

    for (shard, key, content) in [
        (gnu, &long[..], &b"gnu"[..]),
        (pax, &long, b"pax"),
        (prefix, "some/0.jpg", b"123"),
        (binary, "some/0.jpg", b"123"),
    ] {
        let fields = [
            request("image", None, KindHint::Nothing),
            request("key", Some("__key__"), KindHint::Nothing),
        ];
        let shards = open(Tar::new(&fields), shard).expect("a shard");
        let key = key.trim_end_matches(".jpg").as_bytes();
        assert_eq!(records(&shards), [Ok(bytes(&[content, key]))]);
    }
}

#[test]
fn hostile_archives_are_rejected_with_the_reason() {
    let sized = |size: &[u8; 12]| {
        let size = *size;
        by_hand(b"0.jpg", move |block| {
            block[124..136].copy_from_slice(&size)
        })
    };
    let typed = |typeflag: u8| by_hand(b"0.jpg", move |block| block[156] = typeflag);
    let mut pax = Builder::new(Vec::new());
    pax.append_pax_extensions([("GNU.sparse.major", &b"1"[..])])
        .expect("writes to memory");
    for (shard, reason) in [
        (by_hand(b"../../0.jpg", |_| {}), "leads out"),
        (by_hand(b"/etc/0.jpg", |_| {}), "leads out"),
        (by_hand(b"a\\..\\0.jpg", |_| {}), "leads out"),
        (by_hand(b"C:/0.jpg", |_| {}), "leads out"),
        (sized(b"77777777777\0"), "past the end"),
        (
            sized(b"\x80\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
            "past the end",
        ),
        (
            sized(b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
            "not a number",
        ),
        (sized(b"0000000008 \0"), "not a number"),
        (typed(b'S'), "sparse"),
        (typed(b'M'), "volume"),
        (typed(b'x'), "extended header"),
        (pax.into_inner().expect("writes"), "sparse"),
        (b"\x1F\x8B\x08\0".to_vec(), "gzip"),
        (b"no tar at all".to_vec(), "end mark"),
        (vec![0; 1024], "no records"),
        (Vec::new(), "the file is empty"),
    ] {
        let error = open(Tar::new(&[]), shard).expect_err(reason).chain();
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[test]
fn an_archive_without_its_end_mark_is_cut() {
    let whole = archive(&[("0.jpg", b"zero"), ("1.jpg", b"one")]);

    let error = open(Tar::new(&[]), whole[..2048].to_vec())
        .expect_err("cut")
        .chain();

    assert!(
        error.contains("at byte 2048") && error.contains("truncated"),
        "{error}"
    );
}

#[test]
fn cuts_and_flips_are_errors_with_the_shard_or_change_only_content() {
    cut_and_flip(5);
}

#[test]
#[ignore = "long"]
fn cuts_and_flips_at_any_byte_are_errors_with_the_shard_or_change_only_content() {
    cut_and_flip(1);
}

/// Cuts an archive and flips its bits: at each byte, or at one in `every`.
fn cut_and_flip(every: usize) {
    let files: [(&str, &[u8]); 3] = [("0.bin", b"zero"), ("1.bin", b"one"), ("1.cls", b"5")];
    let whole = archive(&files);
    let fields = [request("bin", None, KindHint::Nothing)];
    // A tar has checksums for its headers, but not for its content.
    check_damaged_shards(
        &whole,
        || Tar::new(&fields),
        |_, fields| fields[0].len() <= 4,
        every,
    );
}

#[test]
fn an_index_next_to_the_shard_is_used_if_it_matches() {
    use super::Shard;
    use crate::shards::ShardFormat as _;
    use crate::shards::index::ShardIndex;
    use crate::shards::text_index::{IndexedMember, of_tar};

    let shard = Shard(
        archive(&[
            ("0.jpg", b"zero"),
            ("0.cls", b"1"),
            ("README", b"x"),
            ("1.jpg", b"one"),
        ])
        .into(),
    );
    let member = |name, offset, size| IndexedMember {
        extension: "x",
        offset,
        size,
        name,
    };
    let own = of_tar(&[
        vec![member("0.jpg", 512, 4), member("0.cls", 1536, 1)],
        vec![member("1.jpg", 3584, 3)],
    ]);
    let other = of_tar(&[
        vec![member("0.jpg", 512, 4)],
        vec![member("1.jpg", 3584, 3)],
    ]);
    let short = of_tar(&[vec![member("0.jpg", 512, 4), member("0.cls", 1536, 1)]]);
    let format = Tar::new(&[]);

    let found = format.text_index(&own, &shard).expect("its own");
    // The bytes between records may belong to either.
    assert_eq!(found.index, ShardIndex::Plain(vec![0, 2048, 4096]));
    let scanned = format.index(0, &shard).expect("a shard");
    assert_eq!(found.notes, scanned.notes, "the same members are left out");
    assert_eq!(
        format.text_index(&short, &shard),
        None,
        "a record comes after"
    );
    assert_eq!(format.text_index("v1.2 0\n", &shard), None);
    assert_eq!(
        format.text_index(&of_tar(&[vec![member("0.jpg", 9, 4)]]), &shard),
        None
    );
    // Here the last record has the files of two.
    assert_eq!(format.text_index(&other, &shard), None);
    for changed in [
        of_tar(&[
            vec![member("0.jpg", 512, 4)],
            vec![member("0.cls", 1536, 1)],
            vec![member("1.jpg", 3584, 3)],
        ]),
        own.replace("1536 1", "1536 999"),
        own.replace("1536 1", "1024 1"),
        own.replace("3584 3", "4096 3"),
    ] {
        assert_eq!(format.text_index(&changed, &shard), None, "{changed}");
    }
}

#[test]
fn an_index_with_a_line_or_member_cut_is_rebuilt() {
    use super::Shard;
    use crate::shards::ShardFormat as _;
    use crate::shards::text_index::{IndexedMember, of_tar};

    let names: Vec<String> = (0..5)
        .flat_map(|n| [format!("{n}.jpg"), format!("{n}.cls")])
        .collect();
    let entries: Vec<(&str, &[u8])> = names.iter().map(|name| (&name[..], &b"1"[..])).collect();
    let shard = Shard(archive(&entries).into());
    let member = |at: usize| IndexedMember {
        extension: "x",
        offset: at as u64 * 1024 + 512,
        size: 1,
        name: &names[at],
    };
    let records: Vec<Vec<IndexedMember<'_>>> = (0..5)
        .map(|n| vec![member(2 * n), member(2 * n + 1)])
        .collect();
    let format = Tar::new(&[]);
    assert!(format.text_index(&of_tar(&records), &shard).is_some());

    for cut in 0..5 {
        // The count in the first line matches the lines that are left.
        let mut lines = records.clone();
        lines.remove(cut);
        assert_eq!(
            format.text_index(&of_tar(&lines), &shard),
            None,
            "line {cut}"
        );
        for part in 0..2 {
            let mut members = records.clone();
            members[cut].remove(part);
            assert_eq!(
                format.text_index(&of_tar(&members), &shard),
                None,
                "{cut}, {part}"
            );
        }
    }
}

#[test]
fn decimal_numbers_that_grow_when_parsed_are_admitted() {
    let list = |count: usize| "7 ".repeat(count);
    let lists = [list(900), list(1), list(0), list(77)];
    let names = ["a.cls", "b.cls", "c.cls", "d.cls"];
    let files: Vec<(&str, &[u8])> = names
        .into_iter()
        .zip(lists.iter().map(|list| list.as_bytes()))
        .collect();
    let kind = FieldKind::Ragged {
        dtype: DType::Int64,
    };
    let fields = [request("tokens", Some("cls"), KindHint::Kind(kind))];

    let shards = open(Tar::new(&fields), archive(&files)).expect("a shard");

    admits_what_values_take(&shards);
}
