//! Class numbers that become soft labels, for mixing.

use super::cells::bytes_of;
use super::failure::SampleError;
use infeed_core::batch::{ColumnKind, RowCell};
use infeed_core::sample::DType;

/// Conversion of class numbers to soft labels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoftLabel {
    pub(crate) dtype: DType,
    pub(crate) classes: usize,
}

impl SoftLabel {
    /// Returns the column of soft labels.
    pub(crate) fn column(&self) -> ColumnKind {
        ColumnKind::Fixed {
            dtype: DType::Float32,
            shape: vec![self.classes],
        }
    }

    /// Writes a class number as a soft label with all weight on that class.
    pub(crate) fn write(&self, number: &[u8], cell: &mut RowCell) -> Result<(), SampleError> {
        let class = integer(self.dtype, number);
        let Some(class) = class
            .and_then(|class| usize::try_from(class).ok())
            .filter(|&class| class < self.classes)
        else {
            return Err(SampleError::Shape {
                found: match class {
                    Some(class) => format!("label {class}"),
                    None => format!("{} bytes", number.len()),
                },
                expected: format!("labels of {} classes, from 0", self.classes),
                fix: "set the number of classes of MixUp and CutMix, as in classes=1000",
            });
        };
        if let RowCell::Own { bytes, .. } = cell {
            bytes.resize(self.classes * 4, 0);
        }
        let out = bytes_of(cell);
        out.fill(0);
        if let Some(share) = out.get_mut(class * 4..class * 4 + 4) {
            share.copy_from_slice(&1.0_f32.to_ne_bytes());
        }
        Ok(())
    }
}

/// Reads an integer of a type from its bytes.
fn integer(dtype: DType, bytes: &[u8]) -> Option<i128> {
    macro_rules! read {
        ($of:ty) => {
            <$of>::from_le_bytes(bytes.try_into().ok()?).into()
        };
    }
    Some(match dtype {
        DType::UInt8 => read!(u8),
        DType::UInt16 => read!(u16),
        DType::UInt32 => read!(u32),
        DType::UInt64 => read!(u64),
        DType::Int8 => read!(i8),
        DType::Int16 => read!(i16),
        DType::Int32 => read!(i32),
        DType::Int64 => read!(i64),
        _ => return None,
    })
}

/// Field of the labels if the transform names none.
pub(crate) const DEFAULT_LABEL: &str = "label";
