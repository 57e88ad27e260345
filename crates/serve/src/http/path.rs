//! The one name that a path may hold.

use super::error::ApiError;
use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};

/// A name in a path, decoded.
#[derive(Debug)]
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(name) = Path::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::invalid(format!("the path is no text: {}", parts.uri.path())))?;
        Ok(Self(name))
    }
}
