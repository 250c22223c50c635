//! What becomes of each column on its way: it stays, is copied, or is copied and expanded.

use infeed_raw::kernel::{Bilinear, Kernel, ResizeTable};

use crate::batch::{Array, Batch, ColumnKind, ColumnSpec, Values};
use crate::error::Error;
use crate::sample::DType;

use super::batch::{Content, Part};
use super::crops;
use super::files::Staged;

/// How a column gets to the device.
#[derive(Clone, Debug, PartialEq)]
pub enum Upload {
    /// Not at all. All kinds but those of fixed shape stay.
    Stay,
    /// As it is.
    Copy,
    /// As it is, and then a kernel makes there what the consumer gets.
    Expand(Kernel),
    /// Images of a size of their own each, which a [`Kernel::Resize`] brings to one there. A row is
    /// uint8, and says itself how large its image is.
    Resize(Kernel),
    /// As `Resize`; but a row may hold a JPEG in place of pixels, which the device decodes first. A ring
    /// needs a decoder for it.
    Decode(Kernel),
}

/// What a kernel needs beside the rows.
#[derive(Debug)]
pub(super) enum Beside {
    Nothing,
    /// Where each row's image is, all of which lie as they come from the host.
    Table(ResizeTable),
    /// The same of images that are brought to places of their own.
    Staged(Staged),
}

/// A column of a batch, on the host and as the consumer gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// What batches on the host have.
    pub host: ColumnSpec,
    /// How it gets to the device.
    pub upload: Upload,
    /// What the consumer gets; the same as on the host unless a kernel changes it.
    pub device: ColumnSpec,
}

/// Memory of a column in a slot; none if it stays on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    /// Where the host's bytes come to lie before a kernel.
    pub(super) staging: usize,
    /// Where the table of images comes to lie.
    pub(super) table: usize,
    pub(super) output: usize,
}

/// A batch, sorted into what is sent and what stays.
pub(super) struct Parcels {
    /// Arrays to be sent, each with the number of its route.
    pub(super) arrays: Vec<(usize, Array)>,
    pub(super) content: Content,
}

impl Route {
    /// A column that stays on the host.
    pub fn stay(column: ColumnSpec) -> Route {
        Route {
            host: column.clone(),
            upload: Upload::Stay,
            device: column,
        }
    }

    /// A column that is copied as it is.
    pub fn copy(column: ColumnSpec) -> Route {
        Route {
            upload: Upload::Copy,
            ..Route::stay(column)
        }
    }

    /// A column of which a kernel makes another.
    pub fn expand(host: ColumnSpec, kernel: Kernel, device: ColumnSpec) -> Route {
        Route {
            host,
            upload: Upload::Expand(kernel),
            device,
        }
    }

    /// A column of images, each of its own size, that a kernel brings to one.
    pub(crate) fn resize(host: ColumnSpec, kernel: Kernel, device: ColumnSpec) -> Route {
        Route {
            host,
            upload: Upload::Resize(kernel),
            device,
        }
    }

    /// A column of images, each of its own size, or of files with them, that a kernel brings to one.
    pub(crate) fn decode(host: ColumnSpec, kernel: Kernel, device: ColumnSpec) -> Route {
        Route {
            host,
            upload: Upload::Decode(kernel),
            device,
        }
    }

    /// What works on it on the device.
    pub(crate) fn kernel(&self) -> Option<&Kernel> {
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

    fn fixed<'a>(&self, column: &'a ColumnSpec) -> Result<(DType, &'a [usize]), Error> {
        match &column.kind {
            ColumnKind::Fixed { dtype, shape } => Ok((*dtype, shape)),
            _ => Err(self.wrong("only arrays of fixed shape go to a device; let it stay")),
        }
    }

    /// Memory for so many rows.
    pub(super) fn bytes(&self, rows: usize) -> Result<Bytes, Error> {
        let of = |column: &ColumnSpec| -> Result<usize, Error> {
            let (dtype, shape) = self.fixed(column)?;
            let mut lengths = shape.iter().copied().chain([rows]);
            let product = lengths.try_fold(dtype.bytes(), usize::checked_mul);
            product.ok_or_else(|| self.wrong("a batch of it has more bytes than a number can hold"))
        };
        Ok(match &self.upload {
            Upload::Stay => Bytes::default(),
            Upload::Copy => Bytes {
                staging: 0,
                table: 0,
                output: of(&self.device)?,
            },
            Upload::Expand(_) => Bytes {
                staging: of(&self.host)?,
                table: 0,
                output: of(&self.device)?,
            },
            // What is decoded needs more or less, as a batch's files say.
            Upload::Resize(kernel) | Upload::Decode(kernel) => Bytes {
                staging: of(&self.host)?,
                table: crops::table_bytes(kernel, rows)
                    .ok_or_else(|| self.wrong(format!("{kernel:?} resizes no images")))?,
                output: of(&self.device)?,
            },
        })
    }

    /// Whether the two ends fit together.
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
                matches!(self.fixed(&self.host)?, (DType::UInt8, shape) if shape.len() == 1);
            if !rows_are_bytes || kernel.output_bytes(rows.max(1)) != Some(bytes.output) {
                let problem = format!("its types and shapes are not those of {kernel:?}");
                return Err(self.wrong(problem));
            }
        }
        if bytes.output == 0 || (self.has_kernel() && bytes.staging == 0) {
            return Err(self.wrong("its rows are empty; let it stay"));
        }
        Ok(())
    }

    /// Whether a batch's array is one of this column, of so many rows.
    fn takes(&self, array: &Array, rows: usize) -> Result<(), Error> {
        let (dtype, shape) = self.fixed(&self.host)?;
        if array.dtype() == dtype && array.shape().split_first() == Some((&rows, shape)) {
            return Ok(());
        }
        Err(self.wrong(format!(
            "the batch has {array:?} there, and the ring was made for {rows} rows of {} {shape:?}",
            dtype.name()
        )))
    }

    /// What the kernel needs beside a batch's array.
    pub(super) fn beside(
        &self,
        array: &Array,
        rows: usize,
        weights: &mut Bilinear,
    ) -> Result<Beside, Error> {
        let beside = match &self.upload {
            Upload::Resize(kernel) => {
                crops::table(kernel, rows, array.bytes(), weights).map(Beside::Table)
            }
            Upload::Decode(kernel) => {
                Staged::of(kernel, rows, array.bytes(), weights).map(Beside::Staged)
            }
            Upload::Stay | Upload::Copy | Upload::Expand(_) => return Ok(Beside::Nothing),
        };
        beside.map_err(|error| self.wrong(error.to_string()))
    }

    /// Shape and type of what the consumer gets, for so many rows.
    fn arrives(&self, at: usize, rows: usize) -> Result<Part, Error> {
        let (dtype, shape) = self.fixed(&self.device)?;
        let shape = std::iter::once(rows).chain(shape.iter().copied()).collect();
        Ok(Part::Device { at, shape, dtype })
    }
}

impl Beside {
    /// Where the kernel finds each row's image.
    pub(super) fn table(&self) -> Option<&ResizeTable> {
        match self {
            Beside::Nothing => None,
            Beside::Table(table) => Some(table),
            Beside::Staged(staged) => Some(&staged.table),
        }
    }
}

/// Whether batches are the same on the device whatever form they have.
pub(super) fn check_alike(forms: &[Vec<Route>]) -> Result<(), Error> {
    let Some((first, others)) = forms.split_first() else {
        return Err(Error::config("device", "batches have at least one form"));
    };
    for routes in others {
        let stays = |route: &Route| matches!(route.upload, Upload::Stay);
        let pairs = first.iter().zip(routes);
        let mut unlike = pairs.filter(|(a, b)| a.device != b.device || stays(a) != stays(b));
        if let Some((route, _)) = unlike.next() {
            return Err(route.wrong("it is another on the device in another form of the batch"));
        }
        if routes.len() != first.len() {
            let problem = "a form of the batches has other columns than the first";
            return Err(Error::config("device", problem));
        }
    }
    Ok(())
}

/// Sorts a batch by its columns' routes.
///
/// # Errors
///
/// [`Error::Config`] if it does not have these columns.
pub(super) fn parcels(routes: &[Route], batch: Batch) -> Result<Parcels, Error> {
    let rows = batch.rows();
    let names = batch.columns.iter().map(|column| &column.name);
    if !names.eq(routes.iter().map(|route| &route.host.name)) {
        let problem = "the batch does not have the columns that the ring was made for";
        return Err(Error::config("device", problem));
    }
    let mut arrays = Vec::new();
    let mut columns = Vec::with_capacity(routes.len());
    for (number, (route, column)) in routes.iter().zip(batch.columns).enumerate() {
        let part = match (&route.upload, column.values) {
            (Upload::Stay, values) => Part::Host(values),
            (_, Values::Array(array)) => {
                route.takes(&array, rows)?;
                let part = route.arrives(arrays.len(), rows)?;
                arrays.push((number, array));
                part
            }
            _ => return Err(route.wrong("only arrays of fixed shape go to a device; let it stay")),
        };
        columns.push((column.name, part));
    }
    let content = Content {
        columns,
        records: batch.records,
        epoch: batch.epoch,
        step: batch.step,
    };
    Ok(Parcels { arrays, content })
}
