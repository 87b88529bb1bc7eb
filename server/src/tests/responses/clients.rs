//! Owns: requests that real clients were seen to send to `/v1/responses`, sent again.

use serde_json::{Value, json};

use super::{PATH, events};
use crate::tests::rig::{Rig, Setup, script};

#[test]
fn requests_of_real_clients_are_answered() {
    for (name, file) in [
        ("codex", include_str!("../../../fixtures/wire/codex-0.171.0.json")),
        ("codex, a tool", include_str!("../../../fixtures/wire/codex-0.171.0-tool.json")),
        ("openai-python", include_str!("../../../fixtures/wire/openai-python-3.57.0.json")),
    ] {
        let recorded: Value = serde_json::from_str(file).unwrap();
        let requests = recorded["requests"].as_array().unwrap().iter().filter(|request| request["path"] == PATH);
        let mut seen = 0;
        for request in requests {
            seen += 1;
            let mut setup = Setup::default();
            setup.settings.aliases = vec![request["body"]["model"].as_str().unwrap().to_owned()];
            let text = if request["body"]["reasoning"]["effort"].is_string() { "I see.\n</think>\n\nOK" } else { "OK" };
            let rig = Rig::set_up(script(json!([{ "text": text }])), setup);
            let headers = request["headers"].as_object().unwrap();
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
            let reply = rig.ask("POST", PATH, &headers, request["body"].to_string().as_bytes());
            assert_eq!(json!(reply.status), request["expect_status"], "{name}: {}", reply.text());
            let response = match request["body"]["stream"] == true {
                true => events(&reply).pop().unwrap()["response"].take(),
                false => reply.json(),
            };
            assert_eq!((&response["status"], response["usage"].is_object()), (&json!("completed"), true));
            let said = response["output"].as_array().unwrap().last().unwrap();
            assert_eq!(said["content"][0]["text"], "OK", "{name}");
        }
        assert!(seen > 0, "{name}");
    }
}
