//! Tests with each resource as the limit, and a comparison with an independent simulation.

use super::rate::FeedingModel;
use super::words::{FeedingContext, describe_feeding};
use super::*;
use crate::model::supply::Supply;

/// Two workers that make 200 samples/s, and feeders with twice as many cores.
fn model() -> FeedingModel {
    FeedingModel {
        own: 200.0,
        own_limit: Limit::Decode,
        here: Supply::default(),
        helps: true,
        workers: 2.0,
        cores: 2.0,
        // A tenth of the 10 ms that making a sample takes.
        receive_s: 0.001,
        feeder: Interval {
            low: 360.0,
            mid: 400.0,
            high: 440.0,
        },
        connection: None,
        wire: None,
        ceilings: Supply::default(),
    }
}

/// One resource with its rate.
fn bounds(limit: Limit, rate: f64) -> Supply {
    let mut supply = Supply::default();
    supply.add_rate(limit, Some(Interval::exact(rate)));
    supply
}

fn context(step: Option<f64>) -> FeedingContext {
    FeedingContext {
        step,
        record_bytes: 100_000.0,
        whole_groups: false,
        there: 0,
    }
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

#[test]
fn own_cores_limit_without_feeders() {
    let none = model().with(0);

    assert_eq!((none.limit, none.feeders), (Limit::Decode, 0));
    assert_eq!(
        (none.rate.mid, none.own, none.from_feeders),
        (200.0, 200.0, 0.0)
    );
    assert_eq!(none.gain, Interval::exact(1.0));
}

#[test]
fn feeders_add_their_rate_minus_the_cost_of_receiving() {
    let two = model().with(2);

    // 800 samples of feeders take 0.8 of 2 cores, so 0.6 of the own rate is left.
    assert_eq!(two.limit, Limit::Feeders);
    assert!(
        close(two.from_feeders, 800.0) && close(two.own, 120.0),
        "{two:?}"
    );
    assert!(
        close(two.gain.mid, 4.6) && close(two.receive_cores, 0.8),
        "{two:?}"
    );
    // The spread comes from the feeders: 720 + 128 and 880 + 112.
    assert!(
        close(two.rate.low, 848.0) && close(two.rate.high, 992.0),
        "{two:?}"
    );
}

#[test]
fn idle_cores_receive_first() {
    let mut model = model();
    model.cores = 4.0;

    let two = model.with(2);

    assert!(
        close(two.own, 200.0) && close(two.rate.mid, 1000.0),
        "{two:?}"
    );
}

#[test]
fn the_wire_limits_feeders_and_own_cores_still_help() {
    let mut model = model();
    model.wire = Some(Interval::exact(500.0));

    let found = [1, 2, 8].map(|count| model.with(count));

    assert_eq!(
        found.clone().map(|f| f.limit),
        [Limit::Feeders, Limit::Wire, Limit::Wire]
    );
    assert!(close(found[1].rate.mid, 500.0 + 150.0), "{:?}", found[1]);
    assert_eq!(
        found[1].rate.mid, found[2].rate.mid,
        "more feeders give no more"
    );
    assert_eq!(model.saturation_point(), Some(2));
}

#[test]
fn one_connection_bounds_one_feeder_and_not_all_of_them() {
    let mut model = model();
    (model.connection, model.receive_s) = (Some(100.0), 0.0);

    assert!(close(model.with(3).rate.mid, 500.0));
    assert_eq!(model.with(3).limit, Limit::Feeders);
}

#[test]
fn receiving_limits_if_it_takes_all_cores() {
    let mut model = model();
    model.receive_s = 0.004;

    let found = model.with(2);

    // 2 cores / 4 ms, and nothing is left for making.
    assert_eq!(found.limit, Limit::Receive);
    assert!(
        close(found.rate.mid, 500.0) && found.own < 1e-9,
        "{found:?}"
    );
    assert!(close(found.receive_cores, 2.0));
}

#[test]
fn local_storage_bounds_only_local_batches() {
    let mut model = model();
    model.here = bounds(Limit::Storage, 50.0);

    let (none, one) = (model.with(0), model.with(1));

    assert_eq!((none.limit, none.rate.mid), (Limit::Storage, 50.0));
    assert_eq!((one.limit, one.rate.mid), (Limit::Feeders, 450.0));
    assert!(close(one.gain.mid, 9.0), "{one:?}");
}

#[test]
fn step_bus_and_device_bound_all_batches() {
    for limit in [Limit::Step, Limit::Copy, Limit::Device] {
        let mut model = model();
        model.ceilings = bounds(limit, 460.0);

        let (one, two) = (model.with(1), model.with(2));

        assert_eq!(one.limit, limit, "160 + 400 are more than it takes");
        assert!(close(one.rate.mid, 460.0) && close(two.gain.mid, 2.3));
        // Both rates fall by the same factor.
        assert!(close(two.from_feeders / two.own, 800.0 / 120.0), "{two:?}");
        assert_eq!(model.saturation_point(), Some(1));
    }
}

#[test]
fn the_smallest_number_that_feeds_a_step_is_found_between_powers_of_two() {
    let mut model = model();
    model.receive_s = 0.0;
    model.ceilings = bounds(Limit::Step, 1390.0);

    // 200 + 3 x 400.
    assert_eq!(model.enough(1390.0), Some(3));
    let counts = model.counts(&[3]);
    let numbers: Vec<u32> = counts.iter().map(|count| count.feeders).collect();
    assert_eq!(numbers, [0, 1, 2, 3], "up to where something else limits");
    assert_eq!(model.enough(150.0), Some(0), "this machine alone feeds it");
    model.wire = Some(Interval::exact(300.0));
    assert_eq!(model.enough(1390.0), None, "no number passes the wire");
}

#[test]
fn own_cores_that_do_not_help_count_only_without_feeders() {
    let mut model = model();
    model.helps = false;

    assert_eq!(
        (model.with(0).rate.mid, model.with(1).rate.mid),
        (200.0, 400.0)
    );
}

#[test]
fn feeders_that_cost_more_to_receive_than_they_give_gain_nothing() {
    let mut model = model();
    model.receive_s = 0.02;

    let one = model.with(1);

    assert_eq!(one.limit, Limit::Receive);
    assert!(one.gain.mid < 1.0, "{one:?}");
}

/// Simulates a fed loop in time steps and returns batches per second. Each feeder makes one batch
/// at a time and keeps three. One wire carries them, cores receive before they make, a consumer
/// takes.
fn simulate(model: &FeedingModel, feeders: usize, rows: f64) -> f64 {
    const TICK: f64 = 5e-5;
    const SECONDS: f64 = 12.0;
    const READY: f64 = 8.0;
    let wire = model.wire.map_or(f64::INFINITY, |wire| wire.mid);
    let step = model.ceilings.least().mid;
    let mut kept = vec![0.0_f64; feeders];
    let (mut carried, mut ready, mut making) = (0.0_f64, 0.0_f64, 0.0_f64);
    let (mut next, mut delivered, mut credit) = (0, 0.0, 0.0_f64);
    let mut at = 0.0;
    while at < SECONDS {
        at += TICK;
        for made in &mut kept {
            *made = (*made + model.feeder.mid * TICK / rows).min(3.0);
        }
        // The wire carries whole batches, from the feeders in turn.
        let mut room = wire.min(1e12) * TICK / rows;
        for _ in 0..feeders {
            let one = room.min(kept[next]).min((2.0 - carried).max(0.0));
            kept[next] -= one;
            carried += one;
            room -= one;
            next = (next + 1) % feeders;
        }
        // Another feeder is first each time.
        next = (next + 1) % feeders.max(1);
        let mut cores = model.cores * TICK;
        let space = (READY - ready).max(0.0);
        let taken = match model.receive_s > 0.0 {
            true => carried.min(cores / (model.receive_s * rows)),
            false => carried,
        }
        .min(space);
        carried -= taken;
        ready += taken;
        cores -= taken * model.receive_s * rows;
        let workers = cores.min(model.workers * TICK);
        making += (workers * model.own / model.workers / rows).min((READY - ready).max(0.0));
        let whole = making.floor();
        (making, ready) = (making - whole, ready + whole);
        credit = (credit + step.min(1e12) * TICK / rows).min(READY);
        let out = ready.min(credit);
        (ready, credit) = (ready - out, credit - out);
        if at > SECONDS / 4.0 {
            delivered += out;
        }
    }
    delivered * rows / (0.75 * SECONDS)
}

#[test]
fn a_predicted_gain_equals_a_simulation_in_time_steps() {
    let given = |wire: Option<f64>, step: Option<f64>, receive_s: f64| {
        let mut model = model();
        model.receive_s = receive_s;
        model.wire = wire.map(Interval::exact);
        model.ceilings = step.map_or_else(Supply::default, |step| bounds(Limit::Step, step));
        model
    };
    let cases = [
        given(None, None, 0.0005),
        given(Some(700.0), None, 0.0005),
        given(None, Some(650.0), 0.0005),
        given(None, None, 0.003),
        given(Some(350.0), Some(900.0), 0.001),
    ];
    for model in &cases {
        for feeders in [1, 2, 3, 5] {
            let predicted = model.with(feeders);
            let none = simulate(model, 0, 8.0);
            let gain = simulate(model, feeders as usize, 8.0) / none;

            assert!(
                (predicted.gain.mid / gain - 1.0).abs() < 0.02,
                "{feeders}: predicted {:.3}, found {gain:.3}, of {model:?}",
                predicted.gain.mid
            );
        }
    }
}

/// Returns the feeding report for a wire of `network.bytes_per_s` and samples of 100 kB.
fn report(mut model: FeedingModel, network: Network, step: Option<f64>) -> Feeding {
    model.wire = Some(Interval::exact(network.bytes_per_s / 100e3));
    model.ceilings = step.map_or_else(Supply::default, |step| bounds(Limit::Step, step));
    let mut feeding = Feeding {
        feeder_cores: Some(4),
        make_s: 0.01,
        send_s: 0.0002,
        receive_s: model.receive_s,
        sample_bytes: 100e3,
        small_bytes: Some(25e3),
        network,
        enough: step.and_then(|step| model.enough(step)),
        saturated: model.saturation_point(),
        ..Feeding::default()
    };
    let wanted: Vec<u32> = feeding.enough.into_iter().collect();
    feeding.counts = model.counts(&wanted);
    describe_feeding(&mut feeding, &model, &context(step));
    feeding
}

fn says(feeding: &Feeding, what: &str) -> bool {
    feeding.notes.iter().any(|note| note.contains(what))
}

#[test]
fn sentences_contain_the_numbers_of_the_arithmetic() {
    let link = |bytes_per_s| Network {
        bytes_per_s,
        origin: NetworkOrigin::Given,
    };
    let feeding = report(model(), link(1e9), Some(900.0));
    assert!(
        says(&feeding, "2 feeders keep the step fed: 900 samples/s"),
        "{feeding:#?}"
    );
    assert!(says(&feeding, "each must read 40 MB/s"), "{feeding:#?}");
    let parts: Vec<&str> = feeding
        .parts
        .iter()
        .map(|part| part.arithmetic.as_str())
        .collect();
    assert_eq!(
        parts,
        [
            "2 workers / 10 ms per sample = 200 samples/s here, with nothing to receive",
            "4 cores / (10 ms to make + 200 µs to send) per sample = 400 samples/s of one \
             feeder, if its cores are like those here",
            "1 GB/s / 100 kB per sample = 10000 samples/s, the configured rate of the network",
            "2 cores / 1 ms to receive a sample = 2000 samples/s; making one takes 10 ms",
        ]
    );
    let one = feeding.of(1).expect("it was looked at");
    assert_eq!(
        one.arithmetic,
        "160 here + 1 x 400 = 560 samples/s; 40 MB/s arrive over the wire, and receiving takes \
         0.40 cores"
    );

    let narrow = report(model(), link(50e6), Some(2000.0));
    assert_eq!(narrow.enough, None);
    assert!(
        says(
            &narrow,
            "no number of feeders keeps the step fed: it takes 2000 samples/s, and the network to feeders"
        ),
        "{narrow:#?}"
    );
    assert!(says(
        &narrow,
        "would have 25 kB, and the wire would carry 4.0 times"
    ));
    assert_eq!(narrow.advice(Limit::Wire).len(), 1);

    let loopback = Network {
        origin: NetworkOrigin::Loopback,
        ..link(1e9)
    };
    let unknown = report(model(), loopback, None);
    assert!(
        says(&unknown, "the network was not measured: 1 GB/s"),
        "{unknown:#?}"
    );
    assert!(!says(&unknown, "keep the step fed"));

    let alone = report(model(), link(1e9), Some(100.0));
    assert!(says(&alone, "no feeder is needed"), "{alone:#?}");
}

#[test]
fn measured_rates_appear_next_to_the_prediction() {
    let mut feeding = report(
        model(),
        Network {
            bytes_per_s: 1e9,
            origin: NetworkOrigin::Reached,
        },
        None,
    );
    feeding.origin = FeederOrigin::Measured;
    feeding.measured = Some(FeederGain {
        without: 200.0,
        with: 540.0,
        gain: Interval::exact(2.7),
        predicted: model().with(1).gain,
        limit: Limit::Feeders,
        busy: 0.2,
    });
    let context = FeedingContext {
        there: 1,
        ..context(None)
    };

    describe_feeding(&mut feeding, &model(), &context);

    assert!(
        says(
            &feeding,
            "540 samples/s with 1 feeder, 200 without: 2.70x, within the 2.80x [2.62 to 2.98]"
        ),
        "{feeding:#?}"
    );
}

#[test]
fn recordings_with_the_older_keys_are_read() {
    let network = Network {
        bytes_per_s: 1e9,
        origin: NetworkOrigin::Reached,
    };
    let feeding = report(model(), network, Some(900.0));
    let json = serde_json::to_string(&feeding).expect("serializes");
    let mut older = json.clone();
    for (key, before) in [
        ("notes", "said"),
        ("from_feeders", "fed"),
        ("origin", "known"),
    ] {
        let key = format!("\"{key}\":");
        assert!(older.contains(&key), "{json}");
        older = older.replace(&key, &format!("\"{before}\":"));
    }

    let found: Feeding = serde_json::from_str(&older).expect("the older keys");
    assert_eq!(serde_json::to_string(&found).expect("serializes"), json);
}
