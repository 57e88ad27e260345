//! What a row must hold: its own tokens, each encoded by itself, and nothing that depends on anything else.

use crate::recurrent::{Alone, inputs};
use std::{cell::RefCell, collections::HashMap, ops::Range, rc::Rc};
use tandem_contracts::tensor::{Device, Plane, Run, Tensor};
use tandem_kv::{
    Kind, LayerShape,
    codec::{Codec, Format},
    ragged::{Kit, Packed, RaggedRow, View, recur},
};

/// Keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Keys,
    Values,
}

/// How a token came to be stored as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum History {
    Plain,
    /// Stored plain first, encoded with the row.
    Converted,
    Encoded,
}

/// Elements of a token in a layer: a hash, spread over -2 to 2.
fn elements(shape: LayerShape, token: u32, layer: usize, side: Side) -> Vec<f32> {
    let seed = token.wrapping_mul(97).wrapping_add(layer as u32 * 2 + u32::from(side == Side::Values));
    (0..(shape.heads * shape.key_width) as u32).map(|at| hash(seed, at)).collect()
}

/// A number of -2 to 2.
pub(crate) fn hash(seed: u32, at: u32) -> f32 {
    let hash = (seed.wrapping_mul(0x9E37_79B1) ^ at.wrapping_mul(0x85EB_CA77)).wrapping_mul(0xC2B2_AE3D);
    (hash >> 8) as f32 / (1 << 22) as f32 - 2.0
}

/// Packed `[tokens, heads, width]`.
pub(crate) fn packed(kit: &Kit, tokens: &[u32], layer: usize, side: Side) -> Tensor {
    let shape = kit.blueprint().kinds()[layer].shape().unwrap();
    let all: Vec<f32> = tokens.iter().flat_map(|&token| elements(shape, token, layer, side)).collect();
    kit.device().upload_f32(&all, &[tokens.len(), shape.heads, shape.key_width]).unwrap()
}

/// What is known about a model's rows.
pub(crate) struct Naive {
    pub(crate) kit: Rc<Kit>,
    known: HashMap<(u32, usize, Side, History), Vec<Vec<u8>>>,
    codecs: HashMap<(Format, usize), Rc<dyn Codec>>,
    pub(crate) alone: RefCell<Alone>,
}

impl Naive {
    pub(crate) fn new(kit: Rc<Kit>) -> Self {
        Self { kit, known: HashMap::new(), codecs: HashMap::new(), alone: RefCell::default() }
    }

    pub(crate) fn device(&self) -> Device {
        Rc::clone(self.kit.device())
    }

    /// Layers that keep something of their own.
    pub(crate) fn own(&self) -> impl Iterator<Item = usize> + use<> {
        let kinds = self.kit.blueprint().kinds().to_vec();
        (0..kinds.len()).filter(move |&layer| !matches!(kinds[layer], Kind::Shared { .. }))
    }

    fn codec(&mut self, format: Format, width: usize) -> Rc<dyn Codec> {
        let device = self.device();
        let open = || format.open(&device, width).unwrap();
        Rc::clone(self.codecs.entry((format, width)).or_insert_with(open))
    }

    /// What attention reads of one token, field by field.
    fn token(&mut self, token: u32, layer: usize, side: Side, history: History) -> Vec<Vec<u8>> {
        let key = (token, layer, side, history);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let device = self.device();
        let transition = self.kit.blueprint().policy().layers()[layer];
        let width = self.kit.blueprint().kinds()[layer].shape().unwrap().key_width;
        let format = |position| {
            let scheme = transition.scheme(position);
            if side == Side::Keys { scheme.keys } else { scheme.values }
        };
        let (before, after) = (self.codec(format(0), width), self.codec(format(usize::MAX), width));
        let x = packed(&self.kit, &[token], layer, side);
        let fields = match history {
            History::Plain => before.encode(&x).unwrap(),
            History::Encoded => after.encode(&x).unwrap(),
            History::Converted => after.encode(&before.decode(&before.encode(&x).unwrap()).unwrap()).unwrap(),
        };
        let bytes: Vec<Vec<u8>> = fields.iter().map(|field| device.download(field).unwrap()).collect();
        self.known.insert(key, bytes.clone());
        bytes
    }

    /// Holds what attention reads in the open step of a row, whose tokens are these with the step's, to each token.
    pub(crate) fn check(&mut self, row: &RaggedRow, tokens: &[u32], step: Range<usize>) {
        let layers = self.kit.blueprint().kinds().len();
        let views: Vec<Option<View>> = (0..layers).map(|layer| row.view(layer).ok()).collect();
        self.check_views(&views, tokens, step);
    }

    /// The same of a row that has these views, one for each layer that has keys.
    pub(crate) fn check_views(&mut self, views: &[Option<View>], tokens: &[u32], step: Range<usize>) {
        let kinds = self.kit.blueprint().kinds().to_vec();
        for (layer, kind) in kinds.iter().enumerate() {
            if let Kind::Recurrent(_) = kind {
                continue;
            }
            let owner = if let Kind::Shared { donor } = *kind { donor } else { layer };
            let (window, keep) = match kinds[owner] {
                Kind::Window { window, keep, .. } => (window, keep),
                _ => (usize::MAX, 0),
            };
            let span = views[layer].as_ref().unwrap().span(7..9);
            assert_eq!((span.queries.clone(), span.position), (7..9, step.start));
            let positions: Vec<usize> = span.runs.iter().flat_map(|run| run.positions.clone()).collect();
            let read = |key: &usize| *key < keep || key.saturating_add(window - keep) > step.start;
            assert_eq!(positions, (0..step.end).filter(read).collect::<Vec<_>>(), "layer {layer}");
            for (side, plane) in [(Side::Keys, span.keys), (Side::Values, span.values)] {
                self.check_plane((owner, side), plane, span.runs, tokens, step.start);
            }
        }
    }

    fn check_plane(
        &mut self,
        (layer, side): (usize, Side),
        plane: Plane<'_>,
        runs: &[Run],
        tokens: &[u32],
        query: usize,
    ) {
        let start = self.kit.blueprint().policy().layers()[layer].boundary().unwrap_or(0);
        let heads = self.kit.blueprint().kinds()[layer].shape().unwrap().heads;
        let planes = match plane {
            Plane::Plain(plane) => vec![plane],
            Plane::Affine(plane) => vec![&plane.codes, &plane.scales, &plane.biases],
            Plane::TurboKeys(plane) => vec![&plane.codes, &plane.scales, &plane.zeros],
            Plane::TurboValues(plane) => vec![&plane.codes, &plane.scales],
        };
        let held: Vec<Vec<u8>> = planes.iter().map(|plane| self.device().download(plane).unwrap()).collect();
        let places = runs.iter().flat_map(|run| {
            (run.column..).zip(run.positions.clone()).map(|(column, position)| (run.row, column, position))
        });
        for (row, column, position) in places {
            let history = match (query < start, position < start) {
                (true, _) => History::Plain,
                (false, true) => History::Converted,
                (false, false) => History::Encoded,
            };
            let expected = self.token(tokens[position], layer, side, history);
            for ((plane, held), expected) in planes.iter().zip(&held).zip(expected) {
                for (head, expected) in expected.chunks(expected.len() / heads).enumerate() {
                    let at = ((row * heads + head) * plane.shape()[2] + column) * expected.len();
                    let got = &held[at..at + expected.len()];
                    assert_eq!(
                        got, expected,
                        "layer {layer}, {side:?}, position {position} in row {row}, column {column}"
                    );
                }
            }
        }
    }
}

/// Appends packed tokens to the first `layers` layers that keep something, of every row its own range. Gives the outputs
/// of those that carry a state; there all tokens must be some row's.
pub(crate) fn append(
    naive: &Naive,
    rows: &mut [(&mut RaggedRow, Range<usize>)],
    tokens: &[u32],
    layers: usize,
) -> Vec<(usize, Tensor)> {
    let mut outputs = Vec::new();
    for layer in naive.own().take(layers) {
        if let Kind::Recurrent(_) = naive.kit.blueprint().kinds()[layer] {
            let net = naive.alone.borrow_mut().net(&naive.kit, layer);
            let inputs = inputs(&naive.kit, tokens, layer);
            outputs.push((layer, recur(layer, &inputs, &net, rows).unwrap()));
            continue;
        }
        let [keys, values] = [Side::Keys, Side::Values].map(|side| packed(&naive.kit, tokens, layer, side));
        let mut packed = Packed::new(&naive.kit, layer, &keys, &values);
        for (row, range) in rows.iter_mut() {
            row.append(&mut packed, range.clone()).unwrap();
        }
    }
    outputs
}
