//! What comes over the wire: any bytes give a frame, a hello, rows, or an error.
#![no_main]

use infeed_feed::wire::frame::{self, CONTROL_BYTES, Kind};
use infeed_feed::wire::hello::Hello;
use infeed_feed::wire::rows::{ColumnLayout, RowsHead, RowsLayout};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let layout = RowsLayout {
        columns: vec![
            ColumnLayout::Slab { row_bytes: 12 },
            ColumnLayout::Own {
                rank: Some(usize::from(first % 5)),
                element: 4,
            },
            ColumnLayout::Own {
                rank: None,
                element: 1,
            },
        ],
        pixels: first & 64 != 0,
        row_bytes: 1 << 16,
    };
    let _ = Hello::decode(bytes);
    if let Ok(head) = RowsHead::decode(bytes, &layout, usize::from(first % 7)) {
        let again = head.encode(&layout);
        RowsHead::decode(&again, &layout, head.rows.len()).expect("its own");
    }
    let mut from = bytes;
    while let Ok(head) = frame::head(&mut from, |_| CONTROL_BYTES) {
        if frame::body(&mut from, head).is_err() {
            break;
        }
    }
    let _ = frame::control(&mut &bytes[..], &[Kind::Hello]);
});
