//! Which instruction set the kernels use.
//!
//! Each kind includes those before it, so a lesser one can always be asked for (to test it, or to compare);
//! one that the machine lacks never runs: [`Isa::limited`] and everything that takes an [`Isa`] go through
//! [`Isa::detected`]. Every kind gives the same bits, so the choice is about speed alone.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// A set of instructions that kernels are written for, in ascending order of what they can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust, on any machine.
    Portable,
    /// AArch64 with NEON products of bytes (`FEAT_DotProd`).
    #[cfg(target_arch = "aarch64")]
    NeonDot,
    /// x86-64 with AVX2, FMA and F16C: 256-bit vectors.
    Avx2,
    /// And AVX-512 (F, BW, DQ, VL, VNNI): 512-bit vectors with products of bytes.
    Avx512Vnni,
    /// And AMX tiles with products of bytes, permitted by the operating system.
    Amx,
}

impl Isa {
    /// Every kind, in ascending order.
    pub const ALL: &[Self] = &[
        Self::Portable,
        #[cfg(target_arch = "aarch64")]
        Self::NeonDot,
        Self::Avx2,
        Self::Avx512Vnni,
        Self::Amx,
    ];

    /// The best kind that this machine and its operating system offer. The first call asks them (for AMX also
    /// the permission to use its tile registers, which then holds for the whole process); later ones remember.
    pub fn detected() -> Self {
        static DETECTED: OnceLock<Isa> = OnceLock::new();
        *DETECTED.get_or_init(detect)
    }

    /// The kind that is used unless another is asked for: the best that this machine offers, except that kernels
    /// which have only run under an emulator wait to be asked for.
    pub fn preferred() -> Self {
        match Self::detected() {
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => Self::Portable,
            detected => detected,
        }
    }

    /// This kind if the machine has it, else the best that it has.
    pub fn limited(self) -> Self {
        self.min(Self::detected())
    }

    /// The kinds that this machine has, in ascending order.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|isa| *isa <= Self::detected())
    }

    /// Its name as written on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => "neon-dot",
            Self::Avx2 => "avx2",
            Self::Avx512Vnni => "avx512-vnni",
            Self::Amx => "amx",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// No instruction set has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIsa {
    name: String,
}

impl fmt::Display for UnknownIsa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Isa::ALL.iter().map(|isa| isa.name()).collect();
        write!(formatter, "no such instruction set (known: {}): {}", known.join(", "), self.name)
    }
}

impl std::error::Error for UnknownIsa {}

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(name: &str) -> Result<Self, UnknownIsa> {
        Self::ALL
            .iter()
            .copied()
            .find(|isa| isa.name() == name)
            .ok_or_else(|| UnknownIsa { name: name.to_owned() })
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Isa {
    Isa::Portable
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Isa {
    if std::arch::is_aarch64_feature_detected!("dotprod") { Isa::NeonDot } else { Isa::Portable }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni");
    match (avx2, avx512) {
        (false, _) => Isa::Portable,
        (true, false) => Isa::Avx2,
        (true, true) if tile::usable() => Isa::Amx,
        (true, true) => Isa::Avx512Vnni,
    }
}

/// Whether the tile registers may be used. The standard library's detection does not know AMX yet.
#[cfg(target_arch = "x86_64")]
mod tile {
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    /// Bits of register EDX of leaf 7 ("Structured Extended Feature Flags", Intel SDM volume 2, CPUID):
    /// AMX-BF16 is 22 and not needed, AMX-TILE 24, AMX-INT8 25.
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
    /// OSXSAVE in register ECX of leaf 1: the system manages extended state and `xgetbv` may be used.
    const OSXSAVE: u32 = 1 << 27;
    /// XTILECFG and XTILEDATA in XCR0: the system saves the tile registers.
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;

    pub(super) fn usable() -> bool {
        let reported = __cpuid(0).eax >= 7
            && __cpuid(1).ecx & OSXSAVE != 0
            && __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8;
        // SAFETY: OSXSAVE says that `xgetbv` exists.
        reported && unsafe { enabled() } && permitted()
    }

    #[target_feature(enable = "xsave")]
    fn enabled() -> bool {
        // SAFETY: register 0 always exists.
        unsafe { _xgetbv(0) & TILE_STATE == TILE_STATE }
    }

    /// Linux lends the large tile state only to processes that ask (`Documentation/arch/x86/xstate.rst`).
    #[cfg(target_os = "linux")]
    fn permitted() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_ulong = 18;
        // SAFETY: the call reads no memory of ours; it changes only what this process may use.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }

    /// Nobody has shown the tiles to work under another system.
    #[cfg(not(target_os = "linux"))]
    fn permitted() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse(), Ok(*isa));
        }
        let error = "sse".parse::<Isa>().unwrap_err().to_string();
        assert!(error.starts_with("no such instruction set (known: portable, "), "{error}");
        assert!(error.ends_with("avx2, avx512-vnni, amx): sse"), "{error}");
    }

    #[test]
    fn nothing_beyond_the_machine_is_chosen() {
        let all = Isa::ALL.iter().copied();
        assert!(Isa::available().eq(all.take_while(|isa| *isa <= Isa::detected())));
        assert!(Isa::preferred() <= Isa::detected());
        for isa in Isa::ALL {
            assert!(isa.limited() <= Isa::detected());
            assert!(isa.limited() <= *isa);
        }
        assert_eq!(Isa::Portable.limited(), Isa::Portable);
    }
}
