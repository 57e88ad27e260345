//! Who may ask: keys, and pages of other origins.

use crate::support::{Response, Rig, Setup, chat};
use serde_json::json;
use tandem_serve::http::Keys;

fn ask(rig: &Rig, request: (&str, &str), headers: &[(&str, &str)], body: &[u8]) -> Response {
    let mut connection = rig.connect();
    connection.request_with(request, headers, body);
    connection.response()
}

#[test]
fn a_key_is_asked_for_in_the_dialect_of_the_path() {
    let rig = Rig::with(Setup { keys: Keys::new(["sk-1", "sk-2"]), ..Setup::default() });
    let body = chat("say: ok", json!({})).to_string();
    for headers in [&[][..], &[("authorization", "Bearer sk-3")], &[("x-api-key", "")]] {
        for request in [
            ("POST", "/v1/chat/completions"),
            ("GET", "/v1/models"),
            ("GET", "/metrics"),
            ("POST", "/v1/requests/a/cancel"),
            ("GET", "/nowhere"),
        ] {
            let response = ask(&rig, request, headers, body.as_bytes());
            let (status, error) = response.error();
            assert_eq!((status, &error["type"]), (401, &json!("authentication_error")), "{request:?}");
            assert_eq!(
                (&error["code"], response.header("www-authenticate")),
                (&json!("invalid_api_key"), Some("Bearer"))
            );
            assert!(!response.text().contains("sk-"), "{}", response.text());
        }
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let response = ask(&rig, ("POST", path), headers, body.as_bytes());
            let error = response.json();
            assert_eq!((response.status, &error["type"]), (401, &json!("error")), "{path}");
            assert_eq!(error["error"]["type"], "authentication_error");
        }
    }
    assert_eq!(rig.engine.metrics().accepted, 0);
    for headers in [[("authorization", "Bearer sk-1")], [("x-api-key", "sk-2")]] {
        let response = ask(&rig, ("POST", "/v1/chat/completions"), &headers, body.as_bytes());
        assert_eq!(response.content(), "ok");
    }
    // Whoever watches over the server needs none.
    assert_eq!(rig.get("/health").status, 200);
}

/// As a page does whose own name was made to lead here.
#[test]
fn a_server_without_keys_is_asked_under_its_own_names_alone() {
    let asks = |rig: &Rig, host: &str, path: &str| {
        let mut connection = rig.connect();
        connection.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
        connection.response()
    };
    let rig = Rig::new();
    for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "tandem.localhost"] {
        assert_eq!(asks(&rig, host, "/health").status, 200, "{host}");
    }
    for host in ["evil.org", "evil.org:8080", "127.0.0.1.evil.org", "", "@", "10.0.0.1"] {
        let (status, error) = asks(&rig, host, "/v1/models").error();
        assert_eq!((status, &error["code"]), (403, &json!("host_not_allowed")), "{host}");
        assert_eq!(error["type"], "permission_error");
    }
    let refused = asks(&rig, "evil.org", "/v1/messages").json();
    assert_eq!((&refused["type"], &refused["error"]["type"]), (&json!("error"), &json!("permission_error")));
    // The first line counts before the header.
    let mut connection = rig.connect();
    connection.send(b"GET http://evil.org/health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(connection.response().status, 403);
    let mut connection = rig.connect();
    connection.send(b"GET /health HTTP/1.0\r\n\r\n");
    assert_eq!(connection.response().status, 200);

    let told = |name: &str| vec![name.parse().expect("a host")];
    let rig = Rig::with(Setup { hosts: told("llm.example.org"), ..Setup::default() });
    let status = |host| asks(&rig, host, "/health").status;
    assert_eq!((status("LLM.example.org:80"), status("localhost"), status("evil.org")), (200, 200, 403));
    let rig = Rig::with(Setup { hosts: told("*"), ..Setup::default() });
    assert_eq!(asks(&rig, "evil.org", "/health").status, 200);
    // A page has no key.
    let rig = Rig::with(Setup { keys: Keys::new(["sk-1"]), ..Setup::default() });
    assert_eq!(asks(&rig, "llm.example.org", "/health").status, 200);
    assert_eq!(asks(&rig, "llm.example.org", "/v1/models").status, 401);
}

#[test]
fn pages_of_other_origins_may_not_ask_unless_they_are_named() {
    let preflight = [
        ("origin", "https://a.org"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let rig = Rig::new();
    let response = ask(&rig, ("OPTIONS", "/v1/chat/completions"), &preflight, b"");
    assert_eq!((response.status, response.header("access-control-allow-origin")), (405, None));
    let response = ask(&rig, ("GET", "/health"), &preflight[..1], b"");
    assert_eq!((response.status, response.header("access-control-allow-origin")), (200, None));

    let origins = ["https://a.org", "http://localhost:3000"].map(|origin| origin.parse().expect("an origin"));
    let rig = Rig::with(Setup { origins: origins.to_vec(), keys: Keys::new(["sk-1"]), ..Setup::default() });
    // Browsers ask without a key whether they may ask with one.
    let response = ask(&rig, ("OPTIONS", "/v1/chat/completions"), &preflight, b"");
    assert_eq!(
        (response.status, response.header("access-control-allow-origin")),
        (200, Some("https://a.org"))
    );
    assert_eq!(response.header("access-control-allow-headers"), Some("authorization,content-type"));
    assert!(response.header("access-control-allow-methods").is_some_and(|methods| methods.contains("POST")));
    // A page must see why it was refused.
    let response = ask(&rig, ("GET", "/v1/models"), &preflight[..1], b"");
    assert_eq!(
        (response.status, response.header("access-control-allow-origin")),
        (401, Some("https://a.org"))
    );
    let response = ask(&rig, ("GET", "/health"), &[("origin", "https://b.org")], b"");
    assert_eq!((response.status, response.header("access-control-allow-origin")), (200, None));

    let rig = Rig::with(Setup { origins: vec!["*".parse().expect("all")], ..Setup::default() });
    let response = ask(&rig, ("GET", "/health"), &[("origin", "https://b.org")], b"");
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
}
