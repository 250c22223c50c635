//! Tests of the kernels on the host.
