//! Tests of the simulated device.
