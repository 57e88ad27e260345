//! A blueprint as bytes that stay the same from one version of the program to the next: what a stored row must match.

use crate::{
    Blueprint, Kind, LayerShape, RecurrentShape,
    codec::{Format, Scheme},
};
use tandem_contracts::tensor::{Affine, Dtype};

impl Blueprint {
    /// Bytes that two blueprints share exactly where their rows are interchangeable. By how much planes grow does not
    /// count.
    pub fn signature(&self) -> Vec<u8> {
        let mut bytes = Signature(Vec::new());
        bytes.dtype(self.policy().dtype());
        for (&kind, transition) in self.kinds().iter().zip(self.policy().layers()) {
            bytes.kind(kind);
            bytes.number(transition.boundary().unwrap_or(0));
            bytes.scheme(transition.scheme(0));
            bytes.scheme(transition.scheme(usize::MAX));
        }
        bytes.0
    }
}

/// Every value is a tag or a number of 8 bytes, and every tag says what follows, so that no two blueprints meet.
struct Signature(Vec<u8>);

impl Signature {
    fn tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    fn number(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    fn numbers<const N: usize>(&mut self, numbers: [usize; N]) {
        numbers.into_iter().for_each(|number| self.number(number));
    }

    fn kind(&mut self, kind: Kind) {
        match kind {
            Kind::Full(shape) => {
                self.tag(0);
                self.shape(shape);
            }
            Kind::Window { shape, window, keep: 0 } => {
                self.tag(1);
                self.shape(shape);
                self.number(window);
            }
            Kind::Window { shape, window, keep } => {
                self.tag(4);
                self.shape(shape);
                self.numbers([window, keep]);
            }
            Kind::Recurrent(RecurrentShape { heads, value_width, key_width, channels, taps }) => {
                self.tag(2);
                self.numbers([heads, value_width, key_width, channels, taps]);
            }
            Kind::Shared { donor } => {
                self.tag(3);
                self.number(donor);
            }
        }
    }

    fn shape(&mut self, LayerShape { heads, key_width, value_width }: LayerShape) {
        self.numbers([heads, key_width, value_width]);
    }

    fn scheme(&mut self, scheme: Scheme) {
        self.format(scheme.keys);
        self.format(scheme.values);
    }

    fn format(&mut self, format: Format) {
        match format {
            Format::Plain(dtype) => {
                self.tag(0);
                self.dtype(dtype);
            }
            Format::Affine { affine: Affine { bits, group }, dtype } => {
                self.tag(1);
                self.number(bits.into());
                self.number(group.into());
                self.dtype(dtype);
            }
            Format::TurboKeys { bits } => {
                self.tag(2);
                self.number(bits.into());
            }
            Format::TurboValues { bits } => {
                self.tag(3);
                self.number(bits.into());
            }
        }
    }

    fn dtype(&mut self, dtype: Dtype) {
        self.tag(match dtype {
            Dtype::F32 => 0,
            Dtype::F16 => 1,
            Dtype::Bf16 => 2,
            Dtype::I32 => 3,
            Dtype::U32 => 4,
            Dtype::I8 => 5,
            Dtype::U8 => 6,
            Dtype::Bool => 7,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Encoding, Request};
    use std::collections::HashSet;

    const SHAPE: LayerShape = LayerShape { heads: 2, key_width: 64, value_width: 64 };

    #[test]
    fn a_signature_by_hand() {
        let blueprint =
            Blueprint::plain(vec![Kind::Window { shape: SHAPE, window: 9, keep: 0 }], Dtype::Bf16).unwrap();
        // The dtype and the kind; heads, widths, window and no threshold; four times plain bf16.
        let mut expected = vec![2, 1];
        for number in [2_u64, 64, 64, 9, 0] {
            expected.extend(number.to_le_bytes());
        }
        expected.extend([0, 2].repeat(4));
        assert_eq!(blueprint.signature(), expected);
    }

    #[test]
    fn whatever_differs_shows() {
        let kinds = [
            vec![Kind::Full(SHAPE)],
            vec![Kind::Full(LayerShape { heads: 4, ..SHAPE })],
            vec![Kind::Full(LayerShape { value_width: 128, ..SHAPE })],
            vec![Kind::Window { shape: SHAPE, window: 8, keep: 0 }],
            vec![Kind::Window { shape: SHAPE, window: 9, keep: 1 }],
            vec![Kind::Window { shape: SHAPE, window: 9, keep: 2 }],
            vec![Kind::Window { shape: SHAPE, window: 9, keep: 0 }],
            vec![Kind::Full(SHAPE), Kind::Shared { donor: 0 }],
            vec![Kind::Full(SHAPE), Kind::Full(SHAPE)],
        ];
        let affine = |bits, group, dtype| Encoding::Uniform(Scheme::affine(Affine { bits, group }, dtype));
        let encodings = [
            Encoding::None,
            affine(8, 32, Dtype::Bf16),
            affine(4, 32, Dtype::Bf16),
            affine(8, 64, Dtype::Bf16),
            affine(8, 32, Dtype::F16),
            Encoding::ByLayer(vec![(0, Scheme::affine(Affine { bits: 8, group: 32 }, Dtype::F32))]),
            Encoding::ByLayer(vec![(0, Scheme::affine(Affine { bits: 4, group: 32 }, Dtype::F32))]),
        ];
        let mut signatures = HashSet::new();
        let mut blueprints = HashSet::new();
        for kinds in kinds {
            for encoding in &encodings {
                for (start, plain) in [(0, Dtype::Bf16), (7, Dtype::Bf16), (0, Dtype::F16)] {
                    let request = Request { plain, encoding: encoding.clone(), start };
                    let (blueprint, _) = Blueprint::new(kinds.clone(), &request).unwrap();
                    signatures.insert(blueprint.signature());
                    blueprints.insert(format!("{blueprint:?}"));
                }
            }
        }
        assert_eq!(signatures.len(), blueprints.len());
    }
}
