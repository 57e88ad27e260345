//! Values of this device: a shared buffer and where the elements lie in it.
//!
//! Views share the buffer. A value whose handle and buffer nobody else holds can be taken over and written.

use crate::layout::Layout;
use crate::memory::{Block, Element};
use std::ops::Range;
use std::rc::Rc;
use tandem_contracts::tensor::{DeviceId, Dtype, Storage};

/// A value that may be shared, and so only be read.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) buffer: Rc<Block>,
    pub(crate) layout: Layout,
    pub(crate) dtype: Dtype,
    pub(crate) device: DeviceId,
}

impl Storage for Value {
    fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn device(&self) -> DeviceId {
        self.device
    }
}

impl Value {
    /// The buffer from the value's first element on; strides count from there.
    #[inline]
    pub(crate) fn read<T: Element>(&self) -> &[T] {
        &self.buffer.of()[self.layout.offset()..]
    }

    /// The value to be written, unless somebody else holds its buffer.
    pub(crate) fn open(&mut self) -> Option<Open<'_>> {
        Some(Open { block: Rc::get_mut(&mut self.buffer)?, layout: &self.layout, dtype: self.dtype })
    }

    /// The elements, if they follow each other.
    #[inline]
    pub(crate) fn slice<T: Element>(&self) -> Option<&[T]> {
        self.layout.is_contiguous().then(|| &self.read()[..self.layout.elements()])
    }
}

/// A value that nobody else sees, to be written where it lies.
#[derive(Debug)]
pub(crate) struct Open<'a> {
    block: &'a mut Block,
    pub(crate) layout: &'a Layout,
    pub(crate) dtype: Dtype,
}

impl Open<'_> {
    /// The buffer from the value's first element on; strides count from there.
    #[inline]
    pub(crate) fn read<T: Element>(&self) -> &[T] {
        &self.block.of()[self.layout.offset()..]
    }

    /// The buffer from the value's first element on; strides count from there.
    #[inline]
    pub(crate) fn write<T: Element>(&mut self) -> &mut [T] {
        &mut self.block.of_mut()[self.layout.offset()..]
    }
}

/// A value that nobody else sees: one in the making, or one taken over.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) block: Block,
    pub(crate) layout: Layout,
    pub(crate) dtype: Dtype,
}

impl Draft {
    /// Which of the buffer's elements belong to the value, if they follow each other.
    fn range(&self) -> Range<usize> {
        debug_assert!(self.layout.is_contiguous());
        self.layout.offset()..self.layout.offset() + self.layout.elements()
    }

    /// The elements of a contiguous value.
    #[inline]
    pub(crate) fn elements<T: Element>(&mut self) -> &mut [T] {
        let range = self.range();
        &mut self.block.of_mut()[range]
    }

    /// The buffer from the value's first element on; strides count from there.
    #[inline]
    pub(crate) fn write<T: Element>(&mut self) -> &mut [T] {
        &mut self.block.of_mut()[self.layout.offset()..]
    }
}

/// What became of an operand that was given by value.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Its memory may be written.
    Own(Draft),
    /// Somebody else sees it.
    Shared(Rc<Value>),
}

impl Claim {
    /// Takes a value over if this is its last handle and nobody else holds its buffer.
    pub(crate) fn of(value: Rc<Value>) -> Self {
        match Rc::try_unwrap(value) {
            Err(shared) => Self::Shared(shared),
            Ok(Value { buffer, layout, dtype, device }) => match Rc::try_unwrap(buffer) {
                Ok(block) => Self::Own(Draft { block, layout, dtype }),
                Err(buffer) => Self::Shared(Rc::new(Value { buffer, layout, dtype, device })),
            },
        }
    }
}
