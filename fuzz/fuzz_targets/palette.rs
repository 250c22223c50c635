//! A palette of any text: every colour that it names is the class that it names.
#![no_main]

use infeed_codec::transform::Palette;
use infeed_fuzz::shards::file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(palette) = Palette::from_csv(file("palette.csv", bytes)) else {
        return;
    };
    assert_eq!(palette.names().len(), palette.classes());
    for (class, &color) in palette.colors().iter().enumerate() {
        assert_eq!(palette.class(color).map(usize::from), Some(class));
    }
});
