//! One image from its file to a batch, on one thread, through the functions that the engine calls
//! on many threads: the tour of `lib.rs`. A loader checks the result at the end.

use std::error::Error;

use infeed::pipeline::{Layout, SourceSpec};
use infeed::{Options, Pipeline};
use infeed_codec::decode::{ColorMode, Decoder, Limits, Request};
use infeed_codec::transform::{
    Normalize, PixelView, RandomResizedCrop, Rng, Step, Transform, TransformScratch,
};
use infeed_core::batch::{Batcher, ColumnKind, ColumnSpec, RowCell};
use infeed_core::sample::{DType, Image, Size};
use infeed_raw::simd;
use infeed_sample::{Classification, write_dataset};
use infeed_source::folder::{Folder, FolderOptions, Labels};
use infeed_source::{Source, read_one};

const SEED: u64 = 0;
const SIDE: u32 = 224;
const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const STD: [f64; 3] = [0.229, 0.224, 0.225];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("infeed-one-image-{}", std::process::id()));
    let size = Size {
        height: 375,
        width: 500,
    };
    let photos = Classification {
        count: 4,
        classes: 2,
        seed: SEED,
        size,
        quality: 90..=95,
    };
    write_dataset(&photos, &folder, 1, &|_| true)?;
    let result = tour(&folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn tour(folder: &std::path::Path) -> Result<(), Box<dyn Error>> {
    // 1. A source gives the encoded bytes of a record. In source order, position 0 is record 0.
    let source = Folder::open(folder, &FolderOptions::new(Labels::Auto))?;
    let record = read_one(&source, 0)?;
    println!(
        "1 source     {}: {} bytes",
        source.id(0, None),
        record.fields[0].len()
    );

    // 2. Random parameters are drawn from the size alone, before decoding ...
    let mut decoder = Decoder::new();
    let header = decoder.header(&record.fields[0], false, &Limits::default())?;
    decoder.check(&record.fields[0], &header, true)?;
    let transform = Transform::from(RandomResizedCrop::new(SIDE));
    let steps = transform.draw(header.size, &mut Rng::new(SEED, 0, 0, 0))?;
    let [Step::Crop(region), resize] = steps.as_slice() else {
        return Err("a crop and a resize".into());
    };
    // ... so that the decoder makes only the pixels that the crop keeps.
    let mut pixels = Image::default();
    let request = Request {
        region: *region,
        ..Request::whole(&header, ColorMode::Rgb)
    };
    decoder.decode(&record.fields[0], &header, &request, &mut pixels)?;
    println!("2 decode     {} px of {} px", pixels.size, header.size);

    // 3. Transforms go from pixels to pixels.
    let mut resized = Image::default();
    let mut scratch = TransformScratch::default();
    resize.apply(PixelView::from(&pixels), &mut resized, false, &mut scratch)?;
    println!("3 transform  {} px", resized.size);

    // 4. One pass writes the row: cast, normalize and layout together.
    let shape = vec![3, SIDE as usize, SIDE as usize];
    let kind = ColumnKind::Fixed {
        dtype: DType::Float32,
        shape,
    };
    let batcher = Batcher::new(
        vec![ColumnSpec {
            name: "image".to_owned(),
            kind,
        }],
        1,
        1,
    );
    let (in_flight, mut rows) = batcher.begin(1)?;
    let mut row = rows.remove(0);
    if let RowCell::Slab(slot) = &mut row.cells[0] {
        let four = |value: &dyn Fn(usize) -> f64| std::array::from_fn(|c| value(c.min(2)) as f32);
        let convert = simd::Convert {
            dtype: simd::Dtype::F32,
            layout: simd::Layout::Chw,
            flip_x: false,
            flip_y: false,
            scale: four(&|c| 1.0 / (255.0 * STD[c])),
            bias: four(&|c| -MEAN[c] / STD[c]),
        };
        let from = simd::SourcePixels {
            data: &resized.data,
            width: resized.width(),
            height: resized.height(),
            channels: 3,
            row_bytes: resized.row_bytes(),
        };
        simd::convert(simd::Level::detect(), &from, &convert, slot.bytes_mut());
    }

    // 5. A batch is complete when its rows are; nothing is copied together.
    let done = row.finish(record.index);
    drop(row);
    let batch = batcher.finish(in_flight, vec![Some(done)], 0, 0)?;
    println!("4, 5 batch   {:?}", batch.array("image"));

    // 6. The loader does the same for every position, on all cores.
    let loader = Pipeline::new(SourceSpec::folder(folder))
        .decode()
        .transform(RandomResizedCrop::new(SIDE))
        .transform(Normalize::new(MEAN, STD))
        .layout(Layout::Chw)
        .batch(1)
        .open(&Options::default())?;
    let first = loader.next_batch()?.ok_or("an epoch has batches")?;
    let same = first.array("image").map(|array| array.bytes())
        == batch.array("image").map(|array| array.bytes());
    assert!(same, "the tour and the loader make the same bits");
    println!("6 loader     the same bits");
    Ok(())
}
