//! Handles: a tensor, its storage, its device.

use super::{Backend, Dtype, Element, Result};
use std::{
    any::Any,
    fmt,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

/// Identity of one opened device. Storages carry it, so that a handle of another device is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceId(u64);

impl DeviceId {
    /// An identity that no other device of this process has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A value on a device, in the adapter's own type. The adapter finds it again through [`Any`].
pub trait Storage: Any + fmt::Debug {
    /// Extent of each axis; empty for a single number.
    fn shape(&self) -> &[usize];

    /// Type of the elements.
    fn dtype(&self) -> Dtype;

    /// The device that made it.
    fn device(&self) -> DeviceId;
}

/// A shared device.
pub type Device = Rc<dyn Backend>;

/// Opens a device on the thread that will own it. This closure, not the device, crosses threads.
pub type OpenDevice = Box<dyn FnOnce() -> Result<Device> + Send>;

/// A handle to a value. Cloning shares the value; the last handle to it may be reused in place by operations
/// that take it by value.
#[derive(Clone)]
pub struct Tensor {
    storage: Rc<dyn Storage>,
    device: Device,
}

impl Tensor {
    /// A handle to `storage` on `device`; for adapters.
    pub fn new(storage: Rc<dyn Storage>, device: Device) -> Self {
        Self { storage, device }
    }

    /// The adapter's value.
    pub fn storage(&self) -> &Rc<dyn Storage> {
        &self.storage
    }

    /// The adapter's value, to be changed where it lies, if this is its last handle.
    pub fn storage_mut(&mut self) -> Option<&mut dyn Storage> {
        Rc::get_mut(&mut self.storage)
    }

    /// Takes the handle apart, so that an adapter can see whether it was the last one.
    pub fn into_storage(self) -> Rc<dyn Storage> {
        self.storage
    }

    /// The device that operations on this value run on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Extent of each axis.
    pub fn shape(&self) -> &[usize] {
        self.storage.shape()
    }

    /// Type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.storage.dtype()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// Downloads the elements in row-major order.
    ///
    /// # Errors
    /// `E` is not the tensor's dtype, or whatever evaluation meets.
    pub fn to_vec<E: Element>(&self) -> Result<Vec<E>> {
        if self.dtype() != E::DTYPE {
            return Err(super::Error::dtype(
                "to_vec",
                format!("the tensor is not {:?} but: {:?}", E::DTYPE, self.dtype()),
            ));
        }
        let bytes = self.device.download(self)?;
        Ok(bytes.chunks_exact(E::DTYPE.size()).map(E::read).collect())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?} {:?})", self.dtype(), self.shape())
    }
}
