//! The engine: many requests over one loaded model.
