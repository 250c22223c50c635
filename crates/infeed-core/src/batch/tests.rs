//! Tests of rows, slabs and gathered columns.

use super::array::ArrayMemory;
use super::*;
use crate::sample::DType;

fn fixed_column(name: &str, shape: &[usize]) -> ColumnSpec {
    let kind = ColumnKind::Fixed {
        dtype: DType::UInt8,
        shape: shape.to_vec(),
    };
    ColumnSpec {
        name: name.to_owned(),
        kind,
    }
}

fn fill(rows: Vec<BatchRow>) -> Vec<Option<RowDone>> {
    let fill = |(n, mut row): (usize, BatchRow)| {
        for cell in &mut row.cells {
            match cell {
                RowCell::Slab(slot) => slot.bytes_mut().fill(n as u8 + 1),
                RowCell::Own { shape, bytes } => {
                    *shape = vec![n + 1, 2];
                    *bytes = vec![n as u8 + 1; (n + 1) * 2];
                }
            }
        }
        Some(row.finish(n as u64 + 10))
    };
    rows.into_iter().enumerate().map(fill).collect()
}

#[test]
fn rows_filled_in_place_become_the_batch() {
    let batcher = Batcher::new(
        vec![fixed_column("image", &[2]), fixed_column("label", &[])],
        3,
        2,
    );
    let (in_flight, rows) = batcher.begin(3).expect("memory");

    let batch = batcher.finish(in_flight, fill(rows), 0, 0).expect("memory");

    let image = batch.array("image").expect("a column");
    assert_eq!(image.shape(), [3, 2]);
    assert_eq!(image.bytes(), [1, 1, 2, 2, 3, 3]);
    assert_eq!(batch.array("label").expect("a column").shape(), [3]);
    assert_eq!(batch.records, [10, 11, 12]);
}

#[test]
fn rows_after_a_removed_row_move_up() {
    let batcher = Batcher::new(vec![fixed_column("image", &[2])], 4, 2);
    let (in_flight, rows) = batcher.begin(4).expect("memory");
    let mut rows = fill(rows);
    rows[1] = None;

    let batch = batcher.finish(in_flight, rows, 0, 0).expect("memory");

    assert_eq!(
        batch.array("image").expect("a column").bytes(),
        [1, 1, 3, 3, 4, 4]
    );
    assert_eq!(batch.records, [10, 12, 13]);
}

#[test]
fn a_slab_is_reused_after_its_last_array_is_dropped() {
    let batcher = Batcher::new(vec![fixed_column("image", &[64])], 2, 1);
    let address = |batch: &Batch| batch.array("image").expect("a column").bytes().as_ptr();
    let make = || {
        let (in_flight, rows) = batcher.begin(2).expect("memory");
        batcher.finish(in_flight, fill(rows), 0, 0).expect("memory")
    };

    let first = make();
    let (held, place) = (first.array("image").cloned(), address(&first));
    drop(first);
    let second = make();
    let other = address(&second);
    assert_ne!(other, place, "still viewed");
    assert_eq!(batcher.live(), 2);

    drop((held, second));
    assert_eq!(batcher.live(), 0);
    let third = make();
    assert!(
        [place, other].contains(&address(&third)),
        "one of two was kept"
    );
}

#[test]
fn a_dropped_in_flight_batch_recycles_its_slab() {
    let batcher = Batcher::new(vec![fixed_column("image", &[64])], 2, 1);
    let (in_flight, rows) = batcher.begin(2).expect("memory");

    drop(rows);
    drop(in_flight);

    let pool = batcher.pools[0].as_ref().expect("a pool");
    assert_eq!(pool.free(), 1);
}

#[test]
fn rows_of_differing_sizes_are_padded_with_zeros_to_the_largest() {
    let kind = ColumnKind::Padded {
        dtype: DType::UInt8,
        rank: 2,
    };
    let batcher = Batcher::new(
        vec![ColumnSpec {
            name: "image".to_owned(),
            kind,
        }],
        2,
        1,
    );
    let (in_flight, rows) = batcher.begin(2).expect("memory");

    let batch = batcher.finish(in_flight, fill(rows), 0, 0).expect("memory");

    let image = batch.array("image").expect("a column");
    assert_eq!(image.shape(), [2, 2, 2]);
    assert_eq!(image.bytes(), [1, 1, 0, 0, 2, 2, 2, 2]);
}

#[test]
fn padding_rows_are_zeros_in_a_reused_slab() {
    let kind = ColumnKind::Padded {
        dtype: DType::UInt8,
        rank: 2,
    };
    let name = "boxes".to_owned();
    let columns = vec![fixed_column("image", &[2]), ColumnSpec { name, kind }];
    let batcher = Batcher::new(columns, 2, 1);
    let (in_flight, rows) = batcher.begin(2).expect("memory");
    drop(batcher.finish(in_flight, fill(rows), 0, 0).expect("memory"));

    let (in_flight, mut rows) = batcher.begin(2).expect("memory");
    let last = rows.pop().map(|mut row| row.blank());
    let mut done = fill(rows);
    done.push(last);
    let batch = batcher.finish(in_flight, done, 0, 1).expect("memory");

    let bytes = |name| batch.array(name).expect("a column").bytes();
    assert_eq!(bytes("image"), [1, 1, 0, 0]);
    assert_eq!(bytes("boxes"), [1, 1, 0, 0]);
    assert_eq!(batch.records, [10, PADDING]);
    assert_eq!((batch.rows(), batch.samples()), (2, 1));
}

#[test]
fn lists_of_differing_length_become_values_and_offsets() {
    let kind = ColumnKind::Ragged {
        dtype: DType::UInt8,
        item: Vec::new(),
    };
    let batcher = Batcher::new(
        vec![ColumnSpec {
            name: "boxes".to_owned(),
            kind,
        }],
        2,
        1,
    );
    let (in_flight, rows) = batcher.begin(2).expect("memory");

    let batch = batcher.finish(in_flight, fill(rows), 0, 0).expect("memory");

    let Some(Values::Ragged { values, offsets }) = batch.get("boxes") else {
        panic!("not ragged")
    };
    assert_eq!(values.bytes(), [1, 1, 2, 2, 2, 2]);
    assert_eq!(offsets.bytes()[8], 2);
    assert_eq!(offsets.bytes()[16], 6);
}

#[test]
fn items_of_several_numbers_are_counted_as_one() {
    let kind = ColumnKind::Ragged {
        dtype: DType::UInt8,
        item: vec![2],
    };
    let name = "boxes".to_owned();
    let batcher = Batcher::new(vec![ColumnSpec { name, kind }], 2, 1);
    let (in_flight, rows) = batcher.begin(2).expect("memory");

    let batch = batcher.finish(in_flight, fill(rows), 0, 0).expect("memory");

    let Some(Values::Ragged { values, offsets }) = batch.get("boxes") else {
        panic!("not ragged")
    };
    assert_eq!(values.shape(), [3, 2]);
    assert_eq!((offsets.bytes()[8], offsets.bytes()[16]), (1, 3));
}

#[test]
fn batch_layouts_share_slabs_of_the_largest_size() {
    let layouts = vec![
        vec![fixed_column("image", &[2]), fixed_column("label", &[])],
        vec![fixed_column("image", &[8]), fixed_column("label", &[])],
    ];
    let batcher = Batcher::with_layouts(layouts, 3, 1, None);
    assert_eq!(batcher.slab_bytes(), 3 * (8 + 1));
    let address = |batch: &Batch| batch.array("image").expect("a column").bytes().as_ptr();
    let make = |layout| {
        let (in_flight, rows) = batcher.begin_as(layout, 3, 1).expect("memory");
        batcher.finish(in_flight, fill(rows), 0, 0).expect("memory")
    };

    let small = make(0);
    let place = address(&small);
    let image = small.array("image").expect("a column");
    assert_eq!(
        (image.shape(), image.bytes()),
        (&[3, 2][..], &[1, 1, 2, 2, 3, 3][..])
    );
    drop(small);

    let large = make(1);
    assert_eq!(address(&large), place);
    let image = large.array("image").expect("a column");
    assert_eq!((image.shape(), image.bytes().len()), (&[3, 8][..], 24));
    assert_eq!(image.bytes()[..9], [1, 1, 1, 1, 1, 1, 1, 1, 2]);
}

#[test]
fn slabs_shrink_to_the_remaining_layouts() {
    let layouts = vec![
        vec![fixed_column("image", &[2])],
        vec![fixed_column("image", &[8])],
    ];
    let batcher = Batcher::with_layouts(layouts, 3, 4, None);
    let make = |layout| {
        let (in_flight, rows) = batcher.begin_as(layout, 3, 1).expect("memory");
        batcher.finish(in_flight, fill(rows), 0, 0).expect("memory")
    };
    let room = |batch: &Batch| match &*batch.array("image").expect("a column").memory {
        ArrayMemory::Pooled(pooled) => pooled.slab.as_ref().map_or(0, |slab| slab.as_ref().len()),
        _ => 0,
    };
    let free = || batcher.pools[0].as_ref().map_or(0, |pool| pool.free());
    let before = make(0);
    assert_eq!(room(&before), 24);

    batcher.make_room(0..1);

    drop(before);
    assert_eq!(free(), 0, "it has more room than is wanted");
    let small = make(0);
    assert_eq!(room(&small), 6);
    drop(small);
    assert_eq!(free(), 1);
    // A batch of a layout that is no longer planned still gets enough room.
    assert_eq!(room(&make(1)), 24);
    assert_eq!(free(), 1);

    batcher.make_room(0..2);
    assert_eq!(room(&make(0)), 24);
    assert_eq!(free(), 1, "the small one went as this was made");
    assert_eq!(room(&make(1)), 24);
}
