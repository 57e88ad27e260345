//! `/openapi.json` beside the routes themselves.

use crate::support::Rig;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// The file that holds the routes.
const ROUTES: &str = include_str!("../../src/http/mod.rs");

const METHODS: [&str; 3] = ["get", "post", "delete"];

/// Paths with the methods that are served there, as the source has them.
fn served() -> BTreeSet<(String, &'static str)> {
    let routes = ROUTES.split(".route(").skip(1).filter_map(|route| {
        let (path, handlers) = route.trim_start().strip_prefix('"')?.split_once('"')?;
        let handlers = handlers.split(".fallback").next()?;
        let methods = METHODS.iter().filter(move |method| handlers.contains(&format!("{method}(")));
        Some(methods.map(move |method| (path.replace("{*", "{"), *method)).collect::<Vec<_>>())
    });
    routes.flatten().collect()
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let rig = Rig::new();
    let document = rig.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().expect("paths");
    let described: BTreeSet<(String, &str)> = paths
        .iter()
        .flat_map(|(path, item)| {
            let methods = METHODS.iter().filter(|method| item.get(**method).is_some());
            methods.map(|method| (path.clone(), *method))
        })
        .collect();
    assert_eq!(described, served());
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() {
    let document = Rig::new().get("/openapi.json").json();
    let mut names = BTreeSet::new();
    for item in document["paths"].as_object().expect("paths").values() {
        for operation in METHODS.iter().filter_map(|method| item.get(*method)) {
            assert!(names.insert(operation["operationId"].as_str().expect("a name")), "{operation}");
        }
    }
    let mut waiting = vec![&document];
    while let Some(value) = waiting.pop() {
        if let Some(path) = value.get("$ref").and_then(Json::as_str) {
            let target = document.pointer(path.trim_start_matches('#'));
            assert!(target.is_some_and(Json::is_object), "{path}");
        }
        match value {
            Json::Array(items) => waiting.extend(items),
            Json::Object(fields) => waiting.extend(fields.values()),
            _ => {}
        }
    }
}

#[test]
fn what_endpoints_share_is_described_once_and_for_each() {
    let document = Rig::new().get("/openapi.json").json();
    let chat = &document["components"]["schemas"]["ChatRequestBody"]["allOf"];
    let has = |name: &str| chat.to_string().contains(&format!("\"{name}\":"));
    for field in ["messages", "temperature", "kv_quant", "guided_regex", "tools", "response_format"] {
        assert!(has(field), "{field}");
    }
    let statuses = document["paths"]["/v1/messages"]["post"]["responses"].as_object().expect("responses");
    let statuses: Vec<&str> = statuses.keys().map(String::as_str).collect();
    assert_eq!(
        statuses,
        ["200", "400", "401", "403", "404", "408", "409", "413", "429", "500", "501", "503"]
    );
}
