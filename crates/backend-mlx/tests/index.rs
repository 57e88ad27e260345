//! Indices never reach memory outside their operand, and the host's own are refused.

use tandem_backend_mlx::{Options, open};
use tandem_contracts::tensor::{
    Binary, Device, Error, ErrorKind, Linear, Precision, Result, Scalar, Tensor, Weight,
};

const FAR: i32 = 1 << 28;

fn table(device: &Device) -> Result<Tensor> {
    device.upload_f32(&[0.0, 1.0, 10.0, 11.0, 20.0, 21.0], &[3, 2])
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().as_ref().map(Error::kind)
}

/// Values that only the graph knows.
fn computed(device: &Device, values: &[i32], shape: &[usize]) -> Result<Tensor> {
    let zeros = device.full(Scalar::Int(0), tandem_contracts::tensor::Dtype::I32, shape)?;
    device.binary(Binary::Add, device.upload_i32(values, shape)?, &zeros)
}

#[test]
fn values_of_the_host_are_refused() -> Result<()> {
    let device = open(Options::default())?;
    let x = table(&device)?;
    for wrong in [3, -1, FAR, i32::MIN] {
        let ids = device.upload_i32(&[0, wrong], &[2])?;
        let spread = device.reshape(&ids, &[1, 2])?;
        assert_eq!(kind(device.take(&x, &ids, 0)), Some(ErrorKind::Index));
        assert_eq!(kind(device.take(&x, &device.transpose(&spread, &[1, 0])?, 0)), Some(ErrorKind::Index));
        assert_eq!(kind(device.take_along_axis(&x, &spread, 0)), Some(ErrorKind::Index));
        assert_eq!(kind(device.put_along_axis(x.clone(), &spread, &x, 0)), Some(ErrorKind::Shape));
        let values = device.full(Scalar::Float(0.0), x.dtype(), &[])?;
        assert_eq!(kind(device.put_along_axis(x.clone(), &spread, &values, 0)), Some(ErrorKind::Index));
    }
    assert_eq!(kind(device.take(&x, &device.arange(0, 4)?, 0)), Some(ErrorKind::Index));
    // A part of the values may well fit.
    let ids = device.upload_i32(&[FAR, 2], &[2])?;
    let fits = device.slice(&ids, std::slice::from_ref(&(1..2)))?;
    assert_eq!(device.take(&x, &fits, 0)?.to_vec::<f32>()?, [20.0, 21.0]);
    Ok(())
}

#[test]
fn values_of_the_graph_are_clamped() -> Result<()> {
    let device = open(Options::default())?;
    let x = table(&device)?;
    let ids = computed(&device, &[FAR, -FAR, 1], &[3])?;
    assert_eq!(device.take(&x, &ids, 0)?.to_vec::<f32>()?, [20.0, 21.0, 0.0, 1.0, 10.0, 11.0]);
    let spread = computed(&device, &[FAR, -FAR], &[1, 2])?;
    assert_eq!(device.take_along_axis(&x, &spread, 0)?.to_vec::<f32>()?, [20.0, 1.0]);
    let nine = device.full(Scalar::Float(9.0), x.dtype(), &[])?;
    let put = device.put_along_axis(x, &spread, &nine, 0)?;
    assert_eq!(put.to_vec::<f32>()?, [0.0, 9.0, 10.0, 11.0, 9.0, 21.0]);
    Ok(())
}

fn experts(device: &Device) -> Result<Linear> {
    // Expert e maps (a, b) to (e + 1) * a + b.
    let rows = device.upload_f32(&[1.0, 1.0, 2.0, 1.0], &[2, 1, 2])?;
    device.prepare_linear(&[Weight::Dense(rows)])
}

#[test]
fn rows_and_experts_of_weights_too() -> Result<()> {
    let device = open(Options::default())?;
    let embedding = device.prepare_linear(&[Weight::Dense(table(&device)?)])?;
    assert_eq!(kind(device.embed(&embedding, &device.upload_i32(&[3], &[1])?)), Some(ErrorKind::Index));
    let ids = computed(&device, &[FAR, -1], &[2])?;
    let rows = device.embed(&embedding, &ids)?;
    let rows = device.cast(&rows, tandem_contracts::tensor::Dtype::F32)?;
    assert_eq!(rows.to_vec::<f32>()?, [20.0, 21.0, 0.0, 1.0]);

    let (weight, x) = (experts(&device)?, device.upload_f32(&[3.0, 0.5], &[1, 2])?);
    let known = device.upload_i32(&[0, 2], &[1, 2])?;
    assert_eq!(kind(device.gather_linear(&x, &weight, &known, Precision::Exact)), Some(ErrorKind::Index));
    let choice = computed(&device, &[FAR, -FAR], &[1, 2])?;
    let chosen = device.gather_linear(&x, &weight, &choice, Precision::Exact)?;
    assert_eq!(chosen.to_vec::<f32>()?, [6.5, 3.5]);
    Ok(())
}
