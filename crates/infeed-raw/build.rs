//! Compiles the kernels for the host. Their PTX is checked in; `scripts/kernels` generates it.

fn main() {
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
}
