//! Later processes resume or repeat the work of a killed process.

use infeed_pack::Target;

use super::*;
use crate::data;

#[test]
fn a_run_killed_after_any_shard_is_resumed_by_one_or_many_processes() {
    let root = data::photos(30);
    let photos = photos(root.path());
    let options = options(Target::WebDataset);
    let expected = expected_files(&photos, &options);
    let shards = expected
        .keys()
        .filter(|name| name.ends_with(".tar"))
        .count();
    assert!(shards > 5, "{shards}");
    for site in Site::both("parts-killed") {
        for lives in 0..shards {
            let first = write(&photos, &site.out(), &options, lives).expect("writes");
            if lives % 2 == 0 {
                let second = write(&photos, &site.out(), &options, usize::MAX).expect("goes on");
                assert_eq!(first.len() + second.len(), shards);
                assert!(second.iter().all(|number| !first.contains(number)));
            }

            let packed = pack_into(&photos, &site.out(), &options).expect("finishes");

            assert_eq!(packed.records, 30);
            assert!(
                site.files() == expected,
                "{lives} in {}",
                site.out().display()
            );
            site.clear();
        }
    }
}

#[test]
fn a_shard_with_an_incomplete_journal_entry_is_written_again() {
    let root = data::photos(30);
    let photos = photos(root.path());
    let options = options(Target::TfRecord);
    let expected = expected_files(&photos, &options);
    type Damage = fn(&Site, &Files);
    let damages: [(&str, Damage); 7] = [
        ("the note is not there", |site, _| {
            site.remove("shard-000001.noted")
        }),
        ("the note was cut", |site, files| {
            let note = &files["shard-000001.noted"];
            site.put("shard-000001.noted", &note[..note.len() - 9]);
        }),
        ("the note is another's", |site, files| {
            site.put("shard-000001.noted", &files["shard-000002.noted"]);
        }),
        ("the note is empty", |site, _| {
            site.put("shard-000001.noted", b"")
        }),
        ("the shard is not there", |site, _| {
            site.remove("shard-000001.tfrecord")
        }),
        ("the index is alone", |site, _| {
            site.remove("shard-000001.tfrecord");
            site.remove("shard-000001.noted");
        }),
        ("nothing is there", |site, _| {
            site.remove("shard-000001.tfrecord");
            site.remove("shard-000001.noted");
            site.remove("shard-000001.idx");
        }),
    ];
    for site in Site::both("parts-damaged") {
        for (what, damage) in damages {
            let name = format!("{what} in {}", site.out().display());
            write(&photos, &site.out(), &options, usize::MAX).expect("writes");
            damage(&site, &site.files());

            let begun = Parts::begin(&photos, &site.out(), &options).expect("begins");
            let known = there(&begun);
            drop(begun);
            let again = write(&photos, &site.out(), &options, usize::MAX).expect("goes on");

            assert!(
                !known.contains(&1) && known.contains(&0),
                "{name}: {known:?}"
            );
            assert_eq!(again, [1], "{name}");
            pack_into(&photos, &site.out(), &options).expect("finishes");
            assert!(site.files() == expected, "{name}");
            site.clear();
        }
    }
}

#[test]
fn temporary_files_of_killed_writers_are_removed_at_the_end() {
    let root = data::photos(30);
    let photos = photos(root.path());
    let options = options(Target::WebDataset);
    let expected = expected_files(&photos, &options);
    let site = Site::folder();
    write(&photos, &site.out(), &options, 3).expect("writes");
    for left in [
        ".shard-000001.tar.0123456789abcdef.part",
        ".shard-000002.idx.0123456789abcdef.part",
        ".shard-000002.noted.0123456789abcdef.part",
        "shard-000077.tar",
        "shard-000077.noted",
    ] {
        site.put(left, b"half");
    }

    pack_into(&photos, &site.out(), &options).expect("finishes");

    assert!(site.files() == expected);
}

#[test]
fn missing_shards_of_a_complete_dataset_are_written_again() {
    let root = data::photos(30);
    let photos = photos(root.path());
    std::fs::write(data::photo(root.path(), 3), b"no image").expect("writes");
    let options = options(Target::WebDataset);
    let expected = expected_files(&photos, &options);
    for site in Site::both("parts-lost") {
        pack_into(&photos, &site.out(), &options).expect("packs");
        assert!(site.files() == expected);
        site.remove("shard-000002.tar");
        site.remove("shard-000004.tar");

        let again = pack_into(&photos, &site.out(), &options).expect("packs");

        assert!((1..30).contains(&again.reused), "{}", again.reused);
        assert!(site.files() == expected);
        let none = pack_into(&photos, &site.out(), &options).expect("nothing to do");
        assert_eq!(none.reused, 29);
        assert!(site.files() == expected);
    }
}
