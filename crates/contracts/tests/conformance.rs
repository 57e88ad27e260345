//! The fake keeps the promises of the tensor port.

use tandem_contracts::{conformance, fake};

#[test]
fn the_fake_conforms() {
    conformance::assert_conforms(&fake::open(), &fake::open());
}
