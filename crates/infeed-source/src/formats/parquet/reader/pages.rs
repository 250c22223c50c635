//! Compares the pages of a column chunk with its footer before they are decoded.
//!
//! Source: the Parquet format, `PageHeader` in the Thrift compact protocol. Sizes and counts in a
//! header determine the decoder's allocations, so their sum must equal the admitted bytes.

use crate::columns::table::contain_panic;

/// Numbers of the encodings in the format.
pub(super) const DELTA_LENGTH: i64 = 6;
pub(super) const DELTA_BYTES: i64 = 7;

/// Maximum nesting of the fields of a page header.
const DEPTH: usize = 8;

/// Maximum nesting of a footer: row groups, their columns, the metadata of those.
const FOOTER_DEPTH: usize = 32;

/// Maximum nesting of a schema.
const SCHEMA_DEPTH: usize = 128;

/// Fields of a page header that determine memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Bytes of the header.
    pub(super) header: u64,
    /// Bytes after the header.
    pub(super) stored: u64,
    /// Bytes after decompression.
    pub(super) decoded: u64,
    pub(super) kind: PageKind,
    pub(super) values: u64,
    pub(super) encoding: i64,
}

/// Kind of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PageKind {
    Data,
    Dictionary,
    #[default]
    Other,
}

/// Totals of a column chunk according to the footer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkTotals {
    /// Bytes of its pages after decompression, with their headers.
    pub(super) decoded: u64,
    pub(super) values: u64,
    /// Whether values may be prefix-encoded (`DELTA_BYTE_ARRAY`).
    pub(super) delta_bytes: bool,
}

/// Returns the size of the largest page of a chunk after decompression.
///
/// # Errors
///
/// Pages that do not match the footer.
pub(super) fn verify(chunk: &[u8], totals: ChunkTotals) -> Result<u64, String> {
    let (mut at, mut decoded, mut values, mut largest) = (0, 0_u64, 0_u64, 0);
    while at < chunk.len() {
        let here = |problem: &str| format!("the page at byte {at} of its chunk {problem}");
        let page = header(&chunk[at..]).ok_or_else(|| here("has a header that cannot be read"))?;
        let next = at as u64 + page.header + page.stored;
        if next > chunk.len() as u64 {
            return Err(here("exceeds its chunk"));
        }
        decoded += page.header + page.decoded;
        largest = largest.max(page.decoded);
        match page.kind {
            PageKind::Data => values += page.values,
            // Each value takes at least a bit.
            PageKind::Dictionary if page.values > page.decoded.saturating_mul(8) => {
                return Err(here("has more values than bits"));
            }
            PageKind::Dictionary | PageKind::Other => {}
        }
        if page.encoding == DELTA_BYTES && !totals.delta_bytes {
            return Err(here("has an encoding that the footer does not name"));
        }
        at = next as usize;
    }
    if decoded > totals.decoded.saturating_add(SLACK) {
        let totals = totals.decoded;
        return Err(format!(
            "its pages have {decoded} bytes, over the {totals} of the footer"
        ));
    }
    if values != totals.values {
        let totals = totals.values;
        return Err(format!(
            "its pages have {values} values, unlike the {totals} of the footer"
        ));
    }
    Ok(largest)
}

/// Some writers leave the page headers out of the sum.
const SLACK: u64 = 1 << 20;

/// Returns the end of the first data page and its header, if `start` holds the header.
pub(super) fn first_data_page(start: &[u8]) -> Option<(u64, PageHeader)> {
    let mut at = 0_u64;
    loop {
        let page = header(start.get(usize::try_from(at).ok()?..)?)?;
        at += page.header + page.stored;
        if page.kind == PageKind::Data {
            return Some((at, page));
        }
    }
}

/// Number of values of a delta-encoded run: the third number of its header.
pub(super) fn delta_count(values: &[u8]) -> Option<u64> {
    let mut thrift = ThriftReader::new(values);
    thrift.varint()?;
    thrift.varint()?;
    thrift.varint()
}

/// Parses the header of the page at the beginning of `bytes`.
pub(super) fn header(bytes: &[u8]) -> Option<PageHeader> {
    let mut thrift = ThriftReader::new(bytes);
    let mut page = PageHeader::default();
    let size = |n: i64| u64::try_from(n).ok().filter(|&n| n <= i32::MAX as u64);
    let (mut decoded, mut stored) = (None, None);
    thrift.structure(DEPTH, &mut |path, value| {
        match (path, value) {
            ([1], 0 | 3) => page.kind = PageKind::Data,
            ([1], 2) => page.kind = PageKind::Dictionary,
            ([2], n) => decoded = Some(size(n)?),
            ([3], n) => stored = Some(size(n)?),
            ([5 | 7 | 8, 1], n) => page.values = size(n)?,
            ([5 | 7, 2] | [8, 4], n) => page.encoding = n,
            _ => {}
        }
        Some(())
    })?;
    page.header = (bytes.len() - thrift.rest.len()) as u64;
    (page.decoded, page.stored) = (decoded?, stored?);
    Some(page)
}

/// Whether a footer follows the compact protocol: no list longer than its bytes, no excessive
/// nesting, no map. Its schema must be a tree of no more elements than are listed: the decoder
/// allocates by the claimed numbers of children, and recurses.
pub(super) fn is_sound(footer: &[u8]) -> bool {
    let mut thrift = ThriftReader {
        rest: footer,
        fits: fits_schema,
    };
    let any = thrift.structure(FOOTER_DEPTH, &mut |_, _| Some(()));
    any.is_some() && schema_elements(footer).is_some()
}

/// Whether a field of a footer has the type that the decoder reads. It ignores the type of a field
/// that it knows, so with another type it would see other fields than the reader here. Fields after
/// the schema are left out: the decoder skips a second schema.
fn fits_schema(path: &[i16], kind: u8) -> bool {
    match path {
        [1] | [2, 1..=3 | 5..=9] | [2, 10, 5, 1 | 2] | [2, 10, 18, 2] => kind == 5,
        [2] => kind == 9,
        [2, 4] | [2, 10, 17 | 18, 1] => kind == 8,
        [2, 10] | [2, 10, _] | [2, 10, 7 | 8, 2] | [2, 10, 7 | 8, 2, _] => kind == 12,
        [2, 10, 10 | 16, 1] => kind == 3,
        [2, 10, 7 | 8, 1] | [2, 10, 10, 2] => matches!(kind, 1 | 2),
        _ => true,
    }
}

/// Reads the elements of the schema, each with its number of children, in the order of the tree.
fn schema_elements(footer: &[u8]) -> Option<()> {
    let mut thrift = ThriftReader::new(footer);
    let mut id = 0;
    let count = loop {
        let (found, kind) = thrift.field(id)?;
        match (found, kind) {
            (2, 9) => break thrift.list()?.1,
            (3.., _) | (_, 0) => return None,
            (_, 1 | 2) => {}
            _ => thrift.value(kind, &mut Vec::new(), FOOTER_DEPTH, &mut |_, _| Some(()))?,
        }
        id = found;
    };
    // Elements without a parent yet, and the missing children of the open groups.
    let mut free = count.saturating_sub(1);
    let (mut open, mut depth) = ([0_u64; SCHEMA_DEPTH], 0);
    for _ in 0..count {
        let mut children = 0;
        thrift.structure(FOOTER_DEPTH, &mut |path, number| {
            if path == [5] {
                children = number;
            }
            Some(())
        })?;
        let children = u64::try_from(children).ok()?;
        free = free.checked_sub(children)?;
        while depth > 0 && open[depth - 1] == 0 {
            depth -= 1;
        }
        if depth > 0 {
            open[depth - 1] -= 1;
        }
        if children > 0 {
            *open.get_mut(depth)? = children;
            depth += 1;
        }
    }
    Some(())
}

/// A reader of the compact protocol that trusts no length.
struct ThriftReader<'a> {
    rest: &'a [u8],
    /// Whether the field at a path may have this type.
    fits: fn(&[i16], u8) -> bool,
}

/// Receives an integer with the ids of the fields that lead to it.
type IntVisitor<'a> = dyn FnMut(&[i16], i64) -> Option<()> + 'a;

impl<'a> ThriftReader<'a> {
    fn new(rest: &'a [u8]) -> ThriftReader<'a> {
        ThriftReader {
            rest,
            fits: |_, _| true,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn zigzag_varint(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Reads id and type of the next field; type 0 is the end of the structure.
    fn field(&mut self, last: i16) -> Option<(i16, u8)> {
        let head = self.byte()?;
        let id = match head >> 4 {
            _ if head == 0 => last,
            0 => i16::try_from(self.zigzag_varint()?).ok()?,
            delta => last.checked_add(i16::from(delta))?,
        };
        // The decoder ends at any head of type 0.
        (head == 0 || head & 0x0F != 0).then_some((id, head & 0x0F))
    }

    /// Reads the type of a list's elements and their number.
    fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        Some((head & 0x0F, count))
    }

    fn structure(&mut self, depth: usize, take: &mut IntVisitor<'_>) -> Option<()> {
        self.fields(&mut Vec::new(), depth, take)
    }

    fn fields(
        &mut self,
        path: &mut Vec<i16>,
        depth: usize,
        take: &mut IntVisitor<'_>,
    ) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut id = 0_i16;
        loop {
            let (found, kind) = self.field(id)?;
            if kind == 0 {
                return Some(());
            }
            id = found;
            path.push(id);
            if !(self.fits)(path, kind) {
                return None;
            }
            match kind {
                // The type of a boolean field contains its value.
                1 => take(path, 1)?,
                2 => take(path, 0)?,
                kind => self.value(kind, path, depth, take)?,
            }
            path.pop();
        }
    }

    fn value(
        &mut self,
        kind: u8,
        path: &mut Vec<i16>,
        depth: usize,
        take: &mut IntVisitor<'_>,
    ) -> Option<()> {
        match kind {
            1..=3 => self.skip(1),
            4..=6 => {
                let number = self.zigzag_varint()?;
                take(path, number)
            }
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 | 10 => {
                let (of, count) = self.list()?;
                let depth = depth.checked_sub(1)?;
                // Headers and footers hold no lists of booleans. The decoder gives such elements no
                // bytes, so five bytes could make it skip two billion of them.
                if matches!(of, 1 | 2) && count > 0 {
                    return None;
                }
                // Each element takes at least a byte, so this ends with the bytes.
                for _ in 0..count {
                    self.value(of, path, depth, &mut |_, _| Some(()))?;
                }
                Some(())
            }
            12 => self.fields(path, depth, take),
            // Headers and footers hold no maps.
            _ => None,
        }
    }
}

/// Runs `work` on bytes that may make the decoder panic.
pub(super) fn decoding<T>(
    work: impl FnOnce() -> Result<T, parquet::errors::ParquetError>,
) -> Result<T, String> {
    contain_panic(|| work().map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header as a writer makes it: type, sizes, checksum, a data page of `values` values.
    fn header_bytes(decoded: u8, stored: u8, values: u8) -> Vec<u8> {
        let zigzag = |n: u8| n << 1;
        let mut bytes = vec![0x15, 0, 0x15, zigzag(decoded), 0x15, zigzag(stored)];
        bytes.extend([0x2C, 0x15, zigzag(values), 0x15, 0, 0x15, 6, 0x15, 6, 0]);
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_header_gives_sizes_values_and_its_own_length() {
        let mut bytes = header_bytes(40, 20, 5);
        let length = bytes.len();
        bytes.extend([7; 20]);

        let page = header(&bytes).expect("a header");

        assert_eq!(page.header as usize, length);
        assert_eq!((page.decoded, page.stored, page.values), (40, 20, 5));
        assert_eq!(page.kind, PageKind::Data);
        for cut in 0..length {
            assert_eq!(header(&bytes[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn pages_that_exceed_the_footer_are_rejected() {
        let mut chunk = header_bytes(40, 20, 5);
        chunk.extend([7; 20]);
        let totals = |values| ChunkTotals {
            decoded: 100,
            values,
            delta_bytes: false,
        };

        assert_eq!(verify(&chunk, totals(5)), Ok(40));
        assert!(verify(&chunk, totals(4)).is_err());
        assert!(verify(&chunk[..chunk.len() - 1], totals(5)).is_err());
        let small = ChunkTotals {
            decoded: 0,
            ..totals(5)
        };
        assert_eq!(verify(&chunk, small), Ok(40), "within the slack");
    }

    /// A footer with a version and schema elements of these numbers of children.
    fn schema_of(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 2, 0x19, 0xFC, children.len() as u8];
        for count in children {
            // Name and number of children.
            bytes.extend([0x48, 1, b'a', 0x15, count << 1, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_schema_is_a_tree_of_the_listed_elements() {
        assert!(is_sound(&schema_of(&[2, 0, 1, 0])));
        assert!(!is_sound(&schema_of(&[2, 0, 2, 0])), "too many children");
        assert!(!is_sound(&schema_of(&[60, 0, 0])), "too many children");
        let nested = |depth: usize| [vec![1; depth], vec![0]].concat();
        assert!(is_sound(&schema_of(&nested(100))));
        // The decoder recurses for each level.
        let deep = [vec![0x15, 2, 0x19, 0xFC, 0x80, 0x80, 0x40]]
            .into_iter()
            .chain((0..1 << 20).map(|_| vec![0x48, 1, b'a', 0x15, 2, 0]))
            .chain([vec![0]]);
        assert!(!is_sound(&deep.flatten().collect::<Vec<u8>>()));
        // The number of children as text, whose bytes the decoder would read as fields.
        let mut text = schema_of(&[0]);
        text[8] = 0x18;
        assert!(!is_sound(&text));
    }
}
