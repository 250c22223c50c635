//! t
use super::Module;
#[test]
fn parses() {
    let module = Module::parse(infeed_raw::kernel::PTX.to_str().unwrap()).unwrap();
    assert_eq!(module.entries().count(), 27);
}
