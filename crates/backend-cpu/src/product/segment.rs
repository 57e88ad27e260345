//! A run of output rows in one format, and how it is packed.
//!
//! Invariants: `tiles` is enough for `rows` (of one expert); the bytes of expert `e` are the tiles
//! `e * tiles .. (e + 1) * tiles`, each of `format.tile_bytes(width)`; a block starts at a cache line.

use std::ops::Range;

use super::error::ProductError;
use super::format::{Affine, Code, Format, LANES, Number};
use super::part::{Part, Values, Weight, arrange};
use crate::memory::{Block, Memory};
use crate::pool::{Disjoint, Pool, Scratch};

/// See the module.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) format: Format,
    /// Its first output among those of the whole weight.
    pub(super) first: usize,
    /// Outputs.
    pub(super) rows: usize,
    /// Tiles of one expert.
    pub(super) tiles: usize,
    pub(super) tile_bytes: usize,
    block: Block,
}

impl Segment {
    /// Packs parts that [`alike`] allows to join.
    pub(super) fn pack(
        pool: &Pool,
        memory: &Memory,
        source: Source<'_>,
        first: usize,
    ) -> Result<Self, ProductError> {
        let format = source.format();
        let rows = source.parts.iter().map(|part| part.rows).sum::<usize>();
        let (tiles, tile_bytes) = (rows.div_ceil(LANES), format.tile_bytes(source.width));
        let mut block = memory.keep(tiles * source.experts * tile_bytes)?;
        let bytes = Disjoint::new(block.of_mut::<u8>());
        pool.run(tiles * source.experts, |index, scratch| {
            // SAFETY: each part writes its own tile.
            let tile = unsafe { bytes.range(index * tile_bytes..(index + 1) * tile_bytes) };
            let first = index % tiles * LANES;
            let rows = first..rows.min(first + LANES);
            match format {
                Format::Affine(affine) => {
                    source.pack_affine(affine, index / tiles, rows, tile, scratch);
                }
                Format::Dense(number) => source.pack_dense(number, index / tiles, rows, tile),
            }
        });
        Ok(Self { format, first, rows, tiles, tile_bytes, block })
    }

    /// The tiles of one expert.
    pub(super) fn expert(&self, expert: usize) -> &[u8] {
        let bytes = self.tiles * self.tile_bytes;
        &self.block.of()[expert * bytes..][..bytes]
    }

    /// Bytes of all experts.
    pub(super) fn bytes(&self) -> usize {
        self.block.len()
    }

    /// Inputs of a group, if this is an affine weight.
    pub(super) fn group(&self) -> Option<usize> {
        match self.format {
            Format::Affine(affine) => Some(affine.group),
            Format::Dense(_) => None,
        }
    }
}

/// Whether two parts may lie in one segment.
pub(super) fn alike(left: &Part<'_>, right: &Part<'_>) -> bool {
    match (left.weight, right.weight) {
        (Weight::Affine { bits, group, .. }, Weight::Affine { bits: other, group: size, .. }) => {
            group == size && code(bits) == code(other)
        }
        (Weight::Dense(left), Weight::Dense(right)) => {
            std::mem::discriminant(&left) == std::mem::discriminant(&right)
        }
        _ => false,
    }
}

fn code(bits: u32) -> Code {
    if bits <= 4 { Code::Nibble } else { Code::Byte }
}

/// The parts that become one segment, of the same width and for the same number of experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) parts: &'a [Part<'a>],
    pub(super) width: usize,
    pub(super) experts: usize,
}

impl<'a> Source<'a> {
    fn format(&self) -> Format {
        match self.parts[0].weight {
            Weight::Affine { bits, group, .. } => {
                let factors = self.parts.iter().flat_map(|part| match part.weight {
                    Weight::Affine { scales, biases, .. } => [scales, biases],
                    Weight::Dense(_) => [Values::F32(&[]); 2],
                });
                Format::Affine(Affine { code: code(bits), group, number: Values::narrowest(factors) })
            }
            Weight::Dense(_) => {
                Format::Dense(Values::narrowest(self.parts.iter().map(|part| match part.weight {
                    Weight::Affine { .. } => Values::F32(&[]),
                    Weight::Dense(values) => values,
                })))
            }
        }
    }

    /// The part that holds a row of one expert, and the row's index in that part's slices.
    fn locate(&self, expert: usize, row: usize) -> (&'a Part<'a>, usize) {
        let mut row = row;
        let mut parts = self.parts.iter();
        loop {
            match parts.next() {
                Some(part) if row >= part.rows => row -= part.rows,
                Some(part) => return (part, expert * part.rows + row),
                None => unreachable!("rows are those of the parts"),
            }
        }
    }

    fn pack_affine(
        &self,
        affine: Affine,
        expert: usize,
        rows: Range<usize>,
        tile: &mut [u8],
        scratch: &mut Scratch,
    ) {
        // Four bytes of a row for each line of the tile.
        let count = self.width / if affine.code == Code::Nibble { 2 } else { 1 };
        let (lines, spare) = scratch.lend::<u8>(LANES * count + self.width).split_at_mut(LANES * count);
        lines[rows.len() * count..].fill(0);
        for (lane, row) in rows.enumerate() {
            let (part, index) = self.locate(expert, row);
            let Weight::Affine { bits, codes, scales, biases, .. } = part.weight else { continue };
            let words = self.width * bits as usize / 32;
            let source = &codes[index * words..][..words];
            arrange(bits, affine.code, source, &mut lines[lane * count..][..count], spare);
            let groups = self.width / affine.group;
            let factors = index * groups..(index + 1) * groups;
            let (step, size) = (affine.block_bytes(), affine.number.bytes());
            let scale = affine.code_bytes() + lane * size;
            if groups > 0 {
                scales.slice(factors.clone()).scatter(affine.number, &mut tile[scale..], step);
                biases.slice(factors).scatter(affine.number, &mut tile[scale + affine.scale_bytes()..], step);
            }
        }
        let codes = tile
            .chunks_exact_mut(affine.block_bytes())
            .flat_map(|block| block[..affine.code_bytes()].chunks_exact_mut(LANES * 4));
        for (line, codes) in codes.enumerate() {
            for (lane, codes) in codes.chunks_exact_mut(4).enumerate() {
                codes.copy_from_slice(&lines[lane * count + line * 4..][..4]);
            }
        }
    }

    fn pack_dense(&self, number: Number, expert: usize, rows: Range<usize>, tile: &mut [u8]) {
        let size = number.bytes();
        for (lane, row) in rows.enumerate() {
            let (part, index) = self.locate(expert, row);
            let Weight::Dense(values) = part.weight else { continue };
            if self.width > 0 {
                let row = values.slice(index * self.width..(index + 1) * self.width);
                row.scatter(number, &mut tile[lane * size..], LANES * size);
            }
        }
    }
}
