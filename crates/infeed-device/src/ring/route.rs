//! Routes: whether a column stays on the host, is copied, or is copied and then changed by a
//! kernel.

use infeed_raw::kernel::{Bilinear, Kernel, ResizeTable};

use infeed_core::batch::{Array, Batch, ColumnKind, ColumnSpec, Values};
use infeed_core::error::Error;
use infeed_core::sample::DType;

use super::batch::{BatchContent, ColumnData};
use super::crops;
use super::files::StagingLayout;

/// How a column gets to the device.
#[derive(Clone, Debug, PartialEq)]
pub enum Upload {
    /// Stays on the host. Columns without a fixed shape always stay.
    Stay,
    /// Copied unchanged.
    Copy,
    /// Copied. A kernel then computes the consumer's column from it.
    Expand(Kernel),
    /// Images of different sizes that a [`Kernel::Resize`] resizes on the device. A row is uint8
    /// and begins with a header that holds the image's size.
    Resize(Kernel),
    /// Like `Resize`, but a row may hold a JPEG file, which the device decodes first. The ring
    /// needs a decoder.
    Decode(Kernel),
}

/// The table of images that a kernel reads in addition to the rows.
#[derive(Debug)]
pub(super) enum ImageTable {
    Nothing,
    /// Positions of the images in the rows, for rows that are copied unchanged.
    Table(ResizeTable),
    /// Positions of the images in staging memory.
    Staged(StagingLayout),
}

/// A column of a batch, on the host and as the consumer gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The column of host batches.
    pub host: ColumnSpec,
    /// How the column gets to the device.
    pub upload: Upload,
    /// The consumer's column. The same as on the host unless a kernel changes it.
    pub device: ColumnSpec,
}

/// Bytes of a column's memory in a slot. Zero if the column stays on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnBytes {
    /// Bytes of the host's data, if a kernel reads it.
    pub(super) staging: usize,
    /// Bytes of the table of images.
    pub(super) table: usize,
    pub(super) output: usize,
}

/// A batch, divided into arrays to send and columns that stay.
pub(super) struct SortedBatch {
    /// Arrays to send, each with the index of its route.
    pub(super) arrays: Vec<(usize, Array)>,
    pub(super) content: BatchContent,
}

impl Route {
    /// Routes a column that stays on the host.
    pub fn stay(column: ColumnSpec) -> Route {
        Route {
            host: column.clone(),
            upload: Upload::Stay,
            device: column,
        }
    }

    /// Routes a column that is copied unchanged.
    pub fn copy(column: ColumnSpec) -> Route {
        Route {
            upload: Upload::Copy,
            ..Route::stay(column)
        }
    }

    /// Routes a column that a kernel computes from the host's column.
    pub fn expand(host: ColumnSpec, kernel: Kernel, device: ColumnSpec) -> Route {
        Route {
            host,
            upload: Upload::Expand(kernel),
            device,
        }
    }

    /// Routes a column of images of different sizes that a kernel resizes.
    pub fn resize(host: ColumnSpec, kernel: Kernel, device: ColumnSpec) -> Route {
        Route {
            host,
            upload: Upload::Resize(kernel),
            device,
        }
    }

    /// Routes a column of images or JPEG files of different sizes that a kernel resizes.
    pub fn decode(host: ColumnSpec, kernel: Kernel, device: ColumnSpec) -> Route {
        Route {
            host,
            upload: Upload::Decode(kernel),
            device,
        }
    }

    /// Returns the kernel of the column, if any.
    pub fn kernel(&self) -> Option<&Kernel> {
        match &self.upload {
            Upload::Stay | Upload::Copy => None,
            Upload::Expand(kernel) | Upload::Resize(kernel) | Upload::Decode(kernel) => {
                Some(kernel)
            }
        }
    }

    pub(super) fn has_kernel(&self) -> bool {
        self.kernel().is_some()
    }

    pub(super) fn is_copied(&self) -> bool {
        matches!(self.upload, Upload::Copy)
    }

    fn wrong(&self, problem: impl Into<String>) -> Error {
        Error::config(format!("device, field `{}`", self.host.name), problem)
    }

    fn fixed_shape<'a>(&self, column: &'a ColumnSpec) -> Result<(DType, &'a [usize]), Error> {
        match &column.kind {
            ColumnKind::Fixed { dtype, shape } => Ok((*dtype, shape)),
            _ => Err(self.wrong(
                "only arrays of fixed shape can be copied to a device; keep this field on the host",
            )),
        }
    }

    /// Returns the device memory for `rows` rows.
    pub(super) fn bytes(&self, rows: usize) -> Result<ColumnBytes, Error> {
        let of = |column: &ColumnSpec| -> Result<usize, Error> {
            let (dtype, shape) = self.fixed_shape(column)?;
            let mut lengths = shape.iter().copied().chain([rows]);
            let product = lengths.try_fold(dtype.bytes(), usize::checked_mul);
            product.ok_or_else(|| self.wrong("the size of a batch overflows"))
        };
        Ok(match &self.upload {
            Upload::Stay => ColumnBytes::default(),
            Upload::Copy => ColumnBytes {
                staging: 0,
                table: 0,
                output: of(&self.device)?,
            },
            Upload::Expand(_) => ColumnBytes {
                staging: of(&self.host)?,
                table: 0,
                output: of(&self.device)?,
            },
            // The staging memory of a decoded column also depends on the files of the batch.
            Upload::Resize(kernel) | Upload::Decode(kernel) => ColumnBytes {
                staging: of(&self.host)?,
                table: crops::table_bytes(kernel, rows)
                    .ok_or_else(|| self.wrong(format!("{kernel:?} resizes no images")))?,
                output: of(&self.device)?,
            },
        })
    }

    /// Checks that the two columns fit the kernel.
    pub(super) fn check(&self, rows: usize) -> Result<(), Error> {
        if self.host.name != self.device.name {
            let problem = format!("it is called `{}` on the device", self.device.name);
            return Err(self.wrong(problem));
        }
        let bytes = self.bytes(rows.max(1))?;
        match &self.upload {
            Upload::Stay => return Ok(()),
            Upload::Copy if self.host.kind != self.device.kind => {
                return Err(self.wrong("a copy changes neither type nor shape"));
            }
            Upload::Copy | Upload::Resize(_) | Upload::Decode(_) => {}
            Upload::Expand(kernel) => {
                let (input, output) = (
                    kernel.input_bytes(rows.max(1)),
                    kernel.output_bytes(rows.max(1)),
                );
                if (input, output) != (Some(bytes.staging), Some(bytes.output)) {
                    let problem = format!("its types and shapes are not those of {kernel:?}");
                    return Err(self.wrong(problem));
                }
            }
        }
        if let Upload::Resize(kernel) | Upload::Decode(kernel) = &self.upload {
            let rows_are_bytes =
                matches!(self.fixed_shape(&self.host)?, (DType::UInt8, shape) if shape.len() == 1);
            if !rows_are_bytes || kernel.output_bytes(rows.max(1)) != Some(bytes.output) {
                let problem = format!("its types and shapes are not those of {kernel:?}");
                return Err(self.wrong(problem));
            }
        }
        if bytes.output == 0 || (self.has_kernel() && bytes.staging == 0) {
            return Err(self.wrong("its rows are empty; keep this field on the host"));
        }
        Ok(())
    }

    /// Checks that an array is of this column and has `rows` rows.
    fn takes(&self, array: &Array, rows: usize) -> Result<(), Error> {
        let (dtype, shape) = self.fixed_shape(&self.host)?;
        if array.dtype() == dtype && array.shape().split_first() == Some((&rows, shape)) {
            return Ok(());
        }
        Err(self.wrong(format!(
            "the batch has {array:?}, but the ring expects {rows} rows of {} {shape:?}",
            dtype.name()
        )))
    }

    /// Computes the table of images that the kernel reads, if it reads one.
    pub(super) fn image_table(
        &self,
        array: &Array,
        rows: usize,
        weights: &mut Bilinear,
    ) -> Result<ImageTable, Error> {
        let image_table = match &self.upload {
            Upload::Resize(kernel) => {
                crops::table(kernel, rows, array.bytes(), weights).map(ImageTable::Table)
            }
            Upload::Decode(kernel) => {
                StagingLayout::of(kernel, rows, array.bytes(), weights).map(ImageTable::Staged)
            }
            Upload::Stay | Upload::Copy | Upload::Expand(_) => return Ok(ImageTable::Nothing),
        };
        image_table.map_err(|error| self.wrong(error.to_string()))
    }

    /// Returns the type and shape of the consumer's array for `rows` rows.
    fn arrives(&self, at: usize, rows: usize) -> Result<ColumnData, Error> {
        let (dtype, shape) = self.fixed_shape(&self.device)?;
        let shape = std::iter::once(rows).chain(shape.iter().copied()).collect();
        Ok(ColumnData::Device { at, shape, dtype })
    }
}

impl ImageTable {
    /// Returns the table of the images' positions, if any.
    pub(super) fn table(&self) -> Option<&ResizeTable> {
        match self {
            ImageTable::Nothing => None,
            ImageTable::Table(table) => Some(table),
            ImageTable::Staged(staged) => Some(&staged.table),
        }
    }
}

/// Checks that all layouts give the same columns on the device.
pub(super) fn check_alike(layouts: &[Vec<Route>]) -> Result<(), Error> {
    let Some((first, others)) = layouts.split_first() else {
        return Err(Error::config(
            "device",
            "a ring needs at least one batch layout",
        ));
    };
    for routes in others {
        let stays = |route: &Route| matches!(route.upload, Upload::Stay);
        let pairs = first.iter().zip(routes);
        let mut unlike = pairs.filter(|(a, b)| a.device != b.device || stays(a) != stays(b));
        if let Some((route, _)) = unlike.next() {
            return Err(
                route.wrong("its type or shape on the device differs between batch layouts")
            );
        }
        if routes.len() != first.len() {
            let problem = "a batch layout has other columns than the first layout";
            return Err(Error::config("device", problem));
        }
    }
    Ok(())
}

/// Divides a batch by its columns' routes.
///
/// # Errors
///
/// [`Error::Config`] if the batch does not have these columns.
pub(super) fn sort_columns(routes: &[Route], batch: Batch) -> Result<SortedBatch, Error> {
    let rows = batch.rows();
    let names = batch.columns.iter().map(|column| &column.name);
    if !names.eq(routes.iter().map(|route| &route.host.name)) {
        let problem = "the columns of the batch are not those of the ring";
        return Err(Error::config("device", problem));
    }
    let mut arrays = Vec::new();
    let mut columns = Vec::with_capacity(routes.len());
    for (number, (route, column)) in routes.iter().zip(batch.columns).enumerate() {
        let part = match (&route.upload, column.values) {
            (Upload::Stay, values) => ColumnData::Host(values),
            (_, Values::Array(array)) => {
                route.takes(&array, rows)?;
                let part = route.arrives(arrays.len(), rows)?;
                arrays.push((number, array));
                part
            }
            _ => {
                return Err(route.wrong(
                    "only arrays of fixed shape can be copied to a device; keep this field on the \
                     host",
                ));
            }
        };
        columns.push((column.name, part));
    }
    let content = BatchContent {
        columns,
        records: batch.records,
        epoch: batch.epoch,
        step: batch.step,
    };
    Ok(SortedBatch { arrays, content })
}
