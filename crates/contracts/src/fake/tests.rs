//! What makes the fake a deferred device that tests can count on.

use super::{Counts, Fake};
use crate::tensor::{Backend, Binary, Device, Dtype, ErrorKind, Result, Unary};

fn counts(fake: &Fake, evaluations: u64, downloads: u64, hidden_evaluations: u64, computed: u64) {
    assert_eq!(fake.counts(), Counts { evaluations, downloads, hidden_evaluations, computed });
}

#[test]
fn nothing_is_computed_before_it_is_asked_for() -> Result<()> {
    let fake = Fake::open();
    let x = fake.upload_f32(&[1.0, 4.0], &[2])?;
    let root = fake.unary(Unary::Sqrt, x.clone())?;
    let unused = fake.unary(Unary::Exp, x)?;
    counts(&fake, 0, 0, 0, 0);
    assert_eq!(fake.memory().allocated, 0);
    fake.eval(&[&root])?;
    counts(&fake, 1, 0, 0, 2);
    assert_eq!(root.to_vec::<f32>()?, [1.0, 2.0]);
    counts(&fake, 1, 1, 0, 2);
    drop(unused);
    counts(&fake, 1, 1, 0, 2);
    Ok(())
}

#[test]
fn a_download_that_has_to_compute_is_told() -> Result<()> {
    let fake = Fake::open();
    let x = fake.arange(3, 2)?;
    assert_eq!(x.to_vec::<i32>()?, [3, 4]);
    assert_eq!(x.to_vec::<i32>()?, [3, 4]);
    counts(&fake, 0, 2, 1, 1);
    Ok(())
}

#[test]
fn deep_graphs_need_no_stack() -> Result<()> {
    let device: Device = Fake::open();
    let one = device.upload_f32(&[1.0], &[1])?;
    let chain = || {
        let start = device.upload_f32(&[0.0], &[1])?;
        (0..100_000).try_fold(start, |x, _| device.binary(Binary::Add, x, &one))
    };
    drop(chain()?);
    assert_eq!(chain()?.to_vec::<f32>()?, [100_000.0]);
    Ok(())
}

#[test]
fn a_failure_reaches_all_that_depends_on_it_and_nothing_else() -> Result<()> {
    let fake = Fake::open();
    let x = fake.upload_f32(&[1.0, 2.0], &[2])?;
    let wild = fake.take(&x, &fake.upload_i32(&[7], &[1])?, 0)?;
    let after = fake.cast(&wild, Dtype::F16)?;
    for _ in 0..2 {
        assert_eq!(fake.eval(&[&after]).map_err(|error| error.kind()), Err(ErrorKind::Index));
        assert_eq!(wild.to_vec::<f32>().map_err(|error| error.operation()), Err("take"));
    }
    assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    Ok(())
}

#[test]
fn last_handles_are_written_over() -> Result<()> {
    let fake = Fake::open();
    let x = fake.upload_f32(&[1.0; 256], &[256])?;
    fake.eval(&[&x])?;
    let before = fake.memory();
    let negative = fake.unary(Unary::Negate, x)?;
    fake.eval(&[&negative])?;
    assert_eq!(fake.memory(), before);
    let kept = negative.clone();
    let positive = fake.unary(Unary::Negate, negative)?;
    fake.eval(&[&positive])?;
    assert_eq!(fake.memory().active, before.active + 1024);
    assert_eq!(fake.memory().allocated, before.allocated + 1024);
    drop((kept, positive));
    assert_eq!(fake.memory().active, 0);
    Ok(())
}
