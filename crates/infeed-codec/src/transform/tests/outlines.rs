//! Outlines move with the pixels under them, and their maps show what is left of them.

use super::*;

const IMAGE: Size = Size {
    height: 40,
    width: 60,
};

fn outlines(objects: &[&[[f64; 2]]]) -> MovingOutlines {
    let mut outlines = MovingOutlines::new(IMAGE);
    for object in objects {
        outlines.add_polygon(object.iter().copied());
        outlines.end_object();
    }
    outlines
}

fn map_of(outlines: &MovingOutlines, image: Size, stride: u32) -> (Vec<i32>, Size) {
    let map = ObjectMap::new(image, stride);
    let mut scratch = Vec::new();
    let objects: Vec<PaintedObject> = (0..outlines.len())
        .map(|object| outlines.paint(object, map, &mut scratch))
        .collect();
    let mut pixels = vec![-1; map.size.pixels() as usize];
    write_map(&objects, map.size.width, &mut pixels);
    (pixels, map.size)
}

/// Returns the pixels of an object, row by row, as text.
fn rows_of((pixels, size): (Vec<i32>, Size)) -> Vec<String> {
    let rows = pixels.chunks(size.width as usize);
    rows.map(|row| row.iter().map(|number| char::from(b'0' + *number as u8)))
        .map(String::from_iter)
        .collect()
}

const SQUARE: [[f64; 2]; 4] = [[10.0, 10.0], [20.5, 10.0], [20.5, 30.0], [10.0, 30.0]];

#[test]
fn boxes_surround_the_visible_part_of_an_outline() {
    // A triangle whose tip is in the image: its box is narrower than that around its corners.
    let tip = [[50.0, 20.0], [90.0, 0.0], [90.0, 40.0]];
    let found = outlines(&[&tip]).extent(0);
    assert_eq!(found.whole, [50.0, 0.0, 90.0, 40.0]);
    assert_eq!(found.visible, Some([50.0, 15.0, 60.0, 25.0]));

    // The image is in the hole of a ring that is open on one side: nothing is visible.
    let ring = [
        [-9.0, -9.0],
        [70.0, -9.0],
        [70.0, 50.0],
        [-9.0, 50.0],
        [-9.0, 49.0],
        [69.0, 49.0],
        [69.0, -8.0],
        [-9.0, -8.0],
    ];
    assert_eq!(outlines(&[&ring]).extent(0).visible, None);

    // An outline around the image shows all of it.
    let around = [[-5.0, -5.0], [99.0, -5.0], [99.0, 99.0], [-5.0, 99.0]];
    let found = outlines(&[&around]).extent(0);
    assert_eq!(found.visible, Some([0.0, 0.0, 60.0, 40.0]));
}

#[test]
fn outlines_move_as_points_do() {
    for step in [
        Step::FlipX,
        Step::zero_pad([3, 4, 5, 6]),
        Step::Crop(Region {
            top: 5,
            left: 8,
            size: size(20, 30),
        }),
    ] {
        let mut moved = outlines(&[&SQUARE]);
        moved.follow(&step, IMAGE);

        let corners = SQUARE.map(|at| step.move_point(at, IMAGE));
        let [first, _, third, _] = corners;
        let expected = [0, 1].map(|side: usize| first[side].min(third[side]));
        assert_eq!(moved.extent(0).whole[..2], expected, "{step}");
    }
}

#[test]
fn a_part_that_a_crop_removed_does_not_come_back() {
    let crop = Step::Crop(Region {
        top: 0,
        left: 15,
        size: size(40, 20),
    });
    let mut moved = outlines(&[&SQUARE]);
    moved.follow(&crop, IMAGE);
    moved.follow(&Step::zero_pad([10, 0, 10, 0]), size(40, 20));

    let found = moved.extent(0);
    assert_eq!(found.whole, [5.0, 10.0, 15.5, 30.0]);
    assert_eq!(found.visible, Some([10.0, 10.0, 15.5, 30.0]));
    let visible: Vec<_> = moved.visible_polygons(0).collect();
    let expected = [[10.0, 10.0], [15.5, 10.0], [15.5, 30.0], [10.0, 30.0]];
    assert_eq!(visible, [expected.to_vec()]);
    moved.follow(&Step::FlipX, size(40, 40));
    let expected = expected.map(|[x, y]| [40.0 - x, y]);
    assert_eq!(moved.visible_polygons(0).next(), Some(expected.to_vec()));
    moved.follow(&Step::FlipX, size(40, 40));
    let (pixels, map) = map_of(&moved, size(40, 40), 1);
    let row = &pixels[15 * map.width as usize..][..20];
    assert_eq!(row[..10], [0; 10]);
    assert_eq!(row[10..16], [1; 6]);
    assert_eq!(row[16..], [0; 4]);
}

#[test]
fn an_object_has_the_pixels_that_it_touches() {
    let triangle = [[1.2, 1.5], [5.7, 1.5], [1.2, 4.4]];
    let found = rows_of(map_of(&outlines(&[&triangle]), size(6, 8), 1));
    assert_eq!(
        found,
        [
            "00000000", "01111100", "01111000", "01110000", "01000000", "00000000"
        ]
    );
}

#[test]
fn a_later_object_covers_those_before_it() {
    let large = [[2.0, 2.0], [29.9, 2.0], [29.9, 29.9], [2.0, 29.9]];
    let small = [[8.0, 8.0], [15.9, 8.0], [15.9, 15.9], [8.0, 15.9]];
    let (pixels, map) = map_of(&outlines(&[&large, &small]), IMAGE, 4);
    let at = |row: usize, column: usize| pixels[row * map.width as usize + column];
    assert_eq!(map, size(10, 15));
    assert_eq!([at(2, 2), at(5, 5), at(9, 9)], [2, 1, 0]);
}

#[test]
fn damaged_outlines_paint_nothing_and_do_not_panic() {
    let bad = [
        [f64::NAN, f64::INFINITY],
        [1e300, -1e300],
        [f64::NEG_INFINITY, 3.0],
    ];
    for object in [&bad[..], &bad[..1], &[], &SQUARE[..1], &SQUARE[..2]] {
        let mut moved = outlines(&[object]);
        moved.follow(&Step::FlipX, IMAGE);
        moved.extent(0);
        for stride in [0, 1, 3, 4, 64] {
            map_of(&moved, IMAGE, stride);
        }
    }
}
