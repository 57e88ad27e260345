//! Language model architectures, their layers and their weight files.
