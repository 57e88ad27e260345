//! Threads own their devices; what crosses is a closure going in and bytes coming out.

use std::thread;
use tandem_backend_mlx::{Options, Processor, open, version};
use tandem_contracts::tensor::{Binary, ErrorKind, OpenDevice, Result};

fn doubled(open: OpenDevice, values: &[f32]) -> Result<Vec<f32>> {
    let device = open()?;
    let mut x = device.upload_f32(values, &[values.len()])?;
    for _ in 0..20 {
        let same = x.clone();
        x = device.binary(Binary::Add, x, &same)?;
        device.async_eval(&[&x])?;
    }
    device.synchronize()?;
    x.to_vec::<f32>()
}

#[test]
fn devices_of_several_threads_work_at_once() {
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let values: Vec<f32> = (0..64).map(|j| (i * 64 + j) as f32).collect();
            let expected: Vec<f32> = values.iter().map(|x| x * (1 << 20) as f32).collect();
            let device: OpenDevice = Box::new(|| open(Options::default()));
            thread::spawn(move || (doubled(device, &values), expected))
        })
        .collect();
    for thread in threads {
        let (got, expected) = thread.join().expect("the thread ends");
        assert_eq!(got.expect("the device works"), expected);
    }
}

#[test]
fn a_device_outlives_another_thread_s() -> Result<()> {
    let device = open(Options::default())?;
    let x = device.upload_f32(&[1.0, 2.0], &[2])?;
    let sum = device.binary(Binary::Add, x.clone(), &x)?;
    thread::spawn(|| doubled(Box::new(|| open(Options::default())), &[1.0]))
        .join()
        .expect("the thread ends")?;
    assert_eq!(sum.to_vec::<f32>()?, [2.0, 4.0]);
    Ok(())
}

#[test]
fn handles_of_another_device_are_refused() -> Result<()> {
    let (one, other) = (open(Options::default())?, open(Options::default())?);
    let x = one.upload_f32(&[1.0], &[1])?;
    let foreign = |result: Result<()>| result.err().map(|error| error.kind());
    assert_eq!(foreign(other.eval(&[&x])), Some(ErrorKind::Foreign));
    assert_eq!(foreign(other.download(&x).map(drop)), Some(ErrorKind::Foreign));
    Ok(())
}

#[test]
fn a_processor_can_be_asked_for() -> Result<()> {
    assert!(version()?.starts_with("0."));
    let cpu = open(Options { processor: Processor::Cpu })?;
    assert_eq!(cpu.upload_f32(&[1.5], &[1])?.to_vec::<f32>()?, [1.5]);
    match open(Options { processor: Processor::Gpu }) {
        Ok(gpu) => assert_eq!(gpu.upload_f32(&[1.5], &[1])?.to_vec::<f32>()?, [1.5]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
    }
    Ok(())
}
