//! A blueprint at work on a device: the codecs of every layer.

use super::place::Place;
use crate::{
    Blueprint, Growth, Kind, LayerShape, RecurrentShape, Transition,
    codec::{Codec, Field, Format, Scheme},
};
use std::{collections::HashMap, rc::Rc};
use tandem_contracts::tensor::{Device, Error, ErrorKind, Result};

/// What all rows of a model share.
#[derive(Debug)]
pub struct Kit {
    device: Device,
    blueprint: Blueprint,
    layers: Vec<Source>,
}

/// Where a layer finds its keys, or that it has none.
#[derive(Debug)]
pub(crate) enum Source {
    /// In its own planes.
    Own(Layout),
    /// In those of an earlier layer.
    Shared(usize),
    /// It carries a state instead.
    State(RecurrentShape),
}

/// A layer that keeps its own keys.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) shape: LayerShape,
    pub(crate) window: Option<usize>,
    /// Of the window.
    pub(crate) keep: usize,
    /// How its planes grow.
    pub(crate) growth: Growth,
    pub(crate) transition: Transition,
    before: Coders,
    after: Coders,
}

/// Codecs of one scheme.
#[derive(Clone, Debug)]
pub(crate) struct Coders {
    pub(crate) scheme: Scheme,
    pub(crate) keys: Rc<dyn Codec>,
    pub(crate) values: Rc<dyn Codec>,
    /// How many of the fields are the keys'.
    pub(crate) key_fields: usize,
}

impl Coders {
    /// Fields of the keys, then of the values.
    pub(crate) fn fields(&self) -> Result<Vec<Field>> {
        let mut fields = self.scheme.keys.fields(self.keys.width())?.into_vec();
        fields.extend(self.scheme.values.fields(self.values.width())?);
        Ok(fields)
    }
}

impl Layout {
    /// Where nothing lies yet.
    pub(crate) fn place(&self) -> Place {
        Place::new(self.window).keeping(self.keep)
    }

    pub(crate) fn coders(&self, encoded: bool) -> &Coders {
        if encoded { &self.after } else { &self.before }
    }

    /// Whether a step that begins at `position` reads encoded keys.
    pub(crate) fn encodes(&self, position: usize) -> bool {
        self.transition.boundary().is_none_or(|start| position >= start)
    }
}

impl Kit {
    /// Opens the codecs of a blueprint, each once.
    ///
    /// # Errors
    /// The device's own.
    pub fn open(device: &Device, blueprint: Blueprint) -> Result<Rc<Self>> {
        let mut opened = HashMap::new();
        let mut open = |format: Format, width: usize| -> Result<Rc<dyn Codec>> {
            if let Some(codec) = opened.get(&(format, width)) {
                return Ok(Rc::clone(codec));
            }
            let codec = format.open(device, width)?;
            opened.insert((format, width), Rc::clone(&codec));
            Ok(codec)
        };
        let mut coders = |scheme: Scheme, shape: LayerShape| -> Result<Coders> {
            let (keys, values) =
                (open(scheme.keys, shape.key_width)?, open(scheme.values, shape.value_width)?);
            let key_fields = scheme.keys.fields(shape.key_width)?.len();
            Ok(Coders { scheme, keys, values, key_fields })
        };
        let mut layers = Vec::new();
        for (kind, &transition, growth) in blueprint.layers() {
            let mut own = |shape, window, keep| -> Result<Source> {
                let before = coders(transition.scheme(0), shape)?;
                let after = coders(transition.scheme(usize::MAX), shape)?;
                Ok(Source::Own(Layout { shape, window, keep, growth, transition, before, after }))
            };
            layers.push(match kind {
                Kind::Full(shape) => own(shape, None, 0)?,
                Kind::Window { shape, window, keep } => own(shape, Some(window), keep)?,
                Kind::Shared { donor } => Source::Shared(donor),
                Kind::Recurrent(shape) => Source::State(shape),
            });
        }
        Ok(Rc::new(Self { device: Rc::clone(device), blueprint, layers }))
    }

    /// The device that rows live on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What rows are made by.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    pub(crate) fn layers(&self) -> &[Source] {
        &self.layers
    }

    /// The layer if it keeps its own keys.
    pub(crate) fn own(&self, layer: usize) -> Result<&Layout> {
        match self.layers.get(layer) {
            Some(Source::Own(layout)) => Ok(layout),
            Some(Source::Shared(donor)) => Err(Error::new(
                ErrorKind::State,
                "layer",
                format!("layer {layer} keeps no keys of its own, but reads those of layer: {donor}"),
            )),
            Some(Source::State(_)) => {
                Err(Error::new(ErrorKind::State, "layer", format!("it has a state, and no keys: {layer}")))
            }
            None => Err(Error::index("layer", format!("no such layer: {layer}"))),
        }
    }

    /// The shape of the state that a layer carries.
    pub(crate) fn state(&self, layer: usize) -> Result<RecurrentShape> {
        match self.layers.get(layer) {
            Some(Source::State(shape)) => Ok(*shape),
            Some(_) => Err(Error::new(ErrorKind::State, "layer", format!("it carries no state: {layer}"))),
            None => Err(Error::index("layer", format!("no such layer: {layer}"))),
        }
    }
}
