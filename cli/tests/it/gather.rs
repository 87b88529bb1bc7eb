//! Owns: what `ss report` gathers, that nothing private is in it, and that a part that fails costs that part alone.

use serde_json::Value;

use crate::Place;

fn gathered(place: &Place) -> (String, Value) {
    let text = std::fs::read_to_string(place.path("ss-report.json")).unwrap();
    let json = serde_json::from_str(&text).unwrap();
    (text, json)
}

#[test]
fn a_report_tells_of_the_machine_and_nothing_of_its_owner() {
    let place = Place::new();
    let copy = place.copy_of_nano();
    // What computes is the processor, and there is no adapter to prove. What its owner has set does not count.
    std::fs::write(place.home().join("config.toml"), "full = true\n").unwrap();
    let report = place.run(["report", "--quick", "--model", copy.to_str().unwrap()]);
    let said = report.env("USER", "someone").env("SS_DISK_GBPS", "0.001").said();
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""), "{}", said.stderr);
    let (text, report) = gathered(&place);
    let system = &report["system"];
    assert_eq!((&system["os"], &system["arch"]), (&std::env::consts::OS.into(), &std::env::consts::ARCH.into()));
    assert!(system["memory_bytes"].as_u64() > system["reclaimable_bytes"].as_u64(), "{system}");
    assert!(report["version"].as_str().unwrap().starts_with(env!("CARGO_PKG_VERSION")));
    assert!(report["parts"]["selftest"].is_null() && system["release"].is_string(), "{report}");
    assert!(report["parts"]["bench"]["seconds"].as_f64() < Some(60.0), "at the disk's own pace");
    let devices = &report["parts"]["devices"];
    assert!(devices["failure"].is_null() && devices["result"]["devices"][0]["backend"] == "reference", "{devices}");
    let rows = report["parts"]["bench"]["result"]["rows"].as_array().unwrap();
    let tests: Vec<&str> = rows.iter().filter_map(|row| row["test"].as_str()).collect();
    assert_eq!(tests, ["pp64", "tg32", "pp64", "tg32"], "the floor and all");
    assert!(rows.iter().all(|row| row["time_shares"].is_object()));
    let private = [place.0.path().to_str().unwrap(), copy.file_name().unwrap().to_str().unwrap(), "someone"];
    for word in private {
        assert!(!text.contains(&format!("{word}\"")) && !text.contains(&format!("/{word}")), "{word} in {text}");
    }
}

#[test]
fn a_part_that_fails_is_named_and_the_others_are_there() {
    let place = Place::new();
    let said = place.run(["report", "--quick", "--adapter", "no such card"]).said();
    assert_eq!(said.code, Some(2), "wrong usage, as the parts said: {}", said.stderr);
    let (_, report) = gathered(&place);
    for part in ["selftest", "selftest_plain", "bench"] {
        let part = &report["parts"][part];
        assert!(part["failure"].as_str().unwrap().contains('2'), "{report}");
        let words = part["said"].to_string();
        assert!(words.contains("no such card") && words.contains("--adapter"), "why it failed: {report}");
    }
    let end = "failed: selftest, selftest_plain, bench; the file has what they said";
    assert!(said.stderr.contains(end), "{}", said.stderr);
    assert!(report["parts"]["devices"]["failure"].is_null());
}

#[test]
fn a_report_writes_over_nothing() {
    let place = Place::new();
    place.write("ss-report.json", "mine");
    let refusal = place.run(["report", "--quick"]).refused(2);
    assert!(refusal.contains("`--out`") && refusal.contains("ss-report.json"), "{refusal}");
    assert_eq!(std::fs::read_to_string(place.path("ss-report.json")).unwrap(), "mine");
    let nowhere = place.run(["report", "--quick", "-o", "no/such/place.json"]).refused(2);
    assert!(nowhere.contains("no/such/place.json cannot be made"), "{nowhere}");
}
