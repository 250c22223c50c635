//! Outlines with any corners move, and are painted within their map. Mirrored copies of their objects
//! are pasted within their image.
#![no_main]

use infeed_codec::transform::{
    MirroredPaste, MovingOutlines, ObjectMap, OutlinedObject, Pad, PaintedObject, PixelView,
    RandomAffine, RandomPerspective, Rng, Step, Transform, TransformScratch, write_map,
};
use infeed_core::sample::{Depth, Image, Region, Size};
use libfuzzer_sys::fuzz_target;

const IMAGE: Size = Size {
    height: 37,
    width: 53,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((&[stride, seed, kinds], bytes)) = bytes.split_first_chunk() else {
        return;
    };
    let mut outlines = MovingOutlines::new(IMAGE);
    for polygon in bytes.split(|byte| *byte == b'\n') {
        // Small numbers and any others.
        let number = |bytes: &[u8]| match bytes {
            &[a, b, c, d] if a % 2 == 0 => f64::from(f32::from_le_bytes([a, b, c, d])),
            &[_, b, ..] => f64::from(b as i8) / 2.0,
            _ => 0.0,
        };
        let corners = polygon.chunks_exact(8);
        outlines.add_polygon(corners.map(|of| [number(&of[..4]), number(&of[4..])]));
        outlines.end_object();
    }
    let mut size = IMAGE;
    for (at, step) in steps(seed).iter().enumerate() {
        if kinds >> at & 1 == 1 {
            outlines.follow(step, size);
            size = step.output_size(size);
        }
    }
    let map = ObjectMap::new(size, stride.into());
    let mut scratch = Vec::new();
    let objects: Vec<PaintedObject> = (0..outlines.len())
        .map(|object| {
            let visible = outlines.extent(object).visible;
            let painted = outlines.paint(object, map, &mut scratch);
            assert!(visible.is_some() || painted.area() == 0);
            assert!(painted.area() <= map.size.pixels());
            outlines.visible_polygons(object).for_each(drop);
            painted
        })
        .collect();
    let mut numbers = vec![0; map.size.pixels() as usize];
    write_map(&objects, map.size.width, &mut numbers);
    assert!(
        numbers
            .iter()
            .all(|number| *number as usize <= objects.len())
    );
    paste_copies(&outlines, size);
});

/// Pastes mirrored copies of all objects on an image.
fn paste_copies(outlines: &MovingOutlines, size: Size) {
    let object = |number| {
        Some(OutlinedObject {
            number: [0, number],
            corners: outlines.extent(number).visible?,
            polygons: outlines.visible_polygons(number).collect(),
        })
    };
    let objects: Vec<OutlinedObject> = (0..outlines.len()).filter_map(object).collect();
    let paste = MirroredPaste {
        share: 1.0,
        max_overlap: f64::MAX,
    };
    if let Some(step) = paste.choose(&objects, size) {
        let (mut image, mut pasted) = (Image::default(), Image::default());
        image.reset(size, 1, Depth::U8);
        let view = PixelView::from(&image);
        let applied = step.apply(view, &mut pasted, false, &mut TransformScratch::default());
        applied.expect("pastes");
        assert_eq!(pasted.size, size);
    }
}

/// Returns steps for an image and for the results of the steps before.
fn steps(seed: u8) -> Vec<Step> {
    let mut draws = Rng::new(seed.into(), 0, 0, 0);
    let crop = Step::Crop(Region {
        top: 3,
        left: 5,
        size: Size {
            height: 30,
            width: 40,
        },
    });
    let transforms: [Transform; 3] = [
        Pad::new(6).into(),
        RandomAffine {
            perspective: (seed % 2 == 1).then_some(0.01),
            ..RandomAffine::new(40.0)
        }
        .into(),
        RandomPerspective::new(1.0).into(),
    ];
    let mut steps = vec![Step::FlipX, crop];
    for transform in transforms {
        steps.extend(transform.draw(IMAGE, &mut draws).unwrap_or_default());
    }
    steps
}
