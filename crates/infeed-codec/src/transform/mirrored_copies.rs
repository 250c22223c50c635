//! The copies of objects that a step pastes.

/// The copies that are pasted on an image.
#[derive(Clone, Debug, PartialEq)]
pub struct MirroredCopies {
    /// Corners of each polygon of each copy.
    pub(super) outlines: Vec<Vec<Vec<[f64; 2]>>>,
    /// Number of the image, and of the object in it, of each copy.
    pub(super) numbers: Vec<[usize; 2]>,
}

impl MirroredCopies {
    /// Returns the number of copies.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the numbers of the objects of an image that have copies.
    pub fn objects_of(&self, image: usize) -> impl Iterator<Item = usize> {
        let of_image = self.numbers.iter().filter(move |[of, _]| *of == image);
        of_image.map(|[_, object]| *object)
    }
}
