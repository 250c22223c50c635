//! The journal of a packer of any content, each line under a checksum that is right: packing goes on
//! and gives the files of an undisturbed run, or an error.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use infeed::Pipeline;
use infeed::pipeline::{MemoryField, SourceSpec};
use infeed_core::sample::DType;
use infeed_fuzz::shards::{crc32c, file};
use infeed_pack::{PackOptions, Target, pack};
use libfuzzer_sys::fuzz_target;

const JOURNAL: &str = "infeed-pack.journal";
type Files = BTreeMap<String, Vec<u8>>;

/// Packs eight numbers into shards of a few bytes.
fn pack_numbers(out: &Path) -> bool {
    let mut field = MemoryField::array("number", "tensor", DType::UInt8, vec![], 0);
    field.handle = None;
    field.path = Some(file("numbers", &[0, 1, 2, 3, 4, 5, 6, 7]));
    field.records = Some(8);
    let pipeline = Pipeline::new(SourceSpec::Memory {
        fields: vec![field],
    });
    let mut options = PackOptions::new(Target::WebDataset);
    options.shard_bytes = 1024;
    options.workers = Some(1);
    pack(&pipeline, &[], None, out, &options, &|_| true).is_ok()
}

fn files(folder: &Path) -> Files {
    let entries = folder.read_dir().expect("a folder").flatten();
    let file = |path: PathBuf| {
        let name = path.file_name().expect("a name").display().to_string();
        Some((name, fs::read(&path).ok()?))
    };
    entries.filter_map(|entry| file(entry.path())).collect()
}

/// The files of an undisturbed run, and of one that was ended before its manifest was written.
fn expected_files() -> &'static (Files, Files) {
    static KNOWN: OnceLock<(Files, Files)> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let out = file("numbers", b"").with_file_name("whole");
        assert!(pack_numbers(&out), "an undisturbed run");
        let whole = files(&out);
        let mut begun = whole.clone();
        let manifest = begun.remove("infeed-pack.json").expect("a manifest");
        begun.insert("infeed-pack.begun".to_owned(), manifest);
        (whole, begun)
    })
}

fuzz_target!(|bytes: &[u8]| {
    let (whole, begun) = expected_files();
    let out = file("numbers", b"").with_file_name("out");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).expect("a temporary folder");
    for (name, content) in begun {
        fs::write(out.join(name), content).expect("a temporary file");
    }
    let lines = bytes.split(|&byte| byte == b'\n').flat_map(|line| {
        let mut whole = format!("{:08x} ", crc32c(line)).into_bytes();
        whole.extend(line);
        whole.push(b'\n');
        whole
    });
    fs::write(out.join(JOURNAL), lines.collect::<Vec<_>>()).expect("a temporary file");
    if pack_numbers(&out) {
        for (name, content) in files(&out) {
            if name.ends_with(".tar") {
                assert_eq!(whole.get(&name), Some(&content), "{name} differs");
            }
        }
    }
});
