//! Tests of the steps: weigh, shard, join, finish.

use infeed_pack::{Parts, Target};

use super::*;
use crate::data;

#[test]
fn several_processes_write_the_bytes_of_one() {
    let root = data::photos(30);
    let photos = photos(root.path());
    let sites = Site::both("parts-of-many");
    for to in FORMATS {
        let options = options(to);
        let expected = expected_files(&photos, &options);
        for site in &sites {
            let name = format!("{} in {}", to.name(), site.out().display());
            let written = write(&photos, &site.out(), &options, usize::MAX).expect("writes");
            assert!(written.len() > 2, "{name}: {written:?}");
            let noted = site.files();
            assert!(noted.contains_key("shard-000001.noted"), "{name}");
            assert!(!noted.contains_key("infeed-pack.json"), "{name}");

            let packed = pack_into(&photos, &site.out(), &options).expect("finishes");

            assert_eq!((packed.records, packed.reused), (30, 30), "{name}");
            assert!(site.files() == expected, "{name}");
            site.clear();
        }
    }
}

#[test]
fn weights_do_not_depend_on_the_split_and_set_the_ends_of_shards() {
    let root = data::photos(20);
    let photos = photos(root.path());
    std::fs::write(data::photo(root.path(), 7), b"no image").expect("writes");
    let options = options(Target::WebDataset);
    for site in Site::both("parts-weighed") {
        let parts = Parts::begin(&photos, &site.out(), &options).expect("begins");

        let whole = parts.weigh(0..20).expect("weighs");

        assert_eq!(whole[13], None, "the fourth dog, behind ten cats");
        assert_eq!(whole.iter().flatten().count(), 19);
        for run in [0..1, 3..9, 19..20] {
            let some = parts.weigh(run.clone()).expect("weighs");
            assert_eq!(some, whole[run.start as usize..run.end as usize]);
        }
        let ends = parts.ends(&whole);
        assert!(ends.is_sorted() && ends.len() > 3, "{ends:?}");
        assert!(ends.iter().all(|&end| 0 < end && end < 20));
        for wrong in [5..5, 15..21] {
            let error = parts.weigh(wrong).expect_err("rejected").to_string();
            assert!(error.contains("exceed the"), "{error}");
        }
        let error = parts.shard(0, 0..ends[1]).expect_err("two shards");
        assert!(error.to_string().contains("changed since"), "{error}");
        let files = site.files();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["infeed-pack.begun"]);
    }
}

#[test]
fn a_joining_process_needs_the_same_options() {
    let root = data::photos(6);
    let photos = photos(root.path());
    let options = options(Target::TfRecord);
    for site in Site::both("parts-joined") {
        let out = site.out();
        let problem = |options: &PackOptions| {
            let error = Parts::join(&photos, &out, options).expect_err("rejected");
            error.to_string()
        };
        assert!(problem(&options).contains("no process is packing into"));
        drop(Parts::begin(&photos, &out, &options).expect("begins"));

        Parts::join(&photos, &out, &options).expect("the same");

        let mut other = options.clone();
        other.shard_bytes += 1;
        assert!(problem(&other).contains("shard_bytes: 6000 there"));
        let begun = Parts::begin(&photos, &out, &other).expect_err("another");
        assert!(begun.to_string().contains("packed differently"), "{begun}");
        let to = PackOptions::new(Target::Folder);
        assert!(problem(&to).contains("cannot be written by several processes"));
    }
}

#[test]
fn bad_records_are_listed_in_order_for_any_number_of_processes() {
    let root = data::photos(30);
    let photos = photos(root.path());
    for n in [0, 11, 12, 29] {
        std::fs::write(data::photo(root.path(), n), b"no image").expect("writes");
    }
    let options = options(Target::WebDataset);
    let expected = expected_files(&photos, &options);
    assert!(expected.contains_key("infeed-pack-bad.jsonl"));
    for site in Site::both("parts-bad") {
        write(&photos, &site.out(), &options, usize::MAX).expect("writes");

        let packed = pack_into(&photos, &site.out(), &options).expect("finishes");

        assert_eq!((packed.records, packed.bad), (26, 4));
        assert!(site.files() == expected);
    }
}
