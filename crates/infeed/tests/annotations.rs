//! Tests of the parsers that have a fuzz target with a limit of memory. A separate program, because
//! its allocator counts the memory of all threads.

use std::fs;
use std::path::{Path, PathBuf};

#[allow(unreachable_pub, reason = "fuzz targets use the names of this module")]
#[path = "../../../fuzz/src/annotations.rs"]
mod annotations;
#[allow(dead_code, unreachable_pub, reason = "fuzz targets use the rest")]
#[path = "../../../fuzz/src/shards.rs"]
mod shards;

use annotations::{PARSERS, run};

fn fuzz(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz")
        .join(part)
}

fn inputs(folder: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(fuzz(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let path = |entry: std::io::Result<fs::DirEntry>| entry.expect("readable").path();
    let files = entries.map(path).filter(|path| path.is_file());
    files.map(|path| fs::read(path).expect("reads")).collect()
}

// One test: another one at the same time would allocate memory that is counted.
#[test]
fn parsers_of_annotations_take_bounded_memory_for_seeds_findings_and_dense_inputs() {
    let findings = inputs("regressions");
    for parser in &PARSERS {
        let name = parser.name;
        let target = fuzz("fuzz_targets").join(format!("{name}.rs"));
        assert!(target.is_file(), "the parser {name} has no fuzz target");
        let seeds = inputs(&format!("seeds/{name}"));
        assert!(!seeds.is_empty(), "{name}");
        for bytes in seeds.iter().chain(&findings) {
            run(name, bytes);
        }
        for input in dense(name) {
            run(name, input.as_bytes());
        }
    }
}

/// Inputs of about 64 KiB that have as many values as possible.
fn dense(name: &str) -> Vec<String> {
    const LENGTH: usize = 1 << 16;
    let many = |text: &str| text.repeat(LENGTH / text.len());
    let list = |item: &str| many(item).trim_end_matches(',').to_owned();
    let numbered = |line: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for at in 0.. {
            if text.len() >= LENGTH {
                break;
            }
            text.push_str(&line(at));
        }
        text
    };
    let objects = |item: &dyn Fn(usize) -> String| numbered(item).trim_end_matches(',').to_owned();
    let coco = |annotations: &str| {
        format!(
            "{{\"images\":[{{\"id\":1,\"file_name\":\"a.jpg\"}}],\"categories\":[{{\"id\":1}}],\
             \"annotations\":[{annotations}]}}"
        )
    };
    let image = "{\"id\":1,\"file_name\":\"a.jpg\",\"height\":2,\"width\":3}";
    match name {
        "class_names" => vec![many("a\n"), many("\n"), numbered(&|at| format!("{at:x}\n"))],
        "data_yaml" => vec![
            format!("names: [{}]", list("a,")),
            format!("names: [{}]", list(",")),
            format!("names:\n{}", many("- a\n")),
            format!("names:\n{}", many(" \n")),
            format!("names:\n{}a:", many("\n")),
            format!("names:\n{}", numbered(&|at| format!(" {at}: {at:x}\n"))),
            format!("names: [{}]", objects(&|at| format!("{at:x},"))),
        ],
        "list_csv" => vec![
            format!("path,label{}\n", many(",")),
            format!("path,label\n{}", many("a,b\n")),
            format!("path,label\n{}", many("a,1\n")),
            format!("path,label\n{}", numbered(&|at| format!("a,{at:x}x\n"))),
            format!("path,label\n{}", numbered(&|at| format!("{at:x},1\n"))),
        ],
        "yolo_lines" | "yolo_corners" => vec![
            many("0 0 0 0 0\n"),
            many("0 0 0 1 0 1 1 0 1\n"),
            format!("0 {}", many("0 ")),
            many("\n"),
        ],
        "yolo_poses" => vec![many("\u{1f}"), many("\u{6}"), many("~")],
        "voc_list" => vec![many("a\n"), many("\n"), many("a a\n")],
        "voc_xml" => vec![
            format!("<annotation>{}</annotation>", many("<object/>")),
            format!("<annotation>{}</annotation>", many("<a/>")),
            format!("<annotation>{}</annotation>", many("<object/><a/>")),
            many("<annotation>"),
            many("<a>"),
            format!(
                "<annotation>{}</annotation>",
                many(
                    "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>1</xmax>\
                     <ymax>1</ymax></bndbox></object>"
                )
            ),
        ],
        "coco_boxes" => vec![
            coco(&list("{\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,1,1]},")),
            coco(&objects(&|at| {
                format!("{{\"id\":{at},\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,1,1]}},")
            })),
            format!(
                "{{\"images\":[{}]}}",
                objects(&|at| format!("{{\"id\":{at},\"file_name\":\"\"}},"))
            ),
            format!(
                "{{\"images\":[{image}],\"categories\":[{}]}}",
                objects(&|at| format!("{{\"id\":{at}}},"))
            ),
            many("["),
            format!("{{\"images\":{}", many("[")),
        ],
        "coco_masks" => ["[]", "0"]
            .map(|item| format!("[{}]", list(&format!("{item},"))))
            .into_iter()
            .chain([
                format!("[[{}]]", list("0,")),
                format!("{{\"size\":[9,7],\"counts\":[63,{}]}}", list("0,")),
                format!("{{\"size\":[9,7],\"counts\":\"{}\"}}", many("0")),
            ])
            .map(|mask| {
                coco(&format!(
                    "{{\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,1,1],\"segmentation\":{mask}}}"
                ))
            })
            .collect(),
        "coco_panoptic" => vec![
            format!(
                "{{\"images\":[{image}],\"categories\":[{{\"id\":1}}],\"annotations\":[{{\"image_id\":1,\
                 \"file_name\":\"a.png\",\"segments_info\":[{}]}}]}}",
                objects(&|at| format!(
                    "{{\"id\":{},\"category_id\":1,\"bbox\":[0,0,1,1]}},",
                    at + 1
                ))
            ),
            format!(
                "{{\"images\":[{image}],\"annotations\":[{}]}}",
                objects(&|at| format!("{{\"image_id\":{at}}},"))
            ),
        ],
        "mask_json" => vec![
            format!("[{}]", list("[],")),
            format!("[[{}]]", list("[],")),
            format!("[[[{}]]]", list("0,")),
            format!("[{{\"size\":[9,7],\"counts\":[{}]}}]", list("0,")),
        ],
        "labelme" => vec![
            format!("{{\"shapes\":[{}]}}", list("{\"label\":\"\",\"points\":[[0,0],[0,0],[0,0]]},")),
            format!(
                "{{\"shapes\":[{}]}}",
                list("{\"label\":\"\",\"points\":[[0,0],[0,0],[0,0]],\"group_id\":1},")
            ),
            format!(
                "{{\"shapes\":[{}]}}",
                objects(&|at| format!(
                    "{{\"label\":\"\",\"points\":[[0,0],[0,0],[0,0]],\"group_id\":{at}}},"
                ))
            ),
            format!(
                "{{\"shapes\":[{}]}}",
                objects(&|at| format!("{{\"label\":\"{at}\",\"points\":[[0,0],[0,0],[0,0]]}},"))
            ),
            format!("{{\"shapes\":[{{\"label\":\"\",\"points\":[{}]}}]}}", list("[0,0],")),
        ],
        "index_tar" => vec![
            format!("v1.2 1\n{}", many("a 0 0 a\n")),
            format!("v1.2 1\n{}", many("a 0 0 a ")),
            format!("v1.2 1\n{}", many("a ")),
        ],
        "index_tfrecord" => vec![many("0 0\n"), many("\n")],
        "shard_mds" => vec![
            format!("{{\"shards\":[{}]}}", list("{},")),
            format!("{{\"shards\":[{}]}}", list("[],")),
            format!("{{\"version\":2,\"shards\":[{{\"column_names\":[{}]}}]}}", list("\"\",")),
            many("["),
        ],
        _ => Vec::new(),
    }
}
