//! Appends write in place. It is the only test of its process: MLX counts memory for the whole process.

use tandem_backend_mlx::{Options, open};
use tandem_contracts::tensor::{Dtype, KvWrite, Result, Scalar};

const PLANE: [usize; 4] = [2, 4, 1024, 64];
const PLANE_BYTES: u64 = 2 * 4 * 1024 * 64 * 4;

#[test]
fn appends_to_a_last_handle_do_not_copy_the_plane() -> Result<()> {
    let device = open(Options::default())?;
    let writes =
        |column| [KvWrite { tokens: 0..1, row: 0, column }, KvWrite { tokens: 1..2, row: 1, column }];
    let tokens = device.full(Scalar::Float(1.0), Dtype::F32, &[2, 4, 64])?;
    // The first append makes the plane: until then it is one number.
    let mut plane = device.full(Scalar::Float(0.0), Dtype::F32, &PLANE)?;
    plane = device.kv_append(plane, &tokens, &writes(0))?;
    device.eval(&[&plane, &tokens])?;

    let before = device.memory();
    assert!(before.active as u64 >= PLANE_BYTES);
    for column in 1..=100 {
        plane = device.kv_append(plane, &tokens, &writes(column))?;
        device.eval(&[&plane])?;
    }
    let after = device.memory();
    assert!(after.allocated - before.allocated < PLANE_BYTES, "{before:?} {after:?}");

    // A view that is still held makes the next append copy, and the view keeps its value.
    let view = device.slice(&plane, &[0..1, 0..4, 101..102, 0..64])?;
    device.eval(&[&view])?;
    plane = device.kv_append(plane, &tokens, &writes(101))?;
    device.eval(&[&plane])?;
    assert!(device.memory().allocated - after.allocated >= PLANE_BYTES);
    assert!(view.to_vec::<f32>()?.iter().all(|&x| x == 0.0));
    let written = device.slice(&plane, &[1..2, 0..4, 1..102, 0..64])?;
    assert!(written.to_vec::<f32>()?.iter().all(|&x| x == 1.0));
    Ok(())
}
