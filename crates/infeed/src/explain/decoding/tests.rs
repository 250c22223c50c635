//! Shares in which cores, decoder, bus, device, step and storage are the limit in turn.

use super::super::placement::{Bound, Split, UNKNOWN};
use super::*;

/// Images that cores decode at 2 000 a second and otherwise make ready at 20 000; crops of 300 kB and files
/// of 100 kB over 10 GB/s; a decoder of 4 000 a second.
fn ends() -> Ends {
    let cost = |host, bus_bytes: f64, decoder_s| Cost {
        split: Split::Resize,
        left: "decoding".to_owned(),
        host: Interval::exact(host),
        bus_bytes,
        bus_s: bus_bytes / 10e9,
        decoder_s,
        device_s: 3e-6,
    };
    Ends {
        none: cost(2_000.0, 300e3, 0.0),
        all: cost(20_000.0, 100e3, 250e-6),
        taken: 1.0,
    }
}

fn supply() -> Supply {
    Supply {
        storage: None,
        step_s: None,
        contention: UNKNOWN,
        contention_measured: false,
        devices: 1,
    }
}

/// The best way with the host's pixels: bytes cross, of images that the host has resized.
fn host() -> Way {
    let cost = Cost {
        split: Split::Device,
        host: Interval::exact(1_800.0),
        bus_bytes: 150e3,
        bus_s: 15e-6,
        ..ends().none
    };
    way(&cost, &supply())
}

fn weighed(ends: &Ends, supply: &Supply, now: u8) -> Decoding {
    let about = ("a device".to_owned(), Known::Measured);
    weigh(about, now, &host(), ends, supply)
}

fn best(decoding: &Decoding) -> &DecodingWay {
    let mut ways = decoding.ways.iter();
    ways.find(|way| way.share == decoding.share)
        .expect("it is one of them")
}

#[test]
fn the_share_is_told_at_which_neither_cores_nor_decoder_wait() {
    let decoding = weighed(&ends(), &supply(), 0);

    // Cores take 500 us less 450 a file of the decoder's, the decoder with its copies 30 and 230 more: the
    // same at 0.691 of the records, 11.06 of 16.
    let balance = decoding.balance.expect("one is the slower at each end");
    assert!((balance - 470.0 / 680.0).abs() < 1e-9, "{balance}");
    assert_eq!(decoding.share, 11);
    let best = best(&decoding);
    assert_eq!(
        (best.name().as_str(), best.way.binding),
        ("11/16", Bound::Host)
    );
    let expected = 1e6 / (500.0 - 450.0 * 11.0 / 16.0);
    assert!((best.way.rate.mid - expected).abs() < 1e-6, "{best:?}");
    assert!((decoding.gain.mid - expected / 1_800.0).abs() < 1e-9);
    let shares: Vec<u8> = decoding.ways.iter().map(|way| way.share).collect();
    assert_eq!(shares, [0, 11, 16]);
    let said = decoding.said.join("\n");
    assert!(
        said.contains(
            "fastest: decode=11/16, where the device decodes 11 records of 16: 5246 samples/s"
        ),
        "{said}"
    );
    assert!(said.contains("with 11.1 records of 16"), "{said}");
}

#[test]
fn no_other_share_is_faster_than_the_one_that_is_told() {
    for decoder_us in [20.0, 100.0, 300.0, 1_000.0, 5_000.0] {
        let mut ends = ends();
        ends.all.decoder_s = decoder_us * 1e-6;
        let decoding = weighed(&ends, &supply(), 0);
        let told = best(&decoding).way.rate.mid;
        for share in 1..=16 {
            let rate = ends.way(share, &supply()).way.rate.mid;
            assert!(rate <= told * EQUAL, "{decoder_us}: {share} gives {rate}");
        }
        // With a record of 16 less it is slower.
        if decoding.share > 1 {
            let less = ends.way(decoding.share - 1, &supply()).way.rate.mid;
            assert!(less < told, "{decoder_us}: {less} of {told}");
        }
    }
}

#[test]
fn a_decoder_that_is_faster_than_the_cores_gets_all_it_takes() {
    let mut ends = ends();
    ends.all.decoder_s = 10e-6;

    let decoding = weighed(&ends, &supply(), 0);

    assert_eq!((decoding.share, decoding.balance), (16, None));
    assert_eq!(best(&decoding).name(), "gpu");
    assert_eq!(best(&decoding).way.binding, Bound::Host);
    let said = decoding.said.join("\n");
    assert!(
        said.contains("decode=gpu, where the device decodes all"),
        "{said}"
    );
    assert!(said.contains("slower in every mix"), "{said}");
}

#[test]
fn a_decoder_that_gains_nothing_is_left_alone() {
    let mut ends = ends();
    // Slower by itself than the cores are with everything: a record of 16 is no gain of 3 %.
    ends.all.decoder_s = 20e-3;

    let decoding = weighed(&ends, &supply(), 0);

    assert_eq!((decoding.share, decoding.gain), (0, Interval::exact(1.0)));
    let shares: Vec<u8> = decoding.ways.iter().map(|way| way.share).collect();
    assert_eq!(shares, [0, 16]);
    assert_eq!(decoding.ways[1].way.binding, Bound::Decoder);
    let said = decoding.said.join("\n");
    assert!(said.contains("runs as fast as any share"), "{said}");
}

#[test]
fn where_the_step_limits_no_more_is_left_to_the_decoder_than_keeps_it_fed() {
    let mut supply = supply();
    // 2 481 samples a second with the kernels; cores give 2 406 with 3 of 16 and 2 581 with 4.
    supply.step_s = Some(400e-6);

    let decoding = weighed(&ends(), &supply, 0);

    assert_eq!(decoding.share, 4);
    assert_eq!(best(&decoding).way.binding, Bound::Step);
}

#[test]
fn where_storage_limits_the_host_decodes() {
    let mut supply = supply();
    supply.storage = Some(Interval::exact(1_000.0));
    let mut host = host();
    host.rate = Interval::exact(1_000.0);
    let about = ("a device".to_owned(), Known::Measured);

    let decoding = weigh(about, 0, &host, &ends(), &supply);

    assert_eq!(decoding.share, 0);
}

#[test]
fn where_the_bus_limits_files_cross_it_instead_of_crops() {
    let mut ends = ends();
    (ends.none.bus_s, ends.all.bus_s) = (3e-3, 1e-3);

    let decoding = weighed(&ends, &supply(), 0);

    // The host's way sends half as much, so no mix is better than all: 1 / 1.25 ms.
    let all = decoding.ways.last().expect("all");
    assert_eq!((all.share, all.way.binding), (16, Bound::Bus));
    assert!((all.way.rate.mid - 800.0).abs() < 1e-6, "{all:?}");
    assert_eq!(decoding.balance, None);
}

#[test]
fn what_runs_now_has_a_row_and_is_told() {
    let decoding = weighed(&ends(), &supply(), 4);

    let shares: Vec<u8> = decoding.ways.iter().map(|way| way.share).collect();
    assert_eq!(shares, [0, 4, 11, 16]);
    let said = decoding.said.join("\n");
    assert!(
        said.contains("now it is decode=4/16, 2581 samples/s"),
        "{said}"
    );
}

#[test]
fn files_that_the_decoder_does_not_take_are_told() {
    let mut ends = ends();
    ends.taken = 0.8;

    let said = weighed(&ends, &supply(), 0).said.join("\n");

    assert!(said.contains("takes 80 % of the records"), "{said}");
    assert!(said.contains("near the host's and not the same"), "{said}");
}

#[test]
fn a_way_is_read_back_from_json() {
    let decoding = weighed(&ends(), &supply(), 4);

    let json = serde_json::to_value(&decoding).expect("JSON");

    assert_eq!(json["share"], 11);
    assert_eq!(json["ways"][1]["share"], 4);
    assert_eq!(json["ways"][1]["binding"], "host");
    let again: Decoding = serde_json::from_value(json).expect("it is read back");
    assert_eq!(again.ways.len(), 4);
    assert_eq!(again.ways[3].way.binding, Bound::Decoder);
}
