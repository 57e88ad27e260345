//! HTTP and text: protocols, tokenisers, templates.
