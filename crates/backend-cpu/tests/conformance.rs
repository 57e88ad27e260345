//! The port's behaviour suite, on every instruction set that this machine has and on one to four threads.

use std::num::NonZeroUsize;
use tandem_backend_cpu::isa::Isa;
use tandem_backend_cpu::{Options, open};
use tandem_contracts::conformance::assert_conforms;
use tandem_contracts::tensor::Device;

fn device(isa: Isa, threads: usize) -> Device {
    let threads = NonZeroUsize::new(threads).expect("at least one thread");
    open(Options { threads, isa, ..Options::default() }).expect("the device opens")
}

#[test]
fn every_instruction_set_conforms() {
    for isa in Isa::available() {
        println!("{isa}");
        assert_conforms(&device(isa, 2), &device(isa, 1));
    }
}

#[test]
fn every_number_of_threads_conforms() {
    for threads in [1, 3, 4] {
        println!("{threads} threads");
        assert_conforms(&device(Isa::detected(), threads), &device(Isa::detected(), 2));
    }
}
