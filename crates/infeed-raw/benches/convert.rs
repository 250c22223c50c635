//! Throughput of the row kernels: `cargo bench -p infeed-raw --bench convert [-- FILTER]`.
//!
//! A case writes the rows of a slab larger than the caches repeatedly, as an epoch does. The
//! benchmark measures CPU time of the thread and reports the median of several rounds, so that
//! other processes distort it little. They still take their share of the memory bandwidth.

use std::env;
use std::thread;
use std::time::Duration;

use infeed_raw::machine::thread_cpu_time;
use infeed_raw::simd::{Convert, Dtype, Layout, Level, SourcePixels, convert, one_hot};
use infeed_raw::slab::Slab;

const ROUNDS: usize = 9;

const ROUND: Duration = Duration::from_millis(150);

fn main() {
    let filter = env::args()
        .nth(1)
        .filter(|arg| !arg.starts_with("--"))
        .unwrap_or_default();
    let case =
        |name: &str, threads: usize, row_bytes: usize, write: &(dyn Fn(&mut [u8]) + Sync)| {
            if name.contains(&filter) {
                report(name, threads, row_bytes, write);
            }
        };

    let side = 224;
    let pixels: Vec<u8> = (0..64 * side * side * 3)
        .map(|n| ((n * 7919) >> 3) as u8)
        .collect();
    let image = |channels: usize, nth: usize| SourcePixels {
        data: &pixels[nth * side * side * 3..],
        width: side,
        height: side,
        channels,
        row_bytes: side * channels,
    };
    let elements = side * side * 3;
    for level in Level::available() {
        for threads in [1, 2] {
            let name = |what| format!("convert/{what}/level={}", level.name());
            for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::U8] {
                for layout in [Layout::Chw, Layout::Hwc] {
                    for flip_x in [false, true] {
                        let how = Convert {
                            dtype,
                            layout,
                            flip_x,
                            flip_y: false,
                            scale: [0.017, 0.018, 0.017, 1.0],
                            bias: [-2.1, -2.0, -1.8, 0.0],
                        };
                        let what = format!("{dtype:?}-{layout:?}-flip={flip_x}");
                        case(&name(what), threads, elements * dtype.bytes(), &|row| {
                            let nth = row.as_ptr() as usize / row.len() % 64;
                            convert(level, &image(3, nth), &how, row);
                        });
                    }
                }
            }
        }
    }

    let (side, classes) = (512, 12);
    let indices: Vec<u8> = (0..side * side).map(|n| (n / 37 % 12) as u8).collect();
    let row_bytes = side * side * classes * 4;
    for threads in [1, 2] {
        for level in Level::available() {
            for layout in [Layout::Hwc, Layout::Chw] {
                for flip_x in [false, true] {
                    let name = format!(
                        "one_hot/F32-{layout:?}-flip={flip_x}/level={}",
                        level.name()
                    );
                    case(&name, threads, row_bytes, &|row| {
                        let (x, y) = (flip_x, false);
                        let dtype = Dtype::F32;
                        one_hot(
                            level, &indices, classes, dtype, layout, side, side, x, y, row,
                        );
                    });
                }
            }
        }
        case("fill/zeros", threads, row_bytes, &|row| row.fill(0));
    }
}

/// Writes all rows of one slab per thread repeatedly.
fn report(name: &str, threads: usize, row_bytes: usize, write: &(dyn Fn(&mut [u8]) + Sync)) {
    let rows = (96 << 20) / row_bytes;
    let mut slabs: Vec<Slab> = (0..threads)
        .map(|_| Slab::zeroed(rows, row_bytes).expect("memory for a slab"))
        .collect();
    slabs.iter_mut().for_each(|slab| slab.as_mut().fill(1));

    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            thread::scope(|scope| {
                let start = |slab| scope.spawn(move || rate(slab, row_bytes, write));
                let running: Vec<_> = slabs.iter_mut().map(start).collect();
                running
                    .into_iter()
                    .map(|t| t.join().expect("kernels do not panic"))
                    .sum()
            })
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[ROUNDS / 2];
    let gb = median * row_bytes as f64 / 1e9;
    let spread = (rates[ROUNDS - 1] - rates[0]) / median * 100.0;
    println!(
        "{name:46} threads={threads} {median:9.0} rows/s {gb:6.2} GB/s written, spread {spread:3.0} %"
    );
}

fn rate(slab: &mut Slab, row_bytes: usize, write: &(dyn Fn(&mut [u8]) + Sync)) -> f64 {
    let begun = thread_cpu_time();
    let mut written = 0;
    loop {
        for row in slab.as_mut().chunks_exact_mut(row_bytes) {
            write(row);
            written += 1;
        }
        let spent = thread_cpu_time().saturating_sub(begun);
        if spent >= ROUND {
            return f64::from(written) / spent.as_secs_f64();
        }
    }
}
