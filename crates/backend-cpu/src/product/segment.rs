//! A run of output rows in one format, and how it is packed.
//!
//! Invariants: `tiles` is enough for `rows` (of one expert); the bytes of expert `e` are the tiles
//! `e * tiles .. (e + 1) * tiles`, each of `format.tile_bytes(width)`; a block starts at a cache line.

use std::ops::Range;

use super::error::ProductError;
use super::format::{Affine, Code, Format, LANES, Number};
use super::part::{Part, Values, Weight, unpack};
use crate::memory::{Block, Memory};
use crate::pool::{Disjoint, Pool};

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
                    let codes = scratch.lend(source.width);
                    source.pack_affine(affine, index / tiles, rows, tile, codes);
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
        let number = |values: fn(&Part<'a>) -> [Values<'a>; 2]| {
            let values = self.parts.iter().flat_map(values);
            Number::narrowest(values.flat_map(|values| (0..values.len()).map(move |index| values.at(index))))
        };
        match self.parts[0].weight {
            Weight::Affine { bits, group, .. } => {
                let number = number(|part| match part.weight {
                    Weight::Affine { scales, biases, .. } => [scales, biases],
                    Weight::Dense(_) => [Values::F32(&[]); 2],
                });
                Format::Affine(Affine { code: code(bits), group, number })
            }
            Weight::Dense(_) => Format::Dense(number(|part| match part.weight {
                Weight::Affine { .. } => [Values::F32(&[]); 2],
                Weight::Dense(values) => [values, Values::F32(&[])],
            })),
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
        unpacked: &mut [u8],
    ) {
        for (lane, row) in rows.enumerate() {
            let (part, index) = self.locate(expert, row);
            let Weight::Affine { bits, codes, scales, biases, .. } = part.weight else { continue };
            let words = self.width * bits as usize / 32;
            unpack(bits, &codes[index * words..][..words], unpacked);
            let groups = self.width / affine.group;
            for (group, block) in tile.chunks_exact_mut(affine.block_bytes()).enumerate() {
                let (codes, factors) = block.split_at_mut(affine.code_bytes());
                affine.pack(codes, lane, &unpacked[group * affine.group..][..affine.group]);
                let size = affine.number.bytes();
                let (scale, bias) = factors.split_at_mut(affine.scale_bytes());
                let lane = lane * size..(lane + 1) * size;
                affine.number.write(&mut scale[lane.clone()], scales.at(index * groups + group));
                affine.number.write(&mut bias[lane], biases.at(index * groups + group));
            }
        }
    }

    fn pack_dense(&self, number: Number, expert: usize, rows: Range<usize>, tile: &mut [u8]) {
        let size = number.bytes();
        for (lane, row) in rows.enumerate() {
            let (part, index) = self.locate(expert, row);
            let Weight::Dense(values) = part.weight else { continue };
            for (input, lanes) in tile.chunks_exact_mut(LANES * size).take(self.width).enumerate() {
                number
                    .write(&mut lanes[lane * size..(lane + 1) * size], values.at(index * self.width + input));
            }
        }
    }
}
