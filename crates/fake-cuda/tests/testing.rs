//! Drivers of threads, for tests in the same program.
#![cfg(unix)]

use std::ffi::c_uint;
use std::sync::Barrier;
use std::thread;

use fake_cuda::testing;

unsafe extern "C" {
    fn cuInit(flags: c_uint) -> c_uint;
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) -> c_uint;
    fn cuDevicePrimaryCtxRelease_v2(device: i32) -> c_uint;
}

fn retain(device: i32) -> c_uint {
    let mut context = 0;
    // SAFETY: writes one handle.
    unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) }
}

fn release(device: i32) -> c_uint {
    // SAFETY: takes a number.
    unsafe { cuDevicePrimaryCtxRelease_v2(device) }
}

fn init() -> c_uint {
    // SAFETY: takes a number.
    unsafe { cuInit(0) }
}

#[test]
fn each_thread_has_a_separate_driver_log_and_failures() {
    let (retained, checked) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            testing::start();
            testing::fail("cuInit", 100);
            assert_eq!((init(), retain(0), retain(1)), (100, 0, 0));
            retained.wait();
            checked.wait();
            assert_eq!(testing::live("contexts"), 2);
            assert_eq!(testing::calls().len(), 2);
        });
        testing::start();
        retained.wait();
        assert_eq!(testing::live("contexts"), 0);
        assert_eq!(testing::calls(), []);
        assert_eq!(init(), 0);
        checked.wait();
    });
}

#[test]
fn a_call_fails_by_its_number_until_failures_are_removed() {
    testing::start();
    assert_eq!((retain(0), release(0)), (0, 0));

    testing::fail_call("cuDevicePrimaryCtxRetain", 2, 2);
    assert_eq!([retain(0), retain(0), retain(0)], [0, 2, 0]);
    testing::fail("cuDevicePrimaryCtxRetain", 700);
    assert_eq!([retain(0), retain(0)], [700, 700]);
    testing::fail_nothing();
    assert_eq!(retain(0), 0);
}

#[test]
fn calls_and_notes_are_logged_in_order_with_arguments_once() {
    testing::start();
    retain(1);
    testing::note("between");
    release(1);

    let calls = testing::calls();
    let names: Vec<_> = calls.iter().map(|call| call.function).collect();
    let expected = [
        "cuDevicePrimaryCtxRetain",
        "between",
        "cuDevicePrimaryCtxRelease_v2",
    ];
    assert_eq!(names, expected);
    assert_eq!(calls[0].arguments[1], 1);
    assert_eq!(calls[2].arguments, [1]);
    assert_eq!(testing::calls(), []);
}

#[test]
fn a_new_driver_starts_without_the_state_of_the_previous_one() {
    testing::start();
    testing::fail("cuInit", 3);
    retain(0);

    testing::start();

    assert_eq!(init(), 0);
    assert_eq!(testing::live("contexts"), 0);
    assert_eq!(testing::calls(), []);
}
