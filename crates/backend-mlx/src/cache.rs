//! Writes of new tokens into the planes of a cache.
//!
//! MLX writes into the plane's own memory when the graph holds the only reference to it at evaluation; else it
//! copies the plane first.

use crate::{device::Mlx, error::Outcome, raw, value::narrow};
use mlx_rs::{Array, Stream};
use std::ops::Range;
use tandem_contracts::tensor::{KvWrite, Result, Tensor, shape};

/// Writes the new tokens patch by patch. Rows that write as many tokens at the same column, as in a padded batch, are
/// one patch together.
pub(crate) fn kv_append(mlx: &Mlx, plane: Tensor, tokens: &Tensor, writes: &[KvWrite]) -> Result<Tensor> {
    shape::kv_append(&plane, tokens, writes)?;
    let array = mlx.array("kv_append", &plane)?;
    let new = mlx.array("kv_append", tokens)?;
    let patches = patches(writes);
    if patches.is_empty() || tokens.elements() == 0 {
        return Ok(plane);
    }
    mlx.build("kv_append", (plane.shape().to_vec(), plane.dtype()), |stream| {
        patches.iter().try_fold(array.clone(), |plane, one| one.write(&plane, new, stream))
    })
}

/// Consecutive tokens for consecutive rows of a plane, all at one column.
#[derive(Debug, PartialEq, Eq)]
struct Patch {
    tokens: Range<usize>,
    rows: Range<usize>,
    column: usize,
}

fn patches(writes: &[KvWrite]) -> Vec<Patch> {
    let mut patches: Vec<Patch> = Vec::with_capacity(writes.len());
    for write in writes.iter().filter(|write| !write.tokens.is_empty()) {
        match patches.last_mut() {
            Some(last)
                if last.tokens.end == write.tokens.start
                    && last.rows.end == write.row
                    && last.column == write.column
                    && last.tokens.len() == write.tokens.len() * last.rows.len() =>
            {
                last.tokens.end = write.tokens.end;
                last.rows.end += 1;
            }
            _ => patches.push(Patch {
                tokens: write.tokens.clone(),
                rows: write.row..write.row + 1,
                column: write.column,
            }),
        }
    }
    patches
}

impl Patch {
    fn write(&self, plane: &Array, tokens: &Array, stream: &Stream) -> Outcome<Array> {
        let (heads, width) = (tokens.dim(1), tokens.dim(2));
        let (rows, each) = (self.rows.len(), self.tokens.len() / self.rows.len());
        let (first, last) = (narrow(self.tokens.start), narrow(self.tokens.end));
        let own = raw::slice(tokens, &[first, 0, 0], &[last, heads, width], stream)?;
        let own = own.reshape(&[narrow(rows), narrow(each), heads, width])?.transpose_axes(&[0, 2, 1, 3])?;
        let (row, column) = (narrow(self.rows.start), narrow(self.column));
        let stop = [narrow(self.rows.end), heads, column + narrow(each), width];
        raw::slice_update(plane, &own, &[row, 0, column, 0], &stop, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(tokens: Range<usize>, row: usize, column: usize) -> KvWrite {
        KvWrite { tokens, row, column }
    }

    #[test]
    fn writes_side_by_side_are_one_patch() {
        let writes = [write(0..2, 0, 5), write(2..4, 1, 5), write(4..6, 2, 5)];
        assert_eq!(patches(&writes), [Patch { tokens: 0..6, rows: 0..3, column: 5 }]);
    }

    #[test]
    fn writes_that_differ_stay_apart() {
        let count = |writes: &[KvWrite]| patches(writes).len();
        assert_eq!(count(&[write(0..2, 0, 5), write(2..4, 1, 6)]), 2, "columns");
        assert_eq!(count(&[write(0..2, 0, 5), write(2..4, 2, 5)]), 2, "rows");
        assert_eq!(count(&[write(0..2, 0, 5), write(2..3, 1, 5)]), 2, "lengths");
        assert_eq!(count(&[write(2..4, 0, 5), write(0..2, 1, 5)]), 2, "tokens");
        assert_eq!(count(&[write(0..0, 0, 5), write(0..2, 1, 5)]), 1, "nothing");
    }
}
