//! Names under which a server without keys is asked.
//!
//! A page of another origin may have its own name lead to this machine ([DNS rebinding](https://en.wikipedia.org/wiki/DNS_rebinding)),
//! and then asks, to its browser, only itself; but the name is in each request. Where keys are needed, it has none of them.
//!
//! Invariant: a server that needs no key and listens to this machine alone answers to names of this machine, to the address at
//! which it listens, and to those that it was told; every other name is refused before anything else of its request is read.

use super::{error::ApiError, guard::Keys};
use crate::error::{Error, ErrorKind};
use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header, uri::Authority},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use std::{fmt, net::IpAddr, str::FromStr, sync::Arc};

/// A name or an address under which a server is asked, without a port; or `*` for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

impl FromStr for Host {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name = plain(text);
        let is_name = |name: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !name.is_empty() && name.chars().all(fits)
        };
        if name == "*" || is_name(&name) || name.parse::<IpAddr>().is_ok() {
            return Ok(Self(name));
        }
        let message =
            format!("expected *, a name such as llm.example.org or an address, without a port, got: {text}");
        Err(Error::new(ErrorKind::Host, message))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name as it is compared: in lower case, without the brackets of an address and the dot of the root.
fn plain(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// What a server answers to.
#[derive(Clone, Debug)]
struct Known {
    bound: IpAddr,
    told: Arc<[Host]>,
}

impl Known {
    fn holds(&self, host: &str) -> bool {
        let host = plain(host);
        let is_ours = |address: IpAddr| address.is_loopback() || address == self.bound;
        let of_this_machine = || host == "localhost" || host.ends_with(".localhost");
        host.parse().is_ok_and(is_ours) || of_this_machine() || self.told.iter().any(|told| told.0 == host)
    }
}

/// Routes that are answered under known names, where nothing else says who may ask: `bound` is the address at which the
/// server listens, `told` are names beside those of this machine.
pub(super) fn known(routes: Router, bound: IpAddr, keys: &Keys, told: Vec<Host>) -> Router {
    let open = !keys.is_empty() || !bound.is_loopback();
    if open || told.iter().any(|Host(name)| name == "*") {
        return routes;
    }
    routes.layer(middleware::from_fn_with_state(Known { bound, told: told.into() }, check))
}

async fn check(State(known): State<Known>, request: Request, next: Next) -> Response {
    let header = request.headers().get(header::HOST).map(|host| host.as_bytes());
    // A request may name its host in its first line, which counts before the header.
    let named = match (request.uri().authority(), header) {
        (Some(authority), _) => Some(Ok(authority.clone())),
        (None, Some(host)) => Some(Authority::try_from(host)),
        (None, None) => None,
    };
    match named {
        // Browsers always send one.
        None => return next.run(request).await,
        Some(Ok(authority)) if known.holds(authority.host()) => return next.run(request).await,
        Some(_) => {}
    }
    let message = "this server is not known under the host name of this request; --allow-host NAME adds one";
    ApiError::new(StatusCode::FORBIDDEN, message).code("host_not_allowed").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_and_those_that_were_told_are_known() {
        let told = ["llm.example.org", "10.0.0.7"].map(|name| name.parse().expect("a host"));
        let known = Known { bound: "127.0.0.2".parse().expect("an address"), told: told.into() };
        for host in [
            "localhost",
            "LocalHost.",
            "a.localhost",
            "127.0.0.1",
            "127.9.9.9",
            "[::1]",
            "127.0.0.2",
            "10.0.0.7",
            "LLM.example.org",
            "llm.example.org.",
        ] {
            assert!(known.holds(host), "{host}");
        }
        for host in [
            "",
            "localhost.example.org",
            "evil-localhost",
            "example.org",
            "10.0.0.8",
            "[::2]",
            "127.0.0.1.nip.io",
        ] {
            assert!(!known.holds(host), "{host}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_has_no_port() {
        for text in ["*", "a", "A.example.org", "10.0.0.7", "::1", "[::1]"] {
            assert!(text.parse::<Host>().is_ok(), "{text}");
        }
        for text in ["", "a:80", "http://a", "a/b", "a b", "*.a", "10.0.0.7:80", "é.org"] {
            assert!(text.parse::<Host>().is_err(), "{text}");
        }
    }
}
