//! A project that brings its own loop and uses only the models: a small random llama continues a prompt greedily.
//!
//! `cargo run -p tandem-models --example greedy`. The device is the reference one; any other of the port will do.

use std::error::Error;
use tandem_contracts::{
    fake,
    model::{AdapterSet, RowStep, Slot, StatePolicy, Step, TokenSource, Wanted},
};
use tandem_models::{Checkpoint, Options, Source, weights::File};

const CONFIG: &[u8] = include_bytes!("../../../fixtures/tiny/llama/config.json");
const WEIGHTS: &[u8] = include_bytes!("../../../fixtures/tiny/llama/model.safetensors");

fn main() -> Result<(), Box<dyn Error>> {
    let files = vec![File { name: "model.safetensors", bytes: WEIGHTS }];
    let source = Source::Safetensors { config: CONFIG, generation: None, index: None, files };
    let device = fake::open();
    let mut session = Checkpoint::open(source)?.load(&device, Options::default())?;

    let slot = Slot(0);
    session.open(slot, &StatePolicy::Plain, None)?;
    let (mut position, mut tokens) = (0, vec![17, 4, 99]);
    for _ in 0..8 {
        let length = tokens.len();
        let row = RowStep {
            slot,
            position,
            tokens: TokenSource::Ids(tokens),
            wanted: Wanted::Last,
            adapters: AdapterSet::BASE,
        };
        let stepped = session.step(&Step { rows: vec![row] })?;
        let logits = stepped.logits.ok_or("the last token wants logits")?;
        let best = device.argmax(&logits, 1)?.to_vec::<i32>()?[0];
        println!("{best}");
        position += length;
        tokens = vec![u32::try_from(best)?];
    }
    Ok(())
}
