//! Reports of a loader on a device. The numbers are invented and consistent.

use infeed_device::busy::{Utilisation, UtilisationSample};
use infeed_explain::report;
use infeed_explain::{
    AllowedRate, DecodingRate, DecodingReport, DeviceOrigin, Explanation, FieldTransfer, Interval,
    Limit, PlacementRate, PlacementReport, ResourceChange, Split, Transfers,
};
use serde_json::Value;

use super::{feeders, synthetic};

/// The usual case with batches on a GPU.
pub(crate) fn on_device() -> Explanation {
    let mut e = synthetic::usual();
    e.placement = Some(placement());
    e.decoding = Some(decoding());
    e.transfers = Some(transfers());
    e.feeding = Some(feeders::feeding());
    let samples = (1..=30).map(|n| UtilisationSample {
        at_s: 0.2 * f64::from(n),
        busy: f64::from(40 + (n * 37) % 55) / 100.0,
    });
    e.utilisation = Some(Utilisation {
        busy: 0.66,
        samples: samples.collect(),
    });
    e
}

fn placement_rate(
    split: Split,
    left: &str,
    bus_bytes: f64,
    allows: [Option<f64>; 5],
) -> PlacementRate {
    placement_rate_from(
        split,
        left,
        bus_bytes,
        Limit::HOST_DECODING.into_iter().zip(allows),
    )
}

fn placement_rate_from(
    split: Split,
    left: &str,
    bus_bytes: f64,
    allows: impl Iterator<Item = (Limit, Option<f64>)>,
) -> PlacementRate {
    let allows: Vec<AllowedRate> = allows
        .filter_map(|(bound, rate)| {
            Some(AllowedRate {
                bound,
                rate: Interval::exact(rate?),
            })
        })
        .collect();
    let least = allows
        .iter()
        .min_by(|a, b| a.rate.mid.total_cmp(&b.rate.mid))
        .copied()
        .expect("a limit");
    PlacementRate {
        split,
        left: left.to_owned(),
        bus_bytes,
        bus_s: bus_bytes / 12e9,
        device_s: if left.is_empty() { 0.0 } else { 3e-6 },
        rate: least.rate,
        binding: least.bound,
        allows,
        arithmetic: format!("bus 12.00 GB/s / {:.1} kB per sample", bus_bytes / 1e3),
    }
}

fn placement() -> PlacementReport {
    PlacementReport {
        device: "cuda:0".to_owned(),
        origin: DeviceOrigin::Measured,
        devices: 1,
        candidates: vec![
            placement_rate(
                Split::Host,
                "",
                48e6,
                [Some(655.0), Some(264.0), Some(250.0), None, Some(667.0)],
            ),
            placement_rate(
                Split::Device,
                "floats and layout of image, one-hot of mask",
                1.4e6,
                [
                    Some(655.0),
                    Some(292.0),
                    Some(8571.0),
                    Some(665.0),
                    Some(667.0),
                ],
            ),
            placement_rate(
                Split::Resize,
                "resize, floats and layout of image, one-hot of mask",
                4.6e6,
                [
                    Some(655.0),
                    Some(301.0),
                    Some(2608.0),
                    Some(663.0),
                    Some(667.0),
                ],
            ),
        ],
        now: Split::Device,
        decodes: false,
        chosen: Split::Device,
        runner_up: Some(Split::Host),
        contention: Interval {
            low: 0.0,
            mid: 1.0,
            high: 1.0,
        },
        contention_measured: false,
        turns_at: None,
        change: Some(ResourceChange {
            bound: Limit::Storage,
            factor: 0.39,
        }),
        notes: vec![
            "best: placement=\"device\", where bytes cross the bus and are expanded on the device: \
             292 samples/s, limited by the host's cores"
                .to_owned(),
            "headroom: storage 2.24x, bus 29.4x, device 2.28x, step 2.28x".to_owned(),
        ],
    }
}

fn decoding() -> DecodingReport {
    let decoding_rate = |share, decoder_s, allows: [Option<f64>; 6]| DecodingRate {
        share,
        decoder_s,
        placement: placement_rate_from(
            Split::Resize,
            "decoding, resize, floats and layout of image",
            2.2e6,
            Limit::DEVICE_DECODING.into_iter().zip(allows),
        ),
    };
    let (storage, bus, device, step) = (Some(655.0), Some(5454.0), Some(664.0), Some(667.0));
    DecodingReport {
        device: "cuda:0".to_owned(),
        origin: DeviceOrigin::Measured,
        taken: 0.93,
        now: 0,
        share: 9,
        balance: Some(0.55),
        gain: Interval::exact(1.98),
        candidates: vec![
            decoding_rate(0, 0.0, [storage, Some(292.0), bus, None, device, step]),
            decoding_rate(
                9,
                1e-3,
                [storage, Some(578.0), bus, Some(592.0), device, step],
            ),
            decoding_rate(
                16,
                3e-3,
                [storage, Some(2400.0), bus, Some(333.0), device, step],
            ),
        ],
        notes: vec![
            "fastest: decode=9/16, where the device decodes 9 records of 16: 578 samples/s, \
             limited by the host's cores, 1.98x of the best rate with the host's pixels"
                .to_owned(),
        ],
    }
}

fn transfers() -> Transfers {
    Transfers {
        device: "cuda:0".to_owned(),
        simulated: false,
        batches: 201,
        delivered: 199,
        copies: 402,
        bytes: 201 * 11_200_000,
        fields: vec![
            FieldTransfer {
                name: "image".to_owned(),
                row_bytes: 1_050_000,
                device_bytes: 4_200_000,
                files: false,
            },
            FieldTransfer {
                name: "mask".to_owned(),
                row_bytes: 350_000,
                device_bytes: 16_800_000,
                files: false,
            },
            FieldTransfer {
                name: "caption".to_owned(),
                row_bytes: 0,
                device_bytes: 0,
                files: false,
            },
        ],
        slots: 3,
        timed: 200,
        timed_bytes: 200 * 11_200_000,
        copying_s: 0.187,
        expanded: 200,
        expanding_s: 0.014,
        host_wait_s: 3.2,
        gap_s: 3.1,
        longest_gap_s: 0.06,
        gap_batches: 199,
        verdict:
            "one batch per step to cuda:0 (image and mask: 2 copies, 11.20 MB), nothing back, and \
                  the lines below"
                .to_owned(),
        seen: vec![
            "`caption` stays on the host; copies that the loop makes of it are not counted here"
                .to_owned(),
        ],
        ..Transfers::default()
    }
}

#[test]
fn placements_are_a_table_that_marks_the_best_and_the_current_one() {
    let output = report::text(&on_device(), 100, false);

    let found = |begins: &str| {
        let mut lines = output.lines().map(|line| line.trim_start().to_owned());
        let line = lines.find(|line| line.starts_with(begins));
        let line = line.unwrap_or_else(|| panic!("{begins} in\n{output}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        found("placement"),
        "placement storage host bus device step samples/s limit"
    );
    assert_eq!(found("host "), "host 655 264 250 none 667 250 bus");
    assert_eq!(
        found("device (best"),
        "device (best, now) 655 292 8571 665 667 292 host"
    );
    assert_eq!(
        found("device-resize"),
        "device-resize 655 301 2608 663 667 301 host"
    );
    assert!(
        output.contains("  why        best: placement=\"device\""),
        "{output}"
    );
}

#[test]
fn decoders_are_a_table_of_shares() {
    let output = report::text(&on_device(), 100, false);

    let found = |begins: &str| {
        let line = output.lines().find(|line| line.starts_with(begins));
        let line = line.unwrap_or_else(|| panic!("{begins} in\n{output}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        found("  decode       storage"),
        "decode storage host bus decoder device step samples/s limit"
    );
    assert_eq!(
        found("  cpu (now)"),
        "cpu (now) 655 292 5454 none 664 667 292 host"
    );
    assert_eq!(
        found("  9/16 (best)"),
        "9/16 (best) 655 578 5454 592 664 667 578 host"
    );
    assert_eq!(found("  gpu"), "gpu 655 2400 5454 333 664 667 333 decoder");
    assert!(
        output.contains("  JPEGs      fastest: decode=9/16, where"),
        "{output}"
    );
    assert!(!report::text(&synthetic::usual(), 100, false).contains("JPEGs  "));
}

#[test]
fn a_run_decoded_on_the_device_marks_no_host_placement_as_current() {
    let mut e = on_device();
    let (placement, decoding) = (e.placement.as_mut(), e.decoding.as_mut());
    let placement = placement.expect("there is one");
    (placement.now, placement.decodes) = (Split::Resize, true);
    decoding.expect("there is one").now = 16;

    let output = report::text(&e, 100, false);

    assert!(output.contains("  device (best) "), "{output}");
    assert!(output.contains("  device-resize  "), "{output}");
    assert!(output.contains("  gpu (now) "), "{output}");
}

#[test]
fn bus_traffic_is_one_line_with_other_observations_below() {
    let output = report::text(&on_device(), 120, false);

    assert!(
        output.contains("  transfers  one batch per step to cuda:0 (image and mask: 2 copies"),
        "{output}"
    );
    assert!(output.contains("nvidia-smi would report 66 % GPU utilisation"));
    assert!(
        output.contains("             `caption` stays on the host"),
        "{output}"
    );
}

#[test]
fn a_terminal_of_80_columns_shows_all_columns_of_placements() {
    for width in [60, 80, 120] {
        let output = report::text(&on_device(), width, false);

        for line in output.lines() {
            assert!(line.chars().count() <= width, "{width}: {line:?}");
            assert_eq!(line.trim_end(), line);
        }
        let is_head = |line: &&str| line.starts_with("  decode ") && line.ends_with("limit");
        let head = output.lines().find(is_head).expect("a table of shares");
        assert!(head.contains("decoder") || width < 80, "{head}");
        let head = output.lines().find(|line| line.starts_with("  placement"));
        let head = head.expect("a table");
        assert!(head.ends_with("samples/s  limit") || width < 80, "{head}");
        let kept = ["storage", "host", "bus", "device", "step"];
        let kept = kept.iter().filter(|name| head.contains(**name)).count();
        assert!(kept == 5 || width < 80, "{head}");
    }
}

#[test]
fn the_page_has_both_sections_in_words() {
    let page = report::html(&on_device());

    for text in [
        "Placement of the work",
        "Samples per second on cuda:0, measured.",
        "device (best, now)",
        "floats and layout of image, one-hot of mask; bus 12.00 GB/s",
        "device-resize",
        "JPEG decoding",
        "9/16 (best)",
        "Transfers over the bus",
        "One batch per step to cuda:0",
        "16.8 MB",
        "stays on the host",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let without = report::html(&synthetic::usual());
    assert!(!without.contains("Transfers over the bus"));
    assert!(!without.contains("Placement of the work"));
}

#[test]
fn json_has_both_sections_only_with_a_device() {
    let output: Value = serde_json::from_str(&report::json(&on_device())).expect("JSON");

    assert_eq!(output["placement"]["chosen"], "device");
    assert_eq!(output["placement"]["origin"], "measured");
    assert_eq!(output["placement"]["candidates"][0]["binding"], "copy");
    assert_eq!(output["placement"]["change"]["bound"], "storage");
    assert_eq!(
        output["placement"]["candidates"][2]["split"],
        "device-resize"
    );
    assert_eq!(output["decoding"]["share"], 9);
    assert_eq!(output["decoding"]["candidates"][1]["binding"], "host");
    assert_eq!(output["decoding"]["candidates"][2]["share"], 16);
    assert_eq!(output["transfers"]["copies"], 402);
    assert_eq!(output["transfers"]["fields"][1]["name"], "mask");
    let again: Explanation = serde_json::from_value(output).expect("it is read back");
    assert_eq!(
        again.transfers.map(|found| found.bytes),
        Some(201 * 11_200_000)
    );
    let without: Value = serde_json::from_str(&report::json(&synthetic::usual())).expect("JSON");
    assert!(without.get("placement").is_none() && without.get("transfers").is_none());
    serde_json::from_value::<Explanation>(without).expect("as before there were any");
}
