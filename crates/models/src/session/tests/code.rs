//! Whole models over codes from the first token on, against the same models over floats that went through the codec when
//! they were appended: what attention reads of both is the same.

use super::{part, run};
use crate::{
    Checkpoint, Options, Ring, Source,
    session::{DecoderSession, pool::Pool},
    weights::File,
};
use std::rc::Rc;
use tandem_contracts::{
    fake,
    model::{Code, Codes, Session, Slot, StatePolicy, Wanted},
    tensor::{Affine, Device, Dtype, Result, Tensor, fused},
};
use tandem_kv::{
    codec::{Codec, Format, Held},
    ragged::{Kit, RaggedRow, RaggedRows, View},
    recurrence::Recurrence,
    rows::{Part, Rows},
};

/// Width of the models' heads.
const WIDTH: usize = 64;
/// Tokens: more than the planes of a window have columns.
const LENGTH: usize = 290;
const POLICY: StatePolicy = StatePolicy::Plain;

/// Rows of floats that have been codes.
#[derive(Debug)]
struct Decoded {
    rows: RaggedRows,
    codecs: [Rc<dyn Codec>; 2],
}

impl Decoded {
    /// What attention reads of `x`, in f32: decoding would round TurboQuant's numbers to bf16, and with that make other codes
    /// in later layers.
    fn pass(&self, side: usize, x: &Tensor) -> Result<Tensor> {
        let (codec, device) = (&self.codecs[side], self.rows.kit().device());
        let fields = codec.encode(x)?;
        match codec.held(&fields)? {
            Held::TurboKeys(keys) => fused::turbo_keys(device, &keys),
            Held::TurboValues(values) => {
                fused::turn_back(device, &fused::turbo_values(device, &values)?, &values.book.signs)
            }
            Held::Plain(_) | Held::Affine(_) => codec.decode(&fields),
        }
    }
}

impl Rows for Decoded {
    fn kit(&self) -> &Rc<Kit> {
        self.rows.kit()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.rows.contains(slot)
    }

    fn tokens(&self, slot: Slot) -> Result<usize> {
        self.rows.tokens(slot)
    }

    fn floor(&self, slot: Slot) -> Result<usize> {
        self.rows.floor(slot)
    }

    fn join(&mut self, slot: Slot, row: RaggedRow) -> Result<()> {
        self.rows.join(slot, row)
    }

    fn leave(&mut self, slot: Slot) -> Result<RaggedRow> {
        self.rows.leave(slot)
    }

    fn discard(&mut self, slot: Slot) {
        self.rows.discard(slot);
    }

    fn fork(&mut self, from: Slot, to: Slot) -> Result<()> {
        self.rows.fork(from, to)
    }

    fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        self.rows.trim(slot, tokens)
    }

    fn begin(&mut self, parts: &[Part]) -> Result<()> {
        self.rows.begin(parts)
    }

    fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.rows.append(layer, &self.pass(0, keys)?, &self.pass(1, values)?)
    }

    fn recur(&mut self, layer: usize, inputs: &[Tensor], recurrence: &Rc<dyn Recurrence>) -> Result<Tensor> {
        self.rows.recur(layer, inputs, recurrence)
    }

    fn views(&self, layer: usize) -> Result<Vec<View>> {
        self.rows.views(layer)
    }

    fn sound(&self) -> Result<Option<Tensor>> {
        self.rows.sound()
    }

    fn commit(&mut self, keep: &[usize]) -> Result<Vec<Tensor>> {
        self.rows.commit(keep)
    }

    fn roll_back(&mut self) {
        self.rows.roll_back();
    }
}

/// A golden model: three layers of four that keep a window of 16, or all of three that are bounded to 20 positions, of
/// which 4 are the first ones.
fn load(device: &Device, ring: Option<Ring>) -> DecoderSession {
    let (config, weights): (&[u8], &[u8]) = match ring {
        None => (
            include_bytes!("../../../../../fixtures/tiny/llama_swa/config.json"),
            include_bytes!("../../../../../fixtures/tiny/llama_swa/model.safetensors"),
        ),
        Some(_) => (
            include_bytes!("../../../../../fixtures/tiny/llama/config.json"),
            include_bytes!("../../../../../fixtures/tiny/llama/model.safetensors"),
        ),
    };
    let files = vec![File { name: "model.safetensors", bytes: weights }];
    let source = Source::Safetensors { config, generation: None, index: None, files };
    let options = Options { ring, ..Options::default() };
    Checkpoint::open(source).unwrap().load_releasing(device, options, &|_| ()).unwrap()
}

fn ids() -> Vec<u32> {
    (0..LENGTH as u32).map(|at| (at * 37 + at * at % 101) % 512).collect()
}

/// Logits of every token, from steps of these lengths and then of one token each.
fn logits(session: &mut dyn Session, policy: &StatePolicy, chunks: &[usize]) -> Vec<Vec<f32>> {
    session.open(Slot(0), policy, None).unwrap();
    let (ids, mut position, mut logits) = (ids(), 0, Vec::new());
    for &chunk in chunks.iter().chain(&[1; LENGTH]) {
        let end = LENGTH.min(position + chunk);
        if position == end {
            break;
        }
        logits.extend(run(session, vec![part(0, position, &ids[position..end], Wanted::All)]));
        position = end;
    }
    logits
}

/// The model over floats that went through the codecs of these formats.
fn reference(ring: Option<Ring>, formats: [Format; 2]) -> Vec<Vec<f32>> {
    let device = fake::open();
    let mut session = load(&device, ring);
    let kit = Kit::open(&device, session.layers.blueprint(&POLICY).unwrap().0).unwrap();
    let codecs = formats.map(|format| format.open(&device, WIDTH).unwrap());
    let rows = Box::new(Decoded { rows: RaggedRows::new(kit), codecs });
    session.pools.push(Pool { policy: POLICY, rows });
    logits(&mut session, &POLICY, &[LENGTH])
}

/// Holds a model over codes to its reference; logits are within -3 and 3.
fn hold(ring: Option<Ring>, code: Code, formats: [Format; 2], tolerance: f32) {
    let expected = reference(ring, formats);
    let policy = StatePolicy::Encoded { codes: Codes::Uniform(code), start: 0 };
    let plain = logits(&mut load(&fake::open(), ring), &POLICY, &[LENGTH]);
    assert!(
        distance(&plain, &expected) > 4.0 * tolerance,
        "codes must show: {}",
        distance(&plain, &expected)
    );
    for device in [fake::open(), fake::open_for_shared_planes()] {
        for chunks in [&[LENGTH][..], &[100, 120, 50]] {
            let mut session = load(&device, ring);
            assert!(session.exemptions(&policy).unwrap().is_empty());
            let far = distance(&logits(&mut session, &policy, chunks), &expected);
            assert!(far <= tolerance, "{code:?}, {ring:?}, steps of {chunks:?}: {far}");
        }
    }
}

fn distance(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!((a.len(), b.len()), (LENGTH, LENGTH));
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() }).fold(0.0, f32::max)
}

const RINGS: [Option<Ring>; 2] = [None, Some(Ring { window: 20, keep: 4, from: 0 })];

#[test]
fn affine_codes_are_what_they_decode_to() {
    for ring in RINGS {
        for bits in [4, 8] {
            let affine = Affine { bits, group: 32 };
            let format = Format::Affine { affine, dtype: Dtype::F32 };
            hold(ring, Code::Affine(affine), [format; 2], 1e-4);
        }
    }
}

/// Values are mixed before they are turned back, which moves roundings of f32; one that falls on the other side of a
/// boundary is another code.
#[test]
fn turbo_codes_are_what_they_decode_to() {
    for ring in RINGS {
        let formats = [Format::TurboKeys { bits: 8 }, Format::TurboValues { bits: 3 }];
        hold(ring, Code::Turbo { keys: 8, values: 3 }, formats, 2e-2);
    }
}
