//! Tests of the choice with each resource as the limit.

use super::words::describe_placement;
use super::*;

/// Images of 100 kB that become floats. The host's cores make 10 000 images/s as floats and 12 000
/// as bytes. The bus has 8 GB/s, a kernel takes 1 us.
fn costs() -> [Cost; 2] {
    let cost = |split, host, bus_bytes: f64, device_s| Cost {
        split,
        left: String::new(),
        host: Interval::exact(host),
        bus_bytes,
        bus_s: bus_bytes / 8e9,
        decoder_s: 0.0,
        device_s,
    };
    [
        cost(Split::Host, 10_000.0, 400e3, 0.0),
        cost(Split::Device, 12_000.0, 100e3, 1e-6),
    ]
}

fn model() -> PlacementModel {
    PlacementModel {
        storage: None,
        step_s: Some(50e-6),
        contention: Interval::exact(1.0),
        contention_measured: true,
        devices: 1,
    }
}

fn placement_report(costs: &[Cost], model: &PlacementModel) -> PlacementReport {
    let context = PlacementContext {
        device: "a device".to_owned(),
        origin: DeviceOrigin::Measured,
        now: Split::Device,
        decodes: false,
    };
    let mut placement = place(context, costs, model).expect("there are candidates");
    describe_placement(&mut placement);
    placement
}

fn best_rate(placement: &PlacementReport) -> &PlacementRate {
    let mut candidates = placement.candidates.iter();
    candidates
        .find(|candidate| candidate.split == placement.chosen)
        .expect("it is one of them")
}

#[test]
fn limiting_cores_leave_work_to_the_device() {
    let placement = placement_report(&costs(), &model());

    assert_eq!(placement.chosen, Split::Device);
    assert_eq!(placement.runner_up, Some(Split::Host));
    assert_eq!(best_rate(&placement).binding, Limit::Host);
    assert_eq!(best_rate(&placement).rate.mid, 12_000.0);
}

#[test]
fn trials_that_vary_more_than_placements_differ_are_reported() {
    let mut costs = costs();
    for cost in &mut costs {
        cost.host = cost.host.widen(0.3);
    }

    let notes = placement_report(&costs, &model()).notes.join("\n");

    assert!(
        notes.contains("the difference is within the variation of the trials"),
        "{notes}"
    );
    let notes = placement_report(&self::costs(), &model()).notes.join("\n");
    assert!(!notes.contains("trials vary"), "{notes}");
}

#[test]
fn limiting_storage_leaves_the_fewest_bytes_on_the_bus() {
    let mut model = model();
    model.storage = Some(Interval::exact(1_000.0));

    let placement = placement_report(&costs(), &model);

    assert_eq!(placement.chosen, Split::Device);
    assert_eq!(best_rate(&placement).binding, Limit::Storage);
    assert_eq!(placement.candidates[0].rate, placement.candidates[1].rate);
}

#[test]
fn a_limiting_bus_carries_bytes() {
    let mut costs = costs();
    for cost in &mut costs {
        cost.bus_s *= 10.0;
    }

    let placement = placement_report(&costs, &model());

    assert_eq!(placement.chosen, Split::Device);
    assert_eq!(best_rate(&placement).binding, Limit::Copy);
    assert!((best_rate(&placement).rate.mid - 8_000.0).abs() < 1e-6);
    let host = &placement.candidates[0];
    assert_eq!((host.split, host.binding), (Split::Host, Limit::Copy));
    assert!((host.rate.mid - 2_000.0).abs() < 1e-6);
}

#[test]
fn a_busy_device_leaves_rows_to_the_host() {
    let mut costs = costs();
    costs[1].device_s = 200e-6;

    let placement = placement_report(&costs, &model());

    assert_eq!(placement.chosen, Split::Host);
    assert_eq!(best_rate(&placement).binding, Limit::Host);
    let device = &placement.candidates[1];
    assert_eq!(device.binding, Limit::Device);
    assert!(
        (device.rate.mid - 4_000.0).abs() < 1e-6,
        "1 / (50 + 200) us"
    );
}

#[test]
fn a_limiting_step_leaves_the_fewest_bytes_on_the_bus() {
    let mut model = model();
    model.step_s = Some(1e-3);

    let placement = placement_report(&costs(), &model);

    // Kernels of 1 us next to a step of 1 ms are no separate limit.
    assert_eq!(placement.chosen, Split::Device);
    assert_eq!(best_rate(&placement).binding, Limit::Step);
    assert_eq!(placement.candidates[0].binding, Limit::Step);
}

#[test]
fn placements_within_three_percent_prefer_fewer_bytes() {
    let near = |host: f64| {
        let mut costs = costs();
        costs[0].host = Interval::exact(host);
        placement_report(&costs, &model()).chosen
    };

    assert_eq!(near(12_000.0 * 1.029), Split::Device);
    assert_eq!(near(12_000.0 * 1.031), Split::Host);
}

#[test]
fn at_equal_bytes_less_device_work_wins_and_then_less_host_work() {
    let mut costs = costs();
    costs[1].bus_bytes = costs[0].bus_bytes;
    let mut model = model();
    model.step_s = Some(1e-3);

    assert_eq!(placement_report(&costs, &model).chosen, Split::Host);
    costs[1].device_s = 0.0;
    assert_eq!(placement_report(&costs, &model).chosen, Split::Device);
    costs[1].host = Interval::exact(9_000.0);
    assert_eq!(placement_report(&costs, &model).chosen, Split::Host);
}

#[test]
fn unknown_contention_widens_the_rate_and_the_turning_point_is_reported() {
    let mut costs = costs();
    costs[1].device_s = 60e-6;
    let mut model = model();
    (model.contention, model.contention_measured) = (UNKNOWN, false);

    let placement = placement_report(&costs, &model);

    let device = placement.candidates[1]
        .rate_of(Limit::Device)
        .expect("kernels");
    // From completely hidden, where kernels alone limit, to one after the other.
    assert!((device.high - 1.0 / 60e-6).abs() < 1e-6, "{device:?}");
    assert!((device.low - 1.0 / 110e-6).abs() < 1e-6, "{device:?}");
    assert_eq!(device.mid, device.low);
    assert_eq!(placement.chosen, Split::Host);
    // 10 000 / 1.03 samples/s are 103 us per sample: 50 of step and 0.8833 of 60.
    let turns = placement.turns_at.expect("bytes win if kernels hide");
    assert!((turns - 0.8833).abs() < 1e-3, "{turns}");
    let notes = placement.notes.join("\n");
    assert!(
        notes.contains("at 88 % or less the choice changes"),
        "{notes}"
    );
}

#[test]
fn a_choice_that_no_contention_changes_says_so() {
    let mut model = model();
    (model.contention, model.contention_measured) = (UNKNOWN, false);

    let placement = placement_report(&costs(), &model);

    assert_eq!(placement.turns_at, None);
    let notes = placement.notes.join("\n");
    assert!(notes.contains("the choice is the same"), "{notes}");
}

#[test]
fn the_smallest_change_that_makes_the_runner_up_win_is_reported() {
    // Step and kernels limit bytes to 18 182 samples/s, cores limit floats to 10 000. With 1.8727
    // times as many cores, floats are 3 % faster. A step of 1.96 times the length has the same
    // effect.
    let mut costs = costs();
    costs[1].device_s = 5e-6;
    let placement = placement_report(&costs, &model());

    let change = placement.change.expect("more cores show the step");
    assert_eq!(change.bound, Limit::Host);
    assert!((change.factor - 1.8727).abs() < 1e-3, "{change:?}");
    let notes = placement.notes.join("\n");
    assert!(
        notes.contains(
            "a different choice needs more cores, 1.87x of the present value; then \
            \"host\""
        ),
        "{notes}"
    );
}

#[test]
fn a_choice_that_no_resource_changes_says_so() {
    let mut costs = costs();
    // Slower in everything, so no amount of one resource helps.
    costs[1].host = Interval::exact(100.0);
    costs[1].bus_s = 1e-2;
    costs[1].device_s = 1e-2;

    let placement = placement_report(&costs, &model());

    assert_eq!((placement.chosen, placement.change), (Split::Host, None));
    assert!(
        placement
            .notes
            .iter()
            .any(|line| line.starts_with("no single resource")),
        "{:?}",
        placement.notes
    );
}

#[test]
fn several_devices_share_cores_and_storage_but_no_bus() {
    let mut model = model();
    model.storage = Some(Interval::exact(100_000.0));
    model.devices = 4;

    let placement = placement_report(&costs(), &model);

    let candidate = &placement.candidates[1];
    assert_eq!(
        candidate.rate_of(Limit::Host),
        Some(Interval::exact(3_000.0))
    );
    assert_eq!(
        candidate.rate_of(Limit::Storage),
        Some(Interval::exact(25_000.0))
    );
    assert!((candidate.rate_of(Limit::Copy).expect("a bus").mid - 80_000.0).abs() < 1e-6);
    let notes = placement.notes.join("\n");
    assert!(
        notes.contains("shared by 4 devices: each gets a quarter"),
        "{notes}"
    );
}

#[test]
fn headroom_is_the_spare_rate_of_each_other_resource() {
    let placement = placement_report(&costs(), &model());

    let notes = placement.notes.join("\n");
    // The bus allows 80 000, the device 1 / 51 us, the step 20 000, and the rate is 12 000.
    assert!(
        notes.contains("headroom: bus 6.67x, device 1.63x, step 1.67x"),
        "{notes}"
    );
}

#[test]
fn a_single_placement_is_chosen() {
    let placement = placement_report(&costs()[..1], &model());

    assert_eq!((placement.runner_up, placement.change), (None, None));
    assert_eq!(placement.chosen, Split::Host);
    let notes = placement.notes.join("\n");
    assert!(notes.contains("no work can move to the device"), "{notes}");
}

/// The same, with images that the device resizes. The cores only decode, at 20 000 images/s. Whole
/// rows of 400 kB cross, and the kernel takes 3 us.
fn three() -> [Cost; 3] {
    let [host, device] = costs();
    let resize = Cost {
        split: Split::Resize,
        host: Interval::exact(20_000.0),
        bus_bytes: 400e3,
        bus_s: 400e3 / 8e9,
        device_s: 3e-6,
        ..device.clone()
    };
    [host, device, resize]
}

/// Returns the best of the three placements and its limit.
fn best_of(costs: &[Cost], model: &PlacementModel) -> (Split, Limit) {
    let placement = placement_report(costs, model);
    assert_eq!(placement.candidates.len(), 3);
    (placement.chosen, best_rate(&placement).binding)
}

fn no_step() -> PlacementModel {
    PlacementModel {
        step_s: None,
        ..model()
    }
}

#[test]
fn limiting_cores_leave_the_resize_to_the_device() {
    let mut costs = three();
    let best = best_of(&costs, &no_step());
    // At 20 000 samples/s, the bus and the cores take equally long.
    assert_eq!(best, (Split::Resize, Limit::Host));
    costs[2].host = Interval::exact(19_000.0);
    assert_eq!(best_of(&costs, &no_step()), (Split::Resize, Limit::Host));
    // A gain of less than 3 % is not worth the bytes on the bus.
    costs[2].host = Interval::exact(12_300.0);
    assert_eq!(best_of(&costs, &no_step()), (Split::Device, Limit::Host));
}

#[test]
fn a_limiting_bus_carries_no_whole_crops() {
    let mut costs = three();
    for cost in &mut costs {
        cost.bus_s *= 2.0;
    }
    // 10 000 whole rows/s and 40 000 samples/s of bytes: the bus takes more than the cores gain.
    assert_eq!(best_of(&costs, &no_step()), (Split::Device, Limit::Host));
    for cost in &mut costs {
        cost.bus_s *= 10.0;
    }
    assert_eq!(best_of(&costs, &no_step()), (Split::Device, Limit::Copy));
}

#[test]
fn a_device_that_is_slow_with_crops_leaves_the_resize_to_the_host() {
    let mut costs = three();
    costs[2].device_s = 100e-6;

    assert_eq!(best_of(&costs, &no_step()), (Split::Device, Limit::Host));
    costs[1].device_s = 100e-6;
    costs[0].host = Interval::exact(11_000.0);
    assert_eq!(best_of(&costs, &no_step()), (Split::Host, Limit::Host));
}

#[test]
fn limiting_storage_or_step_leaves_the_expansion_to_the_device() {
    let mut slow = no_step();
    slow.storage = Some(Interval::exact(5_000.0));
    assert_eq!(best_of(&three(), &slow), (Split::Device, Limit::Storage));
    let mut long = no_step();
    long.step_s = Some(1e-3);
    assert_eq!(best_of(&three(), &long), (Split::Device, Limit::Step));
}

#[test]
fn a_device_with_spare_time_also_resizes() {
    // A step of 55 us, then 3 us of kernels: 17 241 samples/s. Cores that resize allow 12 000.
    let mut model = model();
    model.step_s = Some(55e-6);

    let placement = placement_report(&three(), &model);

    assert_eq!(placement.chosen, Split::Resize);
    assert_eq!(best_rate(&placement).binding, Limit::Device);
    assert_eq!(placement.runner_up, Some(Split::Device));
    let notes = placement.notes.join("\n");
    assert!(
        notes.contains("best: placement=\"device-resize\", where crops cross the bus"),
        "{notes}"
    );
    let change = placement.change.expect("more cores do the resize");
    assert_eq!(change.bound, Limit::Host);
}

#[test]
fn splits_are_named_like_the_placement_argument() {
    for split in [Split::Host, Split::Device, Split::Resize] {
        let json = serde_json::to_string(&split).expect("a name");
        assert_eq!(json, format!("\"{}\"", split.name()));
    }
    assert_eq!(Split::Resize.name(), "device-resize");
}

#[test]
fn copies_and_a_decoder_share_a_stream_and_the_longer_is_the_limit() {
    let mut cost = three()[2].clone();
    cost.decoder_s = 200e-6;

    let slow = placement_rate(&cost, &no_step());

    assert_eq!(slow.binding, Limit::Decoder);
    assert!((slow.rate.mid - 4_000.0).abs() < 1e-6, "1 / (50 + 200) us");
    let bus = slow.rate_of(Limit::Copy).expect("a bus").mid;
    assert!((bus - 20_000.0).abs() < 1e-6);
    cost.decoder_s = 30e-6;
    let quick = placement_rate(&cost, &no_step());
    assert_eq!(quick.binding, Limit::Copy);
    assert!((quick.rate.mid - 12_500.0).abs() < 1e-6, "1 / (50 + 30) us");
}

#[test]
fn rates_that_are_no_numbers_do_not_stop_the_arithmetic() {
    let mut costs = costs();
    costs[0].host = Interval::exact(f64::NAN);
    costs[1].host = Interval::exact(f64::INFINITY);
    costs[1].bus_s = 0.0;

    let placement = placement_report(&costs, &model());

    assert_eq!(placement.candidates.len(), 2);
    let context = PlacementContext {
        device: String::new(),
        origin: DeviceOrigin::Planned,
        now: Split::Host,
        decodes: false,
    };
    assert!(place(context, &[], &model()).is_none());
}
