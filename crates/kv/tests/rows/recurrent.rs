//! Layers that carry a state: what they compute in these tests, and what a row alone would have got of it.

use crate::naive::hash;
use std::{collections::HashMap, ops::Range, rc::Rc};
use tandem_contracts::tensor::{Convolution, Device, Dtype, Result, Rule, Scan, StateSpan, Tensor};
use tandem_kv::{
    Kind, RecurrentShape,
    ragged::{Kit, RaggedRow},
    recurrence::{Carried, Carry, Recurrence, State},
};

/// Gated delta: one key head of 4 for two value heads of 3.
pub(crate) const DELTA: Kind =
    Kind::Recurrent(RecurrentShape { heads: 2, value_width: 3, key_width: 4, channels: 14, taps: 4 });

/// A state space: one group of 5 for three heads of 2.
pub(crate) const SPACE: Kind =
    Kind::Recurrent(RecurrentShape { heads: 3, value_width: 2, key_width: 5, channels: 16, taps: 3 });

/// A short convolution alone.
pub(crate) const SHORT: Kind =
    Kind::Recurrent(RecurrentShape { heads: 0, value_width: 1, key_width: 1, channels: 7, taps: 3 });

/// A convolution with SiLU, whose channels are queries, keys and values of a scan.
#[derive(Debug)]
struct Net {
    device: Device,
    weight: Tensor,
    shape: RecurrentShape,
    rule: Rule,
}

impl Net {
    fn open(kit: &Kit, layer: usize) -> Rc<dyn Recurrence> {
        let Kind::Recurrent(shape) = kit.blueprint().kinds()[layer] else {
            panic!("layer {layer} has no state")
        };
        let device = Rc::clone(kit.device());
        let values: Vec<f32> =
            (0..(shape.channels * shape.taps) as u32).map(|at| hash(layer as u32 + 1000, at)).collect();
        let weight = device.upload_f32(&values, &[shape.channels, shape.taps]).unwrap();
        let weight = device.cast(&weight, kit.blueprint().policy().dtype()).unwrap();
        let rule = if shape.key_width == 4 { Rule::Delta } else { Rule::Sum };
        Rc::new(Self { device, weight, shape, rule })
    }
}

impl Recurrence for Net {
    fn carry(&self, inputs: &[Tensor], rows: &[Carried<'_>]) -> Result<Carry> {
        let [x, decay, rate] = inputs else { panic!("three inputs") };
        let spans = |of: fn(&State) -> &Tensor| -> Vec<StateSpan<'_>> {
            rows.iter().map(|row| StateSpan { tokens: row.tokens.clone(), state: of(row.state) }).collect()
        };
        let how = Convolution { weight: &self.weight, bias: None, silu: true };
        let mixed = self.device.convolve(x, &spans(|state| &state.tail), &how)?;
        let RecurrentShape { heads, value_width, key_width, .. } = self.shape;
        if heads == 0 {
            let matrices = rows.iter().map(|row| row.state.matrix.clone());
            let states = mixed.states.into_iter().zip(matrices);
            let states = states.map(|(tail, matrix)| State { tail, matrix }).collect();
            return Ok(Carry { outputs: mixed.outputs, states });
        }
        let tokens = x.shape()[0];
        let part = |channels: Range<usize>, heads: usize| {
            let part = self.device.slice(&mixed.outputs, &[0..tokens, channels.clone()])?;
            self.device.reshape(&part, &[tokens, heads, channels.len() / heads])
        };
        let scan = Scan {
            queries: &part(0..key_width, 1)?,
            keys: &part(key_width..2 * key_width, 1)?,
            values: &part(2 * key_width..2 * key_width + heads * value_width, heads)?,
            decay,
            rate,
            rule: self.rule,
        };
        let scanned = self.device.scan(&scan, &spans(|state| &state.matrix))?;
        let states = mixed.states.into_iter().zip(scanned.states);
        let states = states.map(|(tail, matrix)| State { tail, matrix }).collect();
        Ok(Carry { outputs: scanned.outputs, states })
    }
}

/// A layer's inputs for packed tokens.
pub(crate) fn inputs(kit: &Kit, tokens: &[u32], layer: usize) -> Vec<Tensor> {
    let Kind::Recurrent(shape) = kit.blueprint().kinds()[layer] else { panic!("layer {layer} has no state") };
    let device = kit.device();
    let upload = |width: usize, salt: usize, scale: fn(f32) -> f32| {
        let seed = |token: u32| token.wrapping_mul(31).wrapping_add((layer * 4 + salt) as u32);
        let values: Vec<f32> = tokens
            .iter()
            .flat_map(|&token| (0..width as u32).map(move |at| scale(hash(seed(token), at))))
            .collect();
        device.upload_f32(&values, &[tokens.len(), width]).unwrap()
    };
    let x = device.cast(&upload(shape.channels, 0, |x| x), kit.blueprint().policy().dtype()).unwrap();
    let gate: fn(f32) -> f32 = |x| (x + 2.0) / 4.0;
    vec![x, upload(shape.heads, 1, gate), upload(shape.heads, 2, gate)]
}

/// Recurrences of a model's layers, and what they give a row that is alone, token by token.
#[derive(Default)]
pub(crate) struct Alone {
    nets: HashMap<usize, Rc<dyn Recurrence>>,
    known: HashMap<(usize, Vec<u32>), (State, Vec<u8>)>,
}

impl Alone {
    pub(crate) fn net(&mut self, kit: &Kit, layer: usize) -> Rc<dyn Recurrence> {
        Rc::clone(self.nets.entry(layer).or_insert_with(|| Net::open(kit, layer)))
    }

    /// State and bytes of the last token's output after these tokens.
    fn after(&mut self, kit: &Kit, layer: usize, tokens: &[u32]) -> (State, Vec<u8>) {
        if let Some(known) = self.known.get(&(layer, tokens.to_vec())) {
            return known.clone();
        }
        let device = kit.device();
        let Some((&last, before)) = tokens.split_last() else {
            let Kind::Recurrent(shape) = kit.blueprint().kinds()[layer] else { panic!("no state") };
            let zeros = |extents: &[usize], dtype| {
                let zeros = vec![0.0; extents.iter().product()];
                device.cast(&device.upload_f32(&zeros, extents).unwrap(), dtype).unwrap()
            };
            let tail = zeros(&shape.tail(), kit.blueprint().policy().dtype());
            return (State { tail, matrix: zeros(&shape.matrix(), Dtype::F32) }, Vec::new());
        };
        let (state, _) = self.after(kit, layer, before);
        let carried = Carried { tokens: 0..1, state: &state };
        let net = self.net(kit, layer);
        let Carry { outputs, mut states } = net.carry(&inputs(kit, &[last], layer), &[carried]).unwrap();
        let result = (states.remove(0), device.download(&outputs).unwrap());
        self.known.insert((layer, tokens.to_vec()), result.clone());
        result
    }

    /// Holds a step's outputs to those of the row alone; `tokens` are the row's with the step's, of which the step is
    /// `step`, at `range` of the outputs.
    pub(crate) fn check(
        &mut self,
        kit: &Kit,
        (layer, outputs): &(usize, Tensor),
        range: &Range<usize>,
        (tokens, step): (&[u32], Range<usize>),
    ) {
        let bytes = kit.device().download(outputs).unwrap();
        let size = bytes.len() / outputs.shape()[0];
        for (at, position) in range.clone().zip(step) {
            let (_, expected) = self.after(kit, *layer, &tokens[..=position]);
            assert_eq!(bytes[at * size..(at + 1) * size], expected, "layer {layer}, position {position}");
        }
    }

    /// Holds what a row of these tokens has stored to the state of the row alone, if all of its layers carry one.
    pub(crate) fn check_states(&mut self, kit: &Kit, row: &RaggedRow, tokens: &[u32]) {
        if !kit.blueprint().kinds().iter().all(|kind| matches!(kind, Kind::Recurrent(_))) {
            return;
        }
        let planes: Vec<&Tensor> = row.planes().collect();
        for (layer, planes) in planes.chunks(2).enumerate() {
            let (state, _) = self.after(kit, layer, tokens);
            for (plane, expected) in planes.iter().zip([&state.tail, &state.matrix]) {
                assert_eq!((plane.dtype(), plane.shape()), (expected.dtype(), expected.shape()));
                let [got, expected] = [plane, expected].map(|plane| kit.device().download(plane).unwrap());
                assert_eq!(got, expected, "layer {layer} of {} tokens", tokens.len());
            }
        }
    }
}
