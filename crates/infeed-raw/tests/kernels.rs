//! Errors of kernels, and the agreement of launches with the PTX.

use infeed_raw::kernel::{
    BLOCK, ENTRIES, Integer, Kernel, KernelError, MAX_ELEMENTS, PTX, RowView, Table,
};
use infeed_raw::simd::{Dtype, Layout};

const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::BF16];
const LAYOUTS: [Layout; 2] = [Layout::Hwc, Layout::Chw];

fn expand(height: usize, width: usize, channels: usize) -> Kernel {
    Kernel::Expand {
        height,
        width,
        channels,
        dtype: Dtype::F32,
        layout: Layout::Chw,
        scale: [1.0; 4],
        bias: [0.0; 4],
    }
}

fn one_hot(height: usize, width: usize, classes: usize) -> Kernel {
    Kernel::OneHot {
        height,
        width,
        classes,
        dtype: Dtype::BF16,
        layout: Layout::Hwc,
    }
}

fn palette(colours: Vec<[u8; 3]>, classes: Vec<u8>) -> Kernel {
    Kernel::Classes {
        height: 2,
        width: 3,
        colours,
        classes,
        unknown: 255,
    }
}

/// One kernel for each entry except those of resizes, which take rows of any size.
fn all() -> Vec<Kernel> {
    let mut all = vec![palette(vec![[1, 2, 3]], vec![7])];
    all.extend([Integer::I32, Integer::I64].map(|dtype| Kernel::Widen {
        height: 4,
        width: 5,
        dtype,
        unknown: -100,
    }));
    for dtype in DTYPES {
        for layout in LAYOUTS {
            all.push(Kernel::Expand {
                height: 4,
                width: 5,
                channels: 3,
                dtype,
                layout,
                scale: [1.0; 4],
                bias: [0.0; 4],
            });
            all.push(Kernel::OneHot {
                height: 4,
                width: 5,
                classes: 6,
                dtype,
                layout,
            });
        }
    }
    all
}

/// A resize for each entry.
fn resizes() -> Vec<Kernel> {
    let of = |dtype| {
        LAYOUTS.map(|layout| Kernel::Resize {
            height: 4,
            width: 5,
            channels: 3,
            dtype,
            layout,
            scale: [1.0; 4],
            bias: [0.0; 4],
        })
    };
    DTYPES.into_iter().flat_map(of).collect()
}

#[test]
fn a_wrong_length_is_an_error_with_the_right_one_and_writes_nothing() {
    for kernel in all() {
        let (input, output) = (
            kernel.input_bytes(2).unwrap(),
            kernel.output_bytes(2).unwrap(),
        );
        for wrong in [0, input - 1, input + 1] {
            let mut out = vec![9; output];
            assert_eq!(
                kernel.run(2, &vec![0; wrong], None, &mut out),
                Err(KernelError::Input {
                    expected: input,
                    found: wrong
                })
            );
            assert!(out.iter().all(|&byte| byte == 9));
        }
        for wrong in [0, output - 1, output + 1] {
            assert_eq!(
                kernel.run(2, &vec![0; input], None, &mut vec![9; wrong]),
                Err(KernelError::Output {
                    expected: output,
                    found: wrong
                })
            );
        }
    }
}

#[test]
fn a_view_beyond_the_input_is_an_error_that_names_its_row() {
    let kernel = expand(4, 5, 3);
    let fitting = RowView {
        offset: 10,
        row_bytes: 20,
        flags: 3,
    };
    let output = kernel.output_bytes(2).unwrap();
    // The last line ends at the end of the input: 10 + 3 * 20 + 15.
    let check = |view, input| kernel.check(2, input, Some(Table::Views(&[fitting, view])), output);
    assert_eq!(check(fitting, 85), Ok(()));

    let wrong = [
        RowView {
            offset: 11,
            ..fitting
        },
        RowView {
            offset: u64::MAX,
            ..fitting
        },
        RowView {
            offset: u64::MAX - 74,
            ..fitting
        },
        RowView {
            row_bytes: 21,
            ..fitting
        },
        RowView {
            row_bytes: u32::MAX,
            ..fitting
        },
        // Overlapping lines, and unknown flips.
        RowView {
            row_bytes: 14,
            ..fitting
        },
        RowView {
            flags: 4,
            ..fitting
        },
    ];
    for view in wrong {
        let error = check(view, 85).unwrap_err();
        assert!(
            matches!(error, KernelError::View { row: 1, offset, .. } if offset == view.offset),
            "{view:?}: {error}"
        );
    }
    assert!(matches!(
        check(fitting, 84),
        Err(KernelError::View { row: 0, .. })
    ));
    assert_eq!(
        kernel.check(
            3,
            85,
            Some(Table::Views(&[fitting; 2])),
            kernel.output_bytes(3).unwrap()
        ),
        Err(KernelError::Views { rows: 3, found: 2 })
    );
    assert_eq!(
        kernel.check(2, 85, Some(Table::Views(&[fitting; 2])), output - 4),
        Err(KernelError::Output {
            expected: output,
            found: output - 4
        })
    );
}

#[test]
fn sizes_that_overflow_are_errors() {
    let huge = [
        1 << 15,
        1 << 16,
        MAX_ELEMENTS,
        1 << 31,
        1 << 32,
        usize::MAX / 3,
        usize::MAX,
    ];
    for a in huge {
        for b in huge {
            for kernel in [
                expand(a, b, 3),
                expand(a, 3, b),
                expand(3, a, b),
                one_hot(a, 1, b),
                one_hot(a, b, 256),
            ] {
                let error = kernel.check(1, 0, None, 0).unwrap_err();
                assert!(
                    matches!(
                        error,
                        KernelError::TooLarge { .. } | KernelError::Input { .. }
                    ),
                    "{error}"
                );
                let _ = kernel.launch(1, 0, None, 0);
                let _ = kernel.launch(b, 0, Some(8), 0);
                assert!(
                    kernel
                        .run(a, &[], Some(Table::Views(&[])), &mut [])
                        .is_err()
                );
            }
        }
    }
    // One side may be 0 and the other of any length, up to the limit of indices.
    assert_eq!(expand(0, 1000, 3).run(2, &[], None, &mut []), Ok(()));
    assert!(expand(0, usize::MAX, 3).check(1, 0, None, 0).is_err());
    assert!(expand(usize::MAX, 0, 3).check(1, 0, None, 0).is_err());
}

#[test]
fn more_rows_than_a_grid_has_blocks_are_an_error() {
    let kernel = expand(1, 1, 1);
    let rows = i32::MAX as usize;
    assert!(kernel.check(rows, rows, None, 4 * rows).is_ok());
    assert!(matches!(
        kernel.check(rows + 1, rows + 1, None, 4 * (rows + 1)),
        Err(KernelError::TooLarge { .. })
    ));
}

#[test]
fn the_largest_row_fits_its_grid() {
    // Bytes, so that a thread writes 16 of them.
    let kernel = Kernel::OneHot {
        height: 1,
        width: MAX_ELEMENTS,
        classes: 1,
        dtype: Dtype::U8,
        layout: Layout::Chw,
    };
    let launch = kernel.launch(1, 0, None, 0).unwrap();
    let threads = launch.grid[0] as usize * BLOCK as usize;
    assert!(threads * 16 >= MAX_ELEMENTS + 15);
    assert!(threads * 16 < 1 << 31, "indices are 31 bits");
}

#[test]
fn a_launch_of_no_elements_succeeds() {
    for kernel in all() {
        assert_eq!(kernel.run(0, &[], None, &mut []), Ok(()));
        assert_eq!(kernel.run(0, &[], Some(Table::Views(&[])), &mut []), Ok(()));
        assert!(kernel.launch(0, 256, None, 256).unwrap().is_empty());
    }
    assert!(
        one_hot(0, 7, 5)
            .launch(3, 256, None, 256)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn invalid_kernels_are_rejected() {
    let rejected = |kernel: Kernel| kernel.check(0, 0, None, 0).unwrap_err().to_string();
    assert_eq!(
        rejected(expand(4, 5, 0)),
        "a pixel has no channels; give at least one"
    );
    assert_eq!(
        rejected(one_hot(4, 5, 0)),
        "a pixel has no classes; give at least one"
    );
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut kernel = expand(4, 5, 3);
        if let Kernel::Expand { scale, .. } = &mut kernel {
            scale[2] = value;
        }
        assert_eq!(
            rejected(kernel),
            format!("scale {value} of channel 2 is not finite")
        );
    }
    assert_eq!(
        rejected(palette(vec![[0; 3]; 2], vec![1])),
        "2 colours and 1 classes; give the same number of both, at most 255"
    );
    assert_eq!(
        rejected(palette(vec![[0; 3]; 256], vec![1; 256])),
        "256 colours and 256 classes; give the same number of both, at most 255"
    );
    assert_eq!(
        rejected(palette(vec![[1, 2, 3], [0; 3], [1, 2, 3]], vec![5, 5, 6])),
        "the colour 1,2,3 belongs to class 5 and class 6"
    );
    let wide = |dtype, unknown| Kernel::Widen {
        height: 4,
        width: 5,
        dtype,
        unknown,
    };
    assert_eq!(
        rejected(wide(Integer::I32, 1 << 31)),
        "the number 2147483648 for pixels without a class does not fit int32; use int64"
    );
    assert_eq!(wide(Integer::I64, i64::MIN).check(0, 0, None, 0), Ok(()));
    // The same colour and class twice is allowed.
    assert_eq!(
        palette(vec![[1, 2, 3]; 2], vec![5, 5]).check(0, 0, None, 0),
        Ok(())
    );
}

#[test]
fn misaligned_addresses_are_rejected_before_a_device_faults() {
    let kernel = expand(4, 5, 3);
    assert!(kernel.launch(1, 3, Some(8), 4).is_ok());
    for (table, output, what) in [(None, 2, "output"), (Some(12), 4, "table")] {
        let error = kernel.launch(1, 3, table, output).unwrap_err();
        assert!(error.to_string().starts_with(&format!("the {what} is")));
    }
}

#[test]
fn every_launch_is_an_entry_of_the_ptx_with_an_argument_of_its_length() {
    let ptx = PTX.to_str().unwrap();
    let mut launched = Vec::new();
    for kernel in all().into_iter().chain(resizes()) {
        let launch = kernel.launch(3, 256, Some(512), 1024).unwrap();
        let name = launch.entry.to_str().unwrap();
        let bytes = launch.arguments.len() * 8;
        let declared =
            format!(".visible .entry {name}(\n\t.param .align 8 .b8 {name}_param_0[{bytes}]\n)");
        assert!(ptx.contains(&declared), "{declared}");
        assert_eq!(launch.block, [BLOCK, 1, 1]);
        launched.push(launch.entry);
    }
    launched.sort_unstable();
    let mut listed = ENTRIES.to_vec();
    listed.sort_unstable();
    assert_eq!(launched, listed);
    assert_eq!(ptx.matches(".entry ").count(), listed.len());
}

#[test]
fn the_ptx_rounds_every_product_and_sum_and_keeps_its_arrays_in_registers() {
    let ptx = PTX.to_str().unwrap();
    for allowed in [".version 6.0", ".target sm_60", "mul.rn.f32", "add.rn.f32"] {
        assert!(ptx.contains(allowed), "{allowed}");
    }
    // Fused operations, operations that an assembler may fuse, denormal numbers flushed to zero,
    // and local memory of a thread.
    for forbidden in ["fma.", "mul.f32", "add.f32", ".ftz", ".local"] {
        assert!(!ptx.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn views_are_stored_as_the_bytes_that_a_kernel_reads() {
    let view = RowView {
        offset: 0x1_0000_0002,
        row_bytes: 3,
        flags: RowView::FLIP_Y,
    };
    let bytes = RowView::bytes(std::slice::from_ref(&view));
    assert_eq!(bytes.len(), RowView::BYTES);
    assert_eq!(bytes[..8], view.offset.to_ne_bytes());
    assert_eq!(bytes[8..12], 3_u32.to_ne_bytes());
    assert_eq!(bytes[12..], 2_u32.to_ne_bytes());
}
