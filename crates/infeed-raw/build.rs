//! Compiles the kernels for the host and the C part of `jpeg_coefficients`. The kernels' PTX is
//! checked in; `scripts/kernels` generates it. Selects the system interfaces.

use std::env::{var, var_os};

fn main() {
    // `RUSTFLAGS="--cfg infeed_portable"` selects the code for other systems, to test it on Linux.
    println!("cargo:rustc-check-cfg=cfg(linux_system)");
    let is_linux = var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if is_linux && var_os("CARGO_CFG_INFEED_PORTABLE").is_none() {
        println!("cargo:rustc-cfg=linux_system");
    }

    println!("cargo:rerun-if-changed=kernels");
    cc::Build::new()
        .file("kernels/infeed.c")
        .include("kernels")
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .opt_level(2)
        // Products and sums are rounded separately, so that every processor computes the same bits.
        .flag("-ffp-contract=off")
        .compile("infeed_kernels");

    println!("cargo:rerun-if-changed=libjpeg");
    let mut shim = cc::Build::new();
    shim.file("libjpeg/coefficients.c")
        .std("c11")
        .warnings(true)
        .opt_level(2);
    // Headers of the library that turbojpeg-sys built.
    for path in var("DEP_TURBOJPEG_INCLUDE").unwrap_or_default().split(',') {
        shim.include(path);
    }
    shim.compile("infeed_libjpeg");
}
