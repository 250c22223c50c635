//! The ceilings of this machine, measured, and of machines one is not on, by name.
