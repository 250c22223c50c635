//! Tests of shares in which cores, decoder, bus, device, step and storage are the limit.

use super::words::describe_decoding;
use super::*;
use crate::model::limit::Limit;
use crate::model::placement::{Split, UNKNOWN};

/// Cores decode 2 000 images per second and prepare 20 000. Crops of 300 kB and files of 100 kB
/// cross 10 GB/s. The decoder takes 4 000 images per second.
fn ends() -> DecodingCosts {
    let cost = |host, bus_bytes: f64, decoder_s| Cost {
        split: Split::Resize,
        left: "decoding".to_owned(),
        host: Interval::exact(host),
        bus_bytes,
        bus_s: bus_bytes / 10e9,
        decoder_s,
        device_s: 3e-6,
    };
    DecodingCosts {
        none: cost(2_000.0, 300e3, 0.0),
        all: cost(20_000.0, 100e3, 250e-6),
        taken: 1.0,
    }
}

fn model() -> PlacementModel {
    PlacementModel {
        storage: None,
        step_s: None,
        contention: UNKNOWN,
        contention_measured: false,
        devices: 1,
    }
}

/// The best placement with the host's pixels: the host resizes, uint8 rows cross the bus.
fn host() -> PlacementRate {
    let cost = Cost {
        split: Split::Device,
        host: Interval::exact(1_800.0),
        bus_bytes: 150e3,
        bus_s: 15e-6,
        ..ends().none
    };
    placement_rate(&cost, &model())
}

fn decoding_report(ends: &DecodingCosts, model: &PlacementModel, now: u8) -> DecodingReport {
    let about = ("a device".to_owned(), DeviceOrigin::Measured);
    let mut decoding = weigh(about, now, &host(), ends, model);
    describe_decoding(&mut decoding);
    decoding
}

fn best(decoding: &DecodingReport) -> &DecodingRate {
    let mut candidates = decoding.candidates.iter();
    candidates
        .find(|candidate| candidate.share == decoding.share)
        .expect("it is one of them")
}

#[test]
fn a_lower_end_of_zero_gives_numbers_for_every_share() {
    let noisy = |rate: f64| Interval {
        low: 0.0,
        mid: rate,
        high: 2.0 * rate,
    };
    let mut ends = ends();
    ends.none.host = noisy(2_000.0);

    for all in [Interval::exact(20_000.0), noisy(20_000.0)] {
        ends.all.host = all;
        for share in 0..=PARTS {
            let host = ends.cost(f64::from(share) / f64::from(PARTS)).host;

            let low = if share == PARTS { all.low } else { 0.0 };
            assert!((host.low - low).abs() < 1e-6, "{share}: {host:?}");
            assert!(
                host.low <= host.mid && host.mid <= host.high,
                "{share}: {host:?}"
            );
        }
    }
}

#[test]
fn the_share_balances_cores_and_decoder() {
    let decoding = decoding_report(&ends(), &model(), 0);

    // Cores take 500 us less 450 per file of the decoder. The decoder with its copies takes 30 us
    // and 230 more per file. Both are equal at 0.691 of the records, 11.06 of 16.
    let balance = decoding.balance.expect("one is the slower at each end");
    assert!((balance - 470.0 / 680.0).abs() < 1e-9, "{balance}");
    assert_eq!(decoding.share, 11);
    let best = best(&decoding);
    assert_eq!(
        (best.name().as_str(), best.placement.binding),
        ("11/16", Limit::Host)
    );
    let expected = 1e6 / (500.0 - 450.0 * 11.0 / 16.0);
    assert!(
        (best.placement.rate.mid - expected).abs() < 1e-6,
        "{best:?}"
    );
    assert!((decoding.gain.mid - expected / 1_800.0).abs() < 1e-9);
    let shares: Vec<u8> = decoding
        .candidates
        .iter()
        .map(|candidate| candidate.share)
        .collect();
    assert_eq!(shares, [0, 11, 16]);
    let notes = decoding.notes.join("\n");
    assert!(
        notes.contains(
            "fastest: decode=11/16, where the device decodes 11 records of 16: 5246 samples/s"
        ),
        "{notes}"
    );
    assert!(notes.contains("with 11.1 records of 16"), "{notes}");
}

#[test]
fn no_other_share_is_faster_than_the_chosen_one() {
    for decoder_us in [20.0, 100.0, 300.0, 1_000.0, 5_000.0] {
        let mut ends = ends();
        ends.all.decoder_s = decoder_us * 1e-6;
        let decoding = decoding_report(&ends, &model(), 0);
        let best_rate = best(&decoding).placement.rate.mid;
        for share in 1..=16 {
            let rate = ends.rate_at(share, &model()).placement.rate.mid;
            assert!(
                rate <= best_rate * EQUAL,
                "{decoder_us}: {share} gives {rate}"
            );
        }
        // One record of 16 less is slower.
        if decoding.share > 1 {
            let less = ends
                .rate_at(decoding.share - 1, &model())
                .placement
                .rate
                .mid;
            assert!(less < best_rate, "{decoder_us}: {less} of {best_rate}");
        }
    }
}

#[test]
fn a_decoder_that_is_faster_than_the_cores_gets_all_it_takes() {
    let mut ends = ends();
    ends.all.decoder_s = 10e-6;

    let decoding = decoding_report(&ends, &model(), 0);

    assert_eq!((decoding.share, decoding.balance), (16, None));
    assert_eq!(best(&decoding).name(), "gpu");
    assert_eq!(best(&decoding).placement.binding, Limit::Host);
    let notes = decoding.notes.join("\n");
    assert!(
        notes.contains("decode=gpu, where the device decodes all"),
        "{notes}"
    );
    assert!(notes.contains("slower at every share"), "{notes}");
}

#[test]
fn a_decoder_without_gain_gets_no_files() {
    let mut ends = ends();
    // The decoder alone is slower than the cores with everything, so one record of 16 gains less
    // than 3 %.
    ends.all.decoder_s = 20e-3;

    let decoding = decoding_report(&ends, &model(), 0);

    assert_eq!((decoding.share, decoding.gain), (0, Interval::exact(1.0)));
    let shares: Vec<u8> = decoding
        .candidates
        .iter()
        .map(|candidate| candidate.share)
        .collect();
    assert_eq!(shares, [0, 16]);
    assert_eq!(decoding.candidates[1].placement.binding, Limit::Decoder);
    let notes = decoding.notes.join("\n");
    assert!(notes.contains("is as fast as any share"), "{notes}");
}

#[test]
fn a_limiting_step_gets_the_smallest_share_that_feeds_it() {
    let mut model = model();
    // The device allows 2 481 samples/s with the kernels. Cores allow 2 406 with 3 of 16 and 2 581
    // with 4.
    model.step_s = Some(400e-6);

    let decoding = decoding_report(&ends(), &model, 0);

    assert_eq!(decoding.share, 4);
    assert_eq!(best(&decoding).placement.binding, Limit::Step);
}

#[test]
fn limiting_storage_leaves_decoding_to_the_host() {
    let mut model = model();
    model.storage = Some(Interval::exact(1_000.0));
    let mut host = host();
    host.rate = Interval::exact(1_000.0);
    let about = ("a device".to_owned(), DeviceOrigin::Measured);

    let decoding = weigh(about, 0, &host, &ends(), &model);

    assert_eq!(decoding.share, 0);
}

#[test]
fn a_limiting_bus_carries_files_instead_of_crops() {
    let mut ends = ends();
    (ends.none.bus_s, ends.all.bus_s) = (3e-3, 1e-3);

    let decoding = decoding_report(&ends, &model(), 0);

    // The host sends half as many bytes, so all files is the best mix: 1 / 1.25 ms.
    let all = decoding.candidates.last().expect("all");
    assert_eq!((all.share, all.placement.binding), (16, Limit::Copy));
    assert!((all.placement.rate.mid - 800.0).abs() < 1e-6, "{all:?}");
    assert_eq!(decoding.balance, None);
}

#[test]
fn the_share_that_ran_has_a_row_and_a_sentence() {
    let decoding = decoding_report(&ends(), &model(), 4);

    let shares: Vec<u8> = decoding
        .candidates
        .iter()
        .map(|candidate| candidate.share)
        .collect();
    assert_eq!(shares, [0, 4, 11, 16]);
    let notes = decoding.notes.join("\n");
    assert!(
        notes.contains("now it is decode=4/16, 2581 samples/s"),
        "{notes}"
    );
}

#[test]
fn sentences_name_the_files_that_the_decoder_does_not_take() {
    let mut ends = ends();
    ends.taken = 0.8;

    let notes = decoding_report(&ends, &model(), 0).notes.join("\n");

    assert!(notes.contains("can decode 80 % of the records"), "{notes}");
    assert!(notes.contains("differ slightly from the host's"), "{notes}");
}

#[test]
fn a_report_is_read_back_from_json() {
    let decoding = decoding_report(&ends(), &model(), 4);

    let json = serde_json::to_value(&decoding).expect("JSON");

    assert_eq!(json["share"], 11);
    assert_eq!(json["candidates"][1]["share"], 4);
    assert_eq!(json["candidates"][1]["binding"], "host");
    let again: DecodingReport = serde_json::from_value(json).expect("it is read back");
    assert_eq!(again.candidates.len(), 4);
    assert_eq!(again.candidates[3].placement.binding, Limit::Decoder);
}
