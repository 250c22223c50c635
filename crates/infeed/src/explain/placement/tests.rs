//! Each resource in turn is the limit, and the choice is right.

use super::*;

/// Images of 100 kB that become floats: 10 000 a second of the host's cores as floats, 12 000 as
/// bytes; a bus of 8 GB/s; a kernel of 1 us.
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

fn supply() -> Supply {
    Supply {
        storage: None,
        step_s: Some(50e-6),
        contention: Interval::exact(1.0),
        contention_measured: true,
        devices: 1,
    }
}

fn placed(costs: &[Cost], supply: &Supply) -> Placing {
    let about = About {
        device: "a device".to_owned(),
        known: Known::Measured,
        now: Split::Device,
        decodes: false,
    };
    place(about, costs, supply).expect("there are ways")
}

fn chosen(placing: &Placing) -> &Way {
    let mut ways = placing.ways.iter();
    ways.find(|way| way.split == placing.chosen)
        .expect("it is one of them")
}

#[test]
fn where_cores_limit_what_they_can_leave_is_left_to_the_device() {
    let placing = placed(&costs(), &supply());

    assert_eq!(placing.chosen, Split::Device);
    assert_eq!(placing.runner_up, Some(Split::Host));
    assert_eq!(chosen(&placing).binding, Bound::Host);
    assert_eq!(chosen(&placing).rate.mid, 12_000.0);
}

#[test]
fn trials_that_vary_more_than_ways_differ_are_said_to() {
    let mut costs = costs();
    for cost in &mut costs {
        cost.host = cost.host.widen(0.3);
    }

    let said = placed(&costs, &supply()).said.join("\n");

    assert!(
        said.contains("differ by no more than trials vary"),
        "{said}"
    );
    let said = placed(&self::costs(), &supply()).said.join("\n");
    assert!(!said.contains("trials vary"), "{said}");
}

#[test]
fn where_storage_limits_the_device_is_left_alone() {
    let mut supply = supply();
    supply.storage = Some(Interval::exact(1_000.0));

    let placing = placed(&costs(), &supply);

    assert_eq!(placing.chosen, Split::Host);
    assert_eq!(chosen(&placing).binding, Bound::Storage);
    let change = placing.change.expect("faster storage shows the cores");
    assert_eq!(change.bound, Bound::Storage);
    // From there on 10 000 is more than 3 % below what storage gives.
    assert!((change.factor - 10.3).abs() < 0.01, "{change:?}");
}

#[test]
fn where_the_bus_limits_bytes_cross_it() {
    let mut costs = costs();
    for cost in &mut costs {
        cost.bus_s *= 10.0;
    }

    let placing = placed(&costs, &supply());

    assert_eq!(placing.chosen, Split::Device);
    assert_eq!(chosen(&placing).binding, Bound::Bus);
    assert!((chosen(&placing).rate.mid - 8_000.0).abs() < 1e-6);
    let host = &placing.ways[0];
    assert_eq!((host.split, host.binding), (Split::Host, Bound::Bus));
    assert!((host.rate.mid - 2_000.0).abs() < 1e-6);
}

#[test]
fn where_the_device_has_no_time_rows_are_finished_on_the_host() {
    let mut costs = costs();
    costs[1].device_s = 200e-6;

    let placing = placed(&costs, &supply());

    assert_eq!(placing.chosen, Split::Host);
    assert_eq!(chosen(&placing).binding, Bound::Host);
    let device = &placing.ways[1];
    assert_eq!(device.binding, Bound::Device);
    assert!(
        (device.rate.mid - 4_000.0).abs() < 1e-6,
        "1 / (50 + 200) us"
    );
}

#[test]
fn where_the_step_limits_the_device_does_the_step_alone() {
    let mut supply = supply();
    supply.step_s = Some(1e-3);

    let placing = placed(&costs(), &supply);

    assert_eq!(placing.chosen, Split::Host);
    assert_eq!(chosen(&placing).binding, Bound::Step);
    // Kernels of 1 us beside a step of 1 ms are no limit of their own.
    assert_eq!(placing.ways[1].binding, Bound::Step);
}

#[test]
fn ways_within_three_percent_go_to_the_one_with_less_work_for_the_device() {
    let near = |host: f64| {
        let mut costs = costs();
        costs[0].host = Interval::exact(host);
        placed(&costs, &supply()).chosen
    };

    assert_eq!(near(12_000.0 / 1.029), Split::Host);
    assert_eq!(near(12_000.0 / 1.031), Split::Device);
}

#[test]
fn of_ways_that_cost_the_device_the_same_the_one_with_less_for_the_host_wins() {
    let mut costs = costs();
    costs[1].device_s = 0.0;
    let mut supply = supply();
    supply.step_s = Some(1e-3);

    assert_eq!(placed(&costs, &supply).chosen, Split::Device);
    costs[1].host = costs[0].host;
    // Then the bytes decide.
    assert_eq!(placed(&costs, &supply).chosen, Split::Device);
    costs[1].bus_bytes = 2.0 * costs[0].bus_bytes;
    assert_eq!(placed(&costs, &supply).chosen, Split::Host);
}

#[test]
fn contention_that_is_not_known_is_carried_through_and_where_the_choice_turns_is_told() {
    let mut costs = costs();
    costs[1].device_s = 60e-6;
    let mut supply = supply();
    (supply.contention, supply.contention_measured) = (UNKNOWN, false);

    let placing = placed(&costs, &supply);

    let device = placing.ways[1].allowed(Bound::Device).expect("kernels");
    // From hidden, where kernels by themselves limit, to one after the other.
    assert!((device.high - 1.0 / 60e-6).abs() < 1e-6, "{device:?}");
    assert!((device.low - 1.0 / 110e-6).abs() < 1e-6, "{device:?}");
    assert_eq!(device.mid, device.low);
    assert_eq!(placing.chosen, Split::Host);
    // 10 300 samples/s are 97.087 us a sample: 50 of step and 0.7848 of 60.
    let turns = placing.turns_at.expect("bytes win if kernels hide");
    assert!((turns - 0.7848).abs() < 1e-3, "{turns}");
    let said = placing.said.join("\n");
    assert!(said.contains("at 78 % or less the choice turns"), "{said}");
}

#[test]
fn a_choice_that_no_contention_turns_says_so() {
    let mut supply = supply();
    (supply.contention, supply.contention_measured) = (UNKNOWN, false);

    let placing = placed(&costs(), &supply);

    assert_eq!(placing.turns_at, None);
    let said = placing.said.join("\n");
    assert!(said.contains("the choice is the same"), "{said}");
}

#[test]
fn the_least_change_of_one_resource_at_which_the_runner_up_wins_is_told() {
    // Bytes are limited by the step and kernels at 19 608 samples/s, floats by cores at 10 000: with
    // 1.9037 times as many of them the two are equal. A step of 1.92 times the length does it too.
    let placing = placed(&costs(), &supply());

    let change = placing.change.expect("more cores show the step");
    assert_eq!(change.bound, Bound::Host);
    assert!((change.factor - 1.9037).abs() < 1e-3, "{change:?}");
    let said = placing.said.join("\n");
    assert!(
        said.contains("what would change it: more cores, 1.90x of now; then \"host\""),
        "{said}"
    );
}

#[test]
fn where_nothing_would_change_it_that_is_said() {
    let mut costs = costs();
    // Slower in everything: no amount of one resource helps it.
    costs[1].host = Interval::exact(100.0);
    costs[1].bus_s = 1e-2;
    costs[1].device_s = 1e-2;

    let placing = placed(&costs, &supply());

    assert_eq!((placing.chosen, placing.change), (Split::Host, None));
    assert!(
        placing
            .said
            .iter()
            .any(|line| line.starts_with("no change of one")),
        "{:?}",
        placing.said
    );
}

#[test]
fn several_devices_share_cores_and_storage_but_no_bus() {
    let mut supply = supply();
    supply.storage = Some(Interval::exact(100_000.0));
    supply.devices = 4;

    let placing = placed(&costs(), &supply);

    let way = &placing.ways[1];
    assert_eq!(way.allowed(Bound::Host), Some(Interval::exact(3_000.0)));
    assert_eq!(way.allowed(Bound::Storage), Some(Interval::exact(25_000.0)));
    assert!((way.allowed(Bound::Bus).expect("a bus").mid - 80_000.0).abs() < 1e-6);
    let said = placing.said.join("\n");
    assert!(
        said.contains("shared by 4 devices: each has a quarter"),
        "{said}"
    );
}

#[test]
fn headroom_is_what_each_other_resource_could_give_more() {
    let placing = placed(&costs(), &supply());

    let said = placing.said.join("\n");
    // The bus 80 000, device 1 / 51 us, the step 20 000, of 12 000.
    assert!(
        said.contains("headroom: bus 6.67x, device 1.63x, step 1.67x"),
        "{said}"
    );
}

#[test]
fn with_one_way_there_is_nothing_to_choose() {
    let placing = placed(&costs()[..1], &supply());

    assert_eq!((placing.runner_up, placing.change), (None, None));
    assert_eq!(placing.chosen, Split::Host);
    let said = placing.said.join("\n");
    assert!(said.contains("nothing that the device could do"), "{said}");
}

/// The same with images that are resized on the device: 20 000 a second of cores that only decode; whole
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

/// The best of the three ways, with what limits it, without a step unless there is one.
fn best_of(costs: &[Cost], supply: &Supply) -> (Split, Bound) {
    let placing = placed(costs, supply);
    assert_eq!(placing.ways.len(), 3);
    (placing.chosen, chosen(&placing).binding)
}

fn no_step() -> Supply {
    Supply {
        step_s: None,
        ..supply()
    }
}

#[test]
fn where_cores_limit_the_resize_is_left_to_the_device_as_well() {
    let mut costs = three();
    let best = best_of(&costs, &no_step());
    // At 20 000 a second the rows take the bus for as long as the cores.
    assert_eq!(best, (Split::Resize, Bound::Host));
    costs[2].host = Interval::exact(19_000.0);
    assert_eq!(best_of(&costs, &no_step()), (Split::Resize, Bound::Host));
    // Less than 3 % more is not worth it.
    costs[2].host = Interval::exact(12_300.0);
    assert_eq!(best_of(&costs, &no_step()), (Split::Device, Bound::Host));
}

#[test]
fn where_the_bus_limits_whole_rows_of_crops_do_not_cross_it() {
    let mut costs = three();
    for cost in &mut costs {
        cost.bus_s *= 2.0;
    }
    // 10 000 rows and 40 000 samples of bytes: the bus takes away what the cores would gain.
    assert_eq!(best_of(&costs, &no_step()), (Split::Device, Bound::Host));
    for cost in &mut costs {
        cost.bus_s *= 10.0;
    }
    assert_eq!(best_of(&costs, &no_step()), (Split::Device, Bound::Bus));
}

#[test]
fn where_the_device_is_slow_with_crops_they_are_resized_on_the_host() {
    let mut costs = three();
    costs[2].device_s = 100e-6;

    assert_eq!(best_of(&costs, &no_step()), (Split::Device, Bound::Host));
    costs[1].device_s = 100e-6;
    costs[0].host = Interval::exact(11_000.0);
    assert_eq!(best_of(&costs, &no_step()), (Split::Host, Bound::Host));
}

#[test]
fn where_storage_or_the_step_limits_nothing_is_left_to_the_device() {
    let mut slow = no_step();
    slow.storage = Some(Interval::exact(5_000.0));
    assert_eq!(best_of(&three(), &slow), (Split::Host, Bound::Storage));
    let mut long = no_step();
    long.step_s = Some(1e-3);
    assert_eq!(best_of(&three(), &long), (Split::Host, Bound::Step));
}

#[test]
fn a_device_with_time_to_spare_beside_its_step_resizes_as_well() {
    // A step of 55 us, then 3 us of kernels: 17 241, and cores that resize give 12 000.
    let mut supply = supply();
    supply.step_s = Some(55e-6);

    let placing = placed(&three(), &supply);

    assert_eq!(placing.chosen, Split::Resize);
    assert_eq!(chosen(&placing).binding, Bound::Device);
    assert_eq!(placing.runner_up, Some(Split::Device));
    let said = placing.said.join("\n");
    assert!(
        said.contains("best: placement=\"device-resize\", where crops cross the bus"),
        "{said}"
    );
    let change = placing.change.expect("more cores do the resize");
    assert_eq!(change.bound, Bound::Host);
}

#[test]
fn ways_are_named_as_a_placement_is_asked_for() {
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

    let slow = way(&cost, &no_step());

    assert_eq!(slow.binding, Bound::Decoder);
    assert!((slow.rate.mid - 4_000.0).abs() < 1e-6, "1 / (50 + 200) us");
    let bus = slow.allowed(Bound::Bus).expect("a bus").mid;
    assert!((bus - 20_000.0).abs() < 1e-6);
    cost.decoder_s = 30e-6;
    let quick = way(&cost, &no_step());
    assert_eq!(quick.binding, Bound::Bus);
    assert!((quick.rate.mid - 12_500.0).abs() < 1e-6, "1 / (50 + 30) us");
}

#[test]
fn rates_that_are_no_numbers_do_not_stop_the_arithmetic() {
    let mut costs = costs();
    costs[0].host = Interval::exact(f64::NAN);
    costs[1].host = Interval::exact(f64::INFINITY);
    costs[1].bus_s = 0.0;

    let placing = placed(&costs, &supply());

    assert_eq!(placing.ways.len(), 2);
    let about = About {
        device: String::new(),
        known: Known::Planned,
        now: Split::Host,
        decodes: false,
    };
    assert!(place(about, &[], &supply()).is_none());
}
