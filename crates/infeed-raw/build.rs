//! Compiles the kernels for the host. Their PTX is checked in: `scripts/kernels` makes it.

fn main() {
    println!("cargo:rerun-if-changed=kernels");
    cc::Build::new()
        .file("kernels/infeed.c")
        .include("kernels")
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .opt_level(2)
        // A product and a sum are rounded each: the bits must be those of every other processor.
        .flag("-ffp-contract=off")
        .compile("infeed_kernels");
}
