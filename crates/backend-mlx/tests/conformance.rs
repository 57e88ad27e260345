//! The port's behaviour suite. It is the only test of its process: MLX counts memory for the whole process.

use tandem_backend_mlx::{Options, open};
use tandem_contracts::conformance::assert_conforms;

#[test]
fn mlx_conforms() {
    let open = || open(Options::default()).expect("mlx opens");
    assert_conforms(&open(), &open());
}
