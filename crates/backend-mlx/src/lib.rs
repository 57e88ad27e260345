//! The tensor port over MLX.
