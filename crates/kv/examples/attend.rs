//! Two sequences with 8-bit keys and values, stepped together: `cargo run -p tandem-kv --example attend`.

use std::rc::Rc;
use tandem_contracts::{
    model::Slot,
    tensor::{Affine, Attend, Dtype},
};
use tandem_kv::{
    Blueprint, Kind, LayerShape,
    codec::Scheme,
    policy::{Encoding, Request},
    ragged::{Kit, RaggedRow, RaggedRows},
    rows::{Part, Rows},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = tandem_backend_cpu::open(tandem_backend_cpu::Options::default())?;
    // One layer with two heads of 64, kept whole, in codes of 8 bits from the first token on.
    let layer = Kind::Full(LayerShape { heads: 2, key_width: 64, value_width: 64 });
    let scheme = Scheme::affine(Affine { bits: 8, group: 64 }, Dtype::F16);
    let request = Request { plain: Dtype::F16, encoding: Encoding::Uniform(scheme), start: 0 };
    let (blueprint, _) = Blueprint::new(vec![layer], &request)?;
    println!("a row of 1000 tokens takes {} bytes", blueprint.bytes(1000));

    let kit = Kit::open(&device, blueprint)?;
    let mut rows = RaggedRows::new(Rc::clone(&kit));
    let (first, second) = (Slot(0), Slot(1));
    rows.join(first, RaggedRow::new(Rc::clone(&kit)))?;
    rows.join(second, RaggedRow::new(kit))?;

    // Three tokens of one and two of the other in one step. The numbers come from a model.
    let packed: Vec<f32> = (0..5 * 2 * 64).map(|index| (index as f32 * 0.37).sin()).collect();
    let x = device.upload_f32(&packed, &[5, 2, 64])?;
    let parts = [Part { slot: first, tokens: 0..3 }, Part { slot: second, tokens: 3..5 }];
    rows.begin(&parts)?;
    rows.append(0, &x, &x)?;
    let views = rows.views(0)?;
    let spans: Vec<_> = views.iter().zip(&parts).map(|(view, part)| view.span(part.tokens.clone())).collect();
    let mixed = device.attend(&x, &spans, &Attend::causal(0.125))?;
    println!("the last token sees {:?} ..", &mixed.to_vec::<f32>()?[4 * 2 * 64..][..3]);
    drop(spans);
    drop(views);

    // The second of the other's tokens turns out to be wrong.
    rows.commit(&[3, 1])?;
    println!("{} and {} tokens are kept", rows.tokens(first)?, rows.tokens(second)?);
    Ok(())
}
