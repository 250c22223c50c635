//! Rules of the code that a machine can check: the crate graph, the order of modules, names of types,
//! and the length of files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use tidy::imports::imports;

/// Crates that a crate may depend on, in the order of the build. Dev-dependencies are free.
const CRATES: &[(&str, &[&str])] = &[
    ("infeed-raw", &[]),
    ("infeed-resize", &[]),
    ("infeed-core", &["infeed-raw"]),
    (
        "infeed-codec",
        &["infeed-core", "infeed-raw", "infeed-resize"],
    ),
    (
        "infeed-source",
        &["infeed-codec", "infeed-core", "infeed-raw"],
    ),
    (
        "infeed-device",
        &["infeed-codec", "infeed-core", "infeed-raw"],
    ),
    (
        "infeed",
        &[
            "infeed-codec",
            "infeed-core",
            "infeed-device",
            "infeed-raw",
            "infeed-source",
        ],
    ),
    (
        "infeed-feed",
        &["infeed", "infeed-core", "infeed-raw", "infeed-source"],
    ),
    (
        "infeed-pack",
        &[
            "infeed",
            "infeed-codec",
            "infeed-core",
            "infeed-raw",
            "infeed-source",
        ],
    ),
    ("infeed-sample", &["infeed-core", "infeed-raw"]),
    (
        "infeed-explain",
        &[
            "infeed",
            "infeed-codec",
            "infeed-core",
            "infeed-device",
            "infeed-feed",
            "infeed-pack",
            "infeed-raw",
            "infeed-source",
        ],
    ),
];

/// Modules of the engine, lowest first. A module may use lower modules and itself, never a
/// neighbour.
const MODULES: &[&[&str]] = &[
    &["function"],
    &["pipeline"],
    &["fields"],
    &["plan"],
    &["maker"],
    &["loader"],
    &["open"],
];

/// Modules of the explanations, lowest first.
const EXPLAIN_MODULES: &[&[&str]] = &[
    &["model"],
    &["findings"],
    &["case"],
    &["measure"],
    &["device"],
    &["remedies"],
    &["feeders"],
    &["what_if"],
    &["explain"],
    &["watch"],
    &["recording"],
    &["report"],
];

/// Crates whose modules have an order.
const LADDERS: &[(&str, &[&[&str]])] = &[("infeed", MODULES), ("infeed-explain", EXPLAIN_MODULES)];

/// Files with methods of `Pipeline`: those that only read or change the description, and those that
/// check, plan, open or replay it.
const PIPELINE_FILES: &[&str] = &["open.rs", "pipeline/description.rs", "pipeline/mod.rs"];

/// Maximum lines of code in a file, inline tests not counted.
const MAX_LINES: usize = 800;

/// Things of one sort that the code names, such as file formats. A newcomer adds one with few files.
struct Additions {
    /// Table of all, and the line before its entries.
    table: (&'static str, &'static str),
    /// Words that mean something else, too.
    ambiguous: &'static [&'static str],
    /// Folders in which each has a file or folder, next to the tables of all.
    folders: &'static [&'static str],
    /// Other files that name one, with the reason. None of them changes for a new one.
    allowed: &'static [&'static str],
    /// Maximum number of files in the folders that name one of them.
    max_files: usize,
}

/// File formats: a reader, a writer and two tables.
const FILE_FORMATS: Additions = Additions {
    table: (
        "infeed-source/src/formats/mod.rs",
        "macro_rules! file_formats {",
    ),
    // The crate.
    ambiguous: &["arrow"],
    folders: &["infeed-source/src/formats/", "infeed-pack/src/targets/"],
    allowed: &[
        // Public paths of the readers of tables.
        "infeed-source/src/lib.rs",
        // Index files of NVIDIA DALI's tools.
        "infeed-source/src/shards/text_index.rs",
        // Messages.
        "infeed-pack/src/columnar.rs",
        // Examples in a help text.
        "infeed-cli/src/pack.rs",
        // Files for tests.
        "infeed-testkit/src/write.rs",
    ],
    max_files: 4,
};

/// Kinds of devices: an implementation, its module in `lib.rs`, and the table.
const DEVICE_KINDS: Additions = Additions {
    table: ("infeed-device/src/any.rs", "\nkinds! {"),
    ambiguous: &[],
    folders: &["infeed-device/src/"],
    allowed: &[
        // Consumers that use CUDA streams. All other devices are read on the host.
        "infeed-py/src/device.rs",
        "infeed-py/src/fill.rs",
        "infeed-py/src/gpu.rs",
        // Examples in messages and help texts.
        "infeed-py/src/loader.rs",
        "infeed/src/loader/decoders.rs",
        "infeed/src/loader/several.rs",
        "infeed-cli/src/bench.rs",
        "infeed-cli/src/explain/options.rs",
        "infeed-explain/src/watch/evidence.rs",
    ],
    max_files: 3,
};

/// Kinds of data in fields of bytes: the kind's own file or folder, the registry of kinds, and the
/// description.
const FIELD_KINDS: Additions = Additions {
    table: (
        "infeed/src/pipeline/declared_kind.rs",
        "pub enum DeclaredKind {",
    ),
    ambiguous: &[],
    folders: &["infeed/src/fields/kinds/", "infeed/src/pipeline/"],
    allowed: &[],
    max_files: 3,
};

/// Sources of images with boxes: a reader, its module in `lib.rs`, the description, and its paths.
/// Python has a class for each.
const ANNOTATION_SOURCES: Additions = Additions {
    table: ("../python/infeed/sources/boxed.py", "\nclass "),
    ambiguous: &[],
    folders: &["infeed-source/src/", "infeed/src/pipeline/"],
    allowed: &[
        // Code that they share: segments of COCO, masks of objects.
        "infeed-source/src/panoptic.rs",
        "infeed-source/src/labelme.rs",
    ],
    max_files: 4,
};

/// Type names that two crates declare: `Layout`, the order of an image's axes in descriptions and
/// in kernels; `Step`, a result of a loader and an operation of a transform. Do not add names:
/// prefix the newer one with a noun that distinguishes it.
const REPEATED_TYPE_NAMES: &[&str] = &["Layout", "Step"];

/// Calls that open any file. A named pipe then waits for its writer, and a device has no end.
const OPENING_CALLS: &[&str] = &[
    "File::open(",
    "fs::read(",
    "fs::read_to_string(",
    "from_path(",
];

/// Code with such calls, by file and line: [`infeed_raw::file`] itself; files of the system; folders
/// that are locked or flushed.
///
/// [`infeed_raw::file`]: ../../infeed-raw/src/file.rs
const OPENS_ANY_FILE: &[(&str, &str)] = &[
    ("infeed-raw/src/file.rs", ""),
    ("infeed-raw/src/machine.rs", ""),
    ("infeed-raw/src/near.rs", ""),
    ("infeed-core/src/probe/memory.rs", ""),
    ("infeed-core/src/probe/mod.rs", "/proc/cpuinfo"),
    ("infeed-pack/src/part_file.rs", "File::open(folder)"),
    (
        "infeed-pack/src/output_folder.rs",
        "Ok(folder) = File::open(path)",
    ),
    // Bytes in memory.
    ("infeed-codec/src/decode/tiff.rs", "File::open(bytes)"),
];

/// The folder of all crates.
fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a parent folder")
        .to_owned()
}

/// Source files below a folder, each with its code up to the inline tests.
fn rust_files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            let code = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default();
            files.push((path, code.to_owned()));
        }
    }
    files
}

/// Source files of all crates.
fn all_files() -> Vec<(PathBuf, String)> {
    let names = fs::read_dir(crates()).expect("a folder of the repository");
    names
        .flat_map(|entry| rust_files(&entry.expect("readable").path().join("src")))
        .collect()
}

/// Code lines without comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}

/// Crates of this workspace that a manifest names as dependencies.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = crates().join(name).join("Cargo.toml");
    let text = fs::read_to_string(manifest).expect("a manifest");
    let section = text
        .split("[dependencies]\n")
        .nth(1)
        .expect("a section of dependencies");
    let section = section.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split(' ').next());
    names
        .filter(|name| name.starts_with("infeed"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn crates_depend_on_lower_crates_only() {
    for (name, allowed) in CRATES {
        for used in dependencies(name) {
            assert!(
                allowed.contains(&used.as_str()),
                "{name} depends on {used}: ARCHITECTURE.md does not allow it"
            );
        }
    }
}

#[test]
fn the_engine_lists_what_it_shows_of_other_crates() {
    let text = fs::read_to_string(crates().join("infeed/src/lib.rs")).expect("a file");
    let lower_case: Vec<&str> = text
        .split(';')
        .filter_map(|statement| statement.split_once("pub use infeed_"))
        .flat_map(|(_, path)| path.split(['{', '}', ',', '\n']))
        .filter_map(|path| path.trim().rsplit("::").next())
        .filter(|name| name.starts_with(|first: char| !first.is_ascii_uppercase()))
        .collect();
    // Functions, and the list of transforms. Another module or `*` would show every name in it.
    assert_eq!(lower_case, ["read_one", "configure", "set_cache", "*"]);
}

#[test]
fn the_engine_knows_no_network() {
    let manifest = fs::read_to_string(crates().join("infeed/Cargo.toml")).expect("a manifest");
    for name in ["ring", "rustls", "tokio", "reqwest"] {
        let dependencies = manifest.split("[dev-dependencies]").next();
        let uses = |text: &str| {
            text.lines()
                .any(|line| line.split(' ').next() == Some(name))
        };
        assert!(!dependencies.is_some_and(uses), "{name}");
    }
    for (path, text) in rust_files(&crates().join("infeed/src")) {
        let opens = code(&text).any(|line| line.contains("std::net"));
        assert!(!opens, "{} opens a connection", path.display());
    }
}

#[test]
fn shipped_crates_contain_no_test_code_of_others() {
    for name in [
        "infeed-cli",
        "infeed-py",
        "infeed",
        "infeed-feed",
        "infeed-explain",
    ] {
        for used in dependencies(name) {
            assert!(
                !["infeed-testkit", "fake-cuda"].contains(&used.as_str()),
                "{name} ships {used}"
            );
        }
    }
}

/// Returns the module at the root of a crate that a source file belongs to. `None` for `lib.rs`.
fn root_module(file: &Path) -> Option<String> {
    let first = Path::new(file.iter().next()?);
    let module = first.file_stem()?.to_string_lossy().into_owned();
    (module != "lib").then_some(module)
}

#[test]
fn modules_use_lower_modules_only() {
    for (name, levels) in LADDERS {
        let level = |module: &str| {
            let found = levels.iter().position(|level| level.contains(&module));
            found.unwrap_or_else(|| panic!("{name}: {module} is not in the list of modules"))
        };
        let mut arrows = 0;
        for (file, used_files) in imports(&crates().join(name).join("src")) {
            let Some(own) = root_module(&file) else {
                continue;
            };
            let from = level(&own);
            for used in used_files.iter().filter_map(|used| root_module(used)) {
                let to = level(&used);
                arrows += 1;
                assert!(
                    used == own || to < from,
                    "{name}: {}: `{own}` (level {from}) uses `{used}` (level {to})",
                    file.display()
                );
            }
        }
        assert!(arrows > 30, "the test finds the imports of {name}");
    }
}

#[test]
fn methods_of_a_pipeline_are_in_two_files() {
    let src = crates().join("infeed/src");
    let has_methods = |text: &str| code(text).any(|line| line.starts_with("impl Pipeline {"));
    let files = rust_files(&src).into_iter();
    let files = files.filter(|(_, text)| has_methods(text));
    let below = |path: PathBuf| path.strip_prefix(&src).expect("below src").to_owned();
    let found: BTreeSet<PathBuf> = files.map(|(path, _)| below(path)).collect();

    assert_eq!(found, PIPELINE_FILES.iter().map(PathBuf::from).collect());
}

#[test]
fn files_have_at_most_800_lines() {
    for (path, text) in all_files() {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines", path.display());
    }
}

#[test]
fn every_file_begins_with_a_module_comment() {
    for (path, text) in all_files() {
        assert!(
            text.starts_with("//!"),
            "{} has no module comment",
            path.display()
        );
    }
}

#[test]
fn the_planner_asks_transforms_for_properties_and_not_for_names() {
    for (path, text) in all_files() {
        let path = path.display().to_string();
        let names = |line: &str| {
            let rest = line.split("Transform::").skip(1);
            rest.into_iter()
                .any(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
                && !line.contains("TransformError::")
        };
        assert!(
            path.contains("/transform/") || !code(&text).any(names),
            "{path} names a transform; ask for its properties"
        );
    }
}

/// Whether a line of code contains one of these words.
fn has_word(line: &str, words: &[&str]) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.split(|c| !is_part(c))
        .any(|word| words.contains(&word))
}

/// Names of the entries of a table: the first word of each of its lines, or the classes of a file in
/// Python.
fn entries((file, start): (&str, &str)) -> Vec<String> {
    let text = fs::read_to_string(crates().join(file)).expect("the table");
    let mut parts = text.split(start).skip(1);
    let lines: Vec<&str> = if file.ends_with(".py") {
        parts.collect()
    } else {
        let table = parts.next().and_then(|rest| rest.split("\n}\n").next());
        code(table.unwrap_or_default())
            .map(str::trim_start)
            .collect()
    };
    let first_words = lines
        .iter()
        .filter_map(|line| line.split(|c: char| !c.is_alphanumeric()).next());
    let is_type = |word: &&str| word.starts_with(|c: char| c.is_ascii_uppercase());
    let found: Vec<String> = first_words.filter(is_type).map(str::to_owned).collect();
    assert!(!found.is_empty(), "the test finds the table of {file}");
    found
}

/// Checks that other code asks for properties, and that few files name each of the additions.
fn assert_few_files_name(additions: &Additions) {
    // The crates of the CUDA interface name CUDA. They know neither devices nor formats.
    let is_shipped = |path: &str| {
        !["/tests/", "infeed-raw/", "fake-cuda/"]
            .iter()
            .any(|part| path.contains(part))
    };
    let files: Vec<(String, String)> = all_files()
        .into_iter()
        .map(|(path, text)| (path.display().to_string(), text))
        .filter(|(path, _)| is_shipped(path))
        .collect();
    let allowed_by = |path: &str| additions.allowed.iter().position(|end| path.ends_with(end));
    // A reader or a device with several files has a folder.
    let file_in_folder = |path: &str| {
        let folders = additions.folders.iter();
        let mut ends = folders.filter_map(|folder| Some(path.find(folder)? + folder.len()));
        let end = ends.next()?;
        let name = path[end..].split('/').next()?;
        Some(path[..end + name.len()].to_owned())
    };
    let mut used = vec![false; additions.allowed.len()];
    for name in entries(additions.table) {
        let own = [name.to_lowercase(), format!("{name}Spec"), name];
        let mut words: Vec<&str> = own.iter().map(String::as_str).collect();
        words.retain(|word| !additions.ambiguous.contains(word));
        let words = &words[..];
        let mut naming = BTreeSet::new();
        for (path, text) in &files {
            if !code(text).any(|line| has_word(line, words)) {
                continue;
            }
            if let Some(at) = allowed_by(path) {
                used[at] = true;
                continue;
            }
            let file = file_in_folder(path);
            assert!(
                file.is_some(),
                "{path} names {words:?}; ask the table for its properties"
            );
            naming.extend(file);
        }
        assert!(
            naming.len() <= additions.max_files,
            "{} files name {words:?}: {naming:?}",
            naming.len()
        );
        assert!(naming.len() > 1, "the test finds the files of {words:?}");
    }
    let mut unused = additions.allowed.iter().zip(used).filter(|(_, used)| !used);
    assert_eq!(unused.next(), None, "it names none of them any more");
}

#[test]
fn a_file_format_is_named_by_its_reader_its_writer_and_two_tables() {
    assert_few_files_name(&FILE_FORMATS);
}

#[test]
fn an_annotation_source_is_named_by_its_reader_its_module_and_the_description() {
    assert_few_files_name(&ANNOTATION_SOURCES);
}

#[test]
fn a_remedy_is_named_by_one_file() {
    let src = crates().join("infeed-explain/src");
    let files = rust_files(&src);
    let ids = files.iter().flat_map(|(path, text)| {
        let is_remedy = path.components().any(|part| part.as_os_str() == "remedies");
        let lines = code(text).filter(move |_| is_remedy).map(str::trim);
        lines.filter_map(|line| {
            let id = line
                .strip_prefix("id: \"")
                .or_else(|| line.strip_prefix("prefix: \""))?;
            Some(format!("\"{}\"", id.split('"').next()?))
        })
    });
    let ids: BTreeSet<String> = ids.collect();
    assert!(ids.len() > 15, "the test finds the remedies: {ids:?}");
    for id in ids {
        let naming = files
            .iter()
            .filter(|(_, text)| code(text).any(|line| line.contains(&id)));
        let naming: Vec<&PathBuf> = naming.map(|(path, _)| path).collect();
        assert_eq!(naming.len(), 1, "{id} is in {naming:?}");
    }
}

#[test]
fn a_kind_of_device_is_named_by_its_implementation_and_one_table() {
    assert_few_files_name(&DEVICE_KINDS);
}

#[test]
fn a_kind_of_data_is_named_by_its_file_the_registry_and_the_description() {
    assert_few_files_name(&FIELD_KINDS);

    // In Python, a kind is one class; in the reference, one page describes it.
    let root = crates().parent().expect("the repository").to_owned();
    for name in entries(FIELD_KINDS.table) {
        for (folder, file) in [
            ("python/infeed", "kinds.py"),
            ("docs/reference", "pipeline.md"),
        ] {
            let naming = files_with(&root.join(folder), &name);
            assert_eq!(naming, [file], "{name} in {folder}");
        }
    }
}

/// Names of the files below a folder that contain a word.
fn files_with(folder: &Path, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(files_with(&path, word));
        } else if fs::read_to_string(&path).is_ok_and(|text| has_word(&text, &[word])) {
            let name = path.file_name().expect("a name");
            found.push(name.to_string_lossy().into_owned());
        }
    }
    found
}

/// Name that a line declares as a type at the top level of its file.
fn declared_type(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

/// Types of all crates: name, crate, and file.
fn declared_types() -> Vec<(String, String, PathBuf)> {
    let mut types = Vec::new();
    for (path, text) in all_files() {
        if path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let below = path.strip_prefix(crates()).expect("a file of a crate");
        let name = below.iter().next().expect("a crate").to_string_lossy();
        for declared in text.lines().filter_map(declared_type) {
            // Each command of the CLI has its `Args`, as clap's documentation names them.
            if declared != "Args" {
                types.push((declared.to_owned(), name.clone().into_owned(), path.clone()));
            }
        }
    }
    assert!(types.len() > 500, "the test finds the types");
    types
}

#[test]
fn type_names_are_unique_in_their_crate() {
    let mut found = HashMap::new();
    for (declared, name, path) in declared_types() {
        if let Some(before) = found.insert((declared.clone(), name), path.clone()) {
            panic!(
                "{declared} is in {} and {}",
                before.display(),
                path.display()
            );
        }
    }
}

#[test]
fn a_type_name_means_one_thing_in_all_crates() {
    let mut crates_by_name: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (declared, name, _) in declared_types() {
        crates_by_name.entry(declared).or_default().insert(name);
    }
    crates_by_name.retain(|_, crates| crates.len() > 1);
    let repeated: Vec<&str> = crates_by_name.keys().map(String::as_str).collect();
    assert_eq!(repeated, REPEATED_TYPE_NAMES, "{crates_by_name:?}");
}

#[test]
fn unsafe_code_is_in_infeed_raw_only() {
    for (path, text) in all_files() {
        let path = path.display().to_string();
        if ["infeed-raw", "fake-cuda"]
            .iter()
            .any(|name| path.contains(name))
        {
            continue;
        }
        for line in code(&text) {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            assert!(!words.any(|word| word == "unsafe"), "{path}: {line}");
        }
    }
}

#[test]
fn files_are_opened_by_one_module_that_does_not_wait() {
    let mut used = BTreeSet::new();
    for (path, text) in all_files() {
        let path = path.display().to_string();
        if ["fake-cuda", "infeed-testkit", "tidy"]
            .iter()
            .any(|name| path.contains(&format!("crates/{name}/")))
            || text.starts_with("#![cfg(test)]")
            || path.contains("/tests/")
        {
            continue;
        }
        for line in code(&text) {
            if !OPENING_CALLS.iter().any(|call| line.contains(call)) {
                continue;
            }
            let allowed = OPENS_ANY_FILE
                .iter()
                .position(|(file, part)| path.ends_with(file) && line.contains(part));
            assert!(
                allowed.is_some(),
                "{path}: {line}: call infeed_raw::file, which opens regular files only"
            );
            used.extend(allowed);
        }
    }
    assert_eq!(
        used.len(),
        OPENS_ANY_FILE.len(),
        "remove what is not used: {used:?}"
    );
}
