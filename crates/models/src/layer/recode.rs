//! Affine codes in the place of floats, made as weights come: [`crate::Options::quantize`].
//!
//! Matrices and embeddings are coded alike, as mlx-lm's converter does. Whatever comes onto the device as floats is:
//! dense weights, ggml's blocks that are no affine codes, block-scaled small floats. Weights that came as affine codes
//! stay what they are, and so do those whose inputs are no whole number of groups: [`Recoding::notes`] tells them.
//!
//! Invariant: at any time the floats of one weight at most are held besides its codes.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use tandem_contracts::tensor::{Affine, Device, Weight};

/// Codes that are asked for, and what came of it.
#[derive(Debug)]
pub(crate) struct Recoding {
    format: Affine,
    /// Weights that became codes.
    coded: usize,
    /// Weights that stay floats, by their inputs: how many, and the first one's module.
    left: BTreeMap<usize, (usize, String)>,
}

impl Recoding {
    /// Nothing is coded yet.
    ///
    /// # Errors
    /// A format that devices do not take.
    pub(crate) fn new(format: Affine) -> Result<Self> {
        let Affine { bits, group } = format;
        if !format.is_supported() {
            let known = "weights take 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128";
            return Err(Error::unsupported(format!("{known}, asked for: {bits} bits, group {group}")));
        }
        Ok(Self { format, coded: 0, left: BTreeMap::new() })
    }

    /// The weight of a module as codes, if it can be.
    pub(super) fn apply(&mut self, path: &str, weight: Weight, device: &Device) -> Result<Weight> {
        let Weight::Dense(floats) = weight else { return Ok(weight) };
        let inputs = floats.shape().last().copied().unwrap_or(0);
        if !inputs.is_multiple_of(self.format.group.into()) {
            self.left.entry(inputs).or_insert_with(|| (0, path.to_owned())).0 += 1;
            return Ok(Weight::Dense(floats));
        }
        let codes = device.quantize(&floats, self.format)?;
        // A device that computes later would hold the floats of every weight until then.
        device.eval(&[&codes.codes, &codes.scales, &codes.biases])?;
        self.coded += 1;
        Ok(Weight::Affine(codes))
    }

    /// What was not done: lines for people.
    pub(crate) fn notes(&self) -> Vec<String> {
        if self.coded == 0 && self.left.is_empty() {
            return vec!["no weight is quantised: all came as codes".to_owned()];
        }
        let group = self.format.group;
        let line = |(inputs, (count, first)): (&usize, &(usize, String))| {
            let which = match count {
                1 => format!("{first} stays as it is"),
                _ => format!("{first} and other weights stay as they are, {count} in all"),
            };
            format!("{which}: {inputs} inputs are no whole number of groups of {group}")
        };
        self.left.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Checkpoint, DecoderSession, Options, Source,
        sample::{self, Floats, RECURRENT, ROUTED, through_codes},
        weights::{File, Gguf, Weights},
    };
    use safetensors::SafeTensors;
    use serde_json::Value;
    use std::collections::BTreeMap;
    use tandem_contracts::{
        fake,
        model::{AdapterSet, RowStep, Session, Slot, StatePolicy, Step, TokenSource, Wanted},
        tensor::{Dtype, Element, Quantized},
    };

    const FORMAT: Affine = Affine { bits: 4, group: 32 };

    fn load(
        config: &Value,
        weights: &BTreeMap<String, Floats>,
        quantize: Option<Affine>,
    ) -> Result<DecoderSession> {
        let (config, weights) = (config.to_string(), sample::safetensors(weights));
        let files = vec![File { name: "model.safetensors", bytes: &weights }];
        let source = Source::Safetensors { config: config.as_bytes(), generation: None, index: None, files };
        let options = Options { quantize, ..Options::default() };
        Checkpoint::open(source)?.load_releasing(&fake::open(), options, &|_| ())
    }

    fn logits(mut session: DecoderSession) -> Vec<f32> {
        session.open(Slot(0), &StatePolicy::Plain, None).unwrap();
        let tokens = TokenSource::Ids(vec![5, 9, 2, 7]);
        let (slot, adapters) = (Slot(0), AdapterSet::BASE);
        let row = RowStep { slot, position: 0, tokens, wanted: Wanted::All, adapters };
        session.step(&Step { rows: vec![row] }).unwrap().logits.unwrap().to_vec().unwrap()
    }

    /// Weights as they are after codes: matrices of whole groups, but for those that choose.
    fn coded(mut weights: BTreeMap<String, Floats>) -> BTreeMap<String, Floats> {
        let chooses =
            |name: &str| ["router.", ".gate.", "shared_expert_gate."].iter().any(|part| name.contains(part));
        for (name, floats) in &mut weights {
            let whole = floats.shape.len() > 1 && floats.shape.last().unwrap().is_multiple_of(32);
            if whole && !chooses(name) && !name.ends_with("bias") {
                floats.values = through_codes(&floats.values, FORMAT, |value| value);
            }
        }
        weights
    }

    /// The fake device multiplies with what codes stand for, so that a model of codes and one of these floats are alike.
    #[test]
    fn models_answer_as_if_their_files_held_codes() {
        let llama = (sample::config(), sample::weights(), sample::weights());
        let routed = ROUTED.iter().map(|model| ((model.config)(), (model.weights)(), model.apart()));
        let recurrent =
            RECURRENT.iter().map(|model| ((model.config)(), (model.weights)(), (model.weights)()));
        for (config, weights, apart) in [llama].into_iter().chain(routed).chain(recurrent) {
            let expected = logits(load(&config, &coded(weights.clone()), None).unwrap());
            assert_ne!(logits(load(&config, &weights, None).unwrap()), expected, "{config}");
            for weights in [&weights, &apart] {
                assert_eq!(logits(load(&config, weights, Some(FORMAT)).unwrap()), expected, "{config}");
            }
        }
    }

    #[test]
    fn what_is_not_coded_is_told() {
        let session =
            |group| load(&sample::config(), &sample::weights(), Some(Affine { bits: 8, group })).unwrap();
        assert!(session(32).notes().is_empty());
        assert_eq!(
            session(64).notes(),
            ["model.embed_tokens and other weights stay as they are, 11 in all: \
              32 inputs are no whole number of groups of 64"]
        );
        let plain = load(&sample::config(), &sample::weights(), None).unwrap();
        assert!(plain.notes().is_empty());
        let device = fake::open();
        let floats = |width| Weight::Dense(device.upload_f32(&vec![1.0; width], &[1, width]).unwrap());
        let mut recoding = Recoding::new(FORMAT).unwrap();
        let codes =
            device.quantize(&device.upload_f32(&[1.0; 64], &[1, 64]).unwrap(), Affine { bits: 8, group: 64 });
        let same = recoding.apply("a", Weight::Affine(codes.unwrap()), &device).unwrap();
        assert!(matches!(same, Weight::Affine(Quantized { format: Affine { bits: 8, group: 64 }, .. })));
        assert_eq!(recoding.notes(), ["no weight is quantised: all came as codes"]);
        assert!(matches!(recoding.apply("b", floats(48), &device).unwrap(), Weight::Dense(_)));
        assert_eq!(recoding.notes(), ["b stays as it is: 48 inputs are no whole number of groups of 32"]);
    }

    #[test]
    fn formats_that_devices_do_not_take_are_refused() {
        for (bits, group) in [(7, 64), (4, 16), (0, 32), (16, 64)] {
            let refused =
                load(&sample::config(), &sample::weights(), Some(Affine { bits, group })).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!(
                    "weights take 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128, asked for: {bits} bits, group {group}"
                )
            );
        }
    }

    /// ggml's blocks are what llama.cpp's own package decodes them to. Those that are no affine codes become some.
    #[test]
    fn blocks_of_gguf_stay_or_become_codes() {
        let bytes = include_bytes!("../../../../fixtures/gguf/blocks.gguf");
        let decoded = include_bytes!("../../../../fixtures/gguf/blocks.safetensors");
        let decoded = SafeTensors::deserialize(decoded).unwrap();
        let device = fake::open();
        let mut weights = Weights::gguf(Gguf::parse(File { name: "w", bytes }).unwrap(), 1, 1).unwrap();
        for (name, width) in
            [("Q5_0", 32), ("Q5_1", 32), ("Q2_K", 256), ("Q3_K", 256), ("Q4_K", 256), ("Q6_K", 256)]
        {
            let weight = weights.matrix(name, None, &[4, width], &device).unwrap();
            let came_as_codes = matches!(weight, Weight::Affine(_));
            assert_eq!(came_as_codes, !["Q2_K", "Q3_K", "Q6_K"].contains(&name), "{name}");
            let recoded = Recoding::new(FORMAT).unwrap().apply(name, weight, &device).unwrap();
            let Weight::Affine(codes) = recoded else { panic!("{name} is coded") };
            let got = device
                .cast(&device.dequantize(&codes).unwrap(), Dtype::F32)
                .unwrap()
                .to_vec::<f32>()
                .unwrap();
            let floats: Vec<f32> =
                decoded.tensor(name).unwrap().data().chunks_exact(4).map(f32::read).collect();
            let same = |value: f32| value;
            let expected = if came_as_codes { floats } else { through_codes(&floats, FORMAT, same) };
            assert_eq!(got, expected, "{name}");
        }
    }
}
