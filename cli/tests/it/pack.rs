//! Owns: `ss pack`, and that answers do not depend on it.

use std::fs;

use serde_json::Value;

use crate::{Place, Said, ss, stats};

const ASK: [&str; 9] =
    ["run", "--model", "copy", "--temperature", "0", "--slots", "smallest", "-n8", "What is the capital of Japan?"];

fn said(place: &Place, args: &[&str]) -> Said {
    let said = place.run(args).said();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    said
}

/// What a run answers from the packs, or without them.
fn ask(place: &Place, more: &[&str]) -> Value {
    let mut report = stats(place, &[&ASK[..], more].concat());
    report["output_ids"].take()
}

#[test]
fn a_packed_model_answers_as_before_and_in_the_end_from_its_packs_alone() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    let before = ask(&place, &[]);
    assert!(before.as_array().is_some_and(|ids| ids.len() > 2), "{before}");
    assert!(place.run(["inspect", "copy"]).answer().contains("  not packed\n"));

    let packed = said(&place, &["pack", "copy"]);
    assert_eq!(packed.stderr, "", "progress is for terminals");
    let lines: Vec<&str> = packed.stdout.lines().collect();
    assert!(lines.len() == 3 && lines[0].contains("experts.pack: 576 records, ") && lines[0].ends_with("576 written"));
    assert!(lines[1].contains("ngram.pack: ") && lines[2].starts_with("packed ") && lines[2].ends_with(" GB/s"));
    assert_eq!(ask(&place, &[]), before);
    assert_eq!(ask(&place, &["--check-records"]), before);
    assert_eq!(ask(&place, &["--io", "direct"]), before);
    let report = place.run(["inspect", "copy"]).answer();
    assert!(report.contains("experts.pack") && report.contains("576 records\n"), "{report}");
    assert_eq!(said(&place, &["pack", "copy"]).stdout.matches("already packed").count(), 2);
    let verified = said(&place, &["pack", "--verify", "copy"]).stdout;
    assert_eq!(verified.matches("as checksums and originals say").count(), 2, "{verified}");

    let reclaimed = place.run(["pack", "--reclaim", "copy"]).said();
    if reclaimed.code == Some(2) {
        assert!(reclaimed.stderr.contains("space inside files cannot be given back here"), "{}", reclaimed.stderr);
        return;
    }
    assert!(
        reclaimed.stdout.lines().last().is_some_and(|line| line.starts_with("gave back 0.0")),
        "{}",
        reclaimed.stdout
    );
    assert_eq!(ask(&place, &[]), before);
    let report: Value = serde_json::from_str(&place.run(["inspect", "--json", "copy"]).answer()).unwrap();
    assert_eq!(report["packs"][0]["reclaimed"], true, "{}", report["packs"]);
    let without = place.run([&ASK[..], &["--no-pack"]].concat()).said();
    assert!(without.stderr.contains("note: copy: the experts are read from their pack"), "{}", without.stderr);
    fs::remove_file(dir.join("experts.pack")).unwrap();
    let text = place.run(ASK).refused(2);
    assert!(text.contains("experts.pack is missing, and nothing else holds the experts"), "{text}");
}

#[test]
fn a_damaged_pack_is_named_by_verify_and_left_out_by_no_pack() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    let before = ask(&place, &[]);
    said(&place, &["pack", "--experts-only", "copy"]);
    assert!(!dir.join("ngram.pack").exists());
    let pack = dir.join("experts.pack");
    let mut bytes = fs::read(&pack).unwrap();
    // The first code of every expert of the last layers.
    let end = bytes.len();
    (end - 200 * 32_768..end).step_by(32_768).for_each(|at| bytes[at] ^= 0x10);
    fs::write(&pack, bytes).unwrap();
    let text = place.run(["pack", "--verify", "copy"]).refused(2);
    assert!(text.contains("experts.pack: expert ") && text.contains(" is not what was packed"), "{text}");
    let text = place.run([&ASK[..], &["--check-records"]].concat()).refused(2);
    assert!(text.contains("experts.pack: expert ") && text.contains("run `ss pack --repair copy`"), "{text}");
    assert_eq!(ask(&place, &["--no-pack"]), before);
    assert!(said(&place, &["pack", "--experts-only", "copy"]).stdout.contains("already packed"));
    let repaired = said(&place, &["pack", "--repair", "--experts-only", "copy"]).stdout;
    assert!(repaired.contains(" was damaged; it is packed again from there on\n"), "{repaired}");
    assert!(repaired.contains("576 records") && !repaired.contains("already packed"), "{repaired}");
    said(&place, &["pack", "--verify", "copy"]);
    assert_eq!(ask(&place, &["--check-records"]), before);
}

/// Gives a file bytes and a time that it did not have.
fn change(path: &std::path::Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
    fs::OpenOptions::new().write(true).open(path).unwrap().set_modified(later).unwrap();
}

#[test]
fn a_pack_of_other_weights_is_left_out_with_a_note() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    said(&place, &["pack", "copy"]);
    let shard = dir.join("model-00001-of-00002.safetensors");
    // Other experts: codes are only codes.
    change(&shard, |bytes| {
        let data = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..data]).unwrap();
        let codes = |name: &str| name.contains(".switch_mlp.") && name.ends_with(".weight");
        for (_, tensor) in header.as_object().unwrap().iter().filter(|(name, _)| codes(name)) {
            let at = |end: usize| data + tensor["data_offsets"][end].as_u64().unwrap() as usize;
            bytes[at(0)..at(1)].iter_mut().for_each(|byte| *byte ^= 1);
        }
    });
    let answered = place.run(["run", "--model", "copy", "-n1", "hi"]).said();
    let note = "note: copy/experts.pack was made from other weights than model-00001-of-00002.safetensors holds now; the \
                original weights are read, until `ss pack copy` packs them again\n";
    assert!(answered.stderr.contains(note), "{}", answered.stderr);
}

#[test]
fn a_copy_of_a_packed_model_is_packed_and_serves_as_a_second_copy() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    said(&place, &["pack", "copy"]);
    fs::create_dir(place.path("second")).unwrap();
    for file in fs::read_dir(&dir).unwrap() {
        let file = file.unwrap();
        let path = place.path("second").join(file.file_name());
        fs::copy(file.path(), &path).unwrap();
        change(&path, |_| {});
    }
    let answered = place.run([&ASK[..], &["--mirror", "second"]].concat()).said();
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    assert!(!answered.stderr.contains("note:"), "{}", answered.stderr);
    let report = place.run(["inspect", "second"]).answer();
    assert!(report.contains("experts.pack"), "{report}");
    assert_eq!(said(&place, &["pack", "second"]).stdout.matches("already packed").count(), 2);

    fs::remove_file(place.path("second/experts.pack")).unwrap();
    let text = place.run([&ASK[..], &["--mirror", "second"]].concat()).refused(2);
    let says = "only copy is read from its experts.pack, second is not; run `ss pack second`, or leave `--mirror` out";
    assert_eq!(text, says);
}

#[test]
fn what_has_the_name_of_a_pack_and_is_none_is_left_alone() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    fs::create_dir(dir.join("experts.pack")).unwrap();
    let answered = place.run(["run", "--model", "copy", "-n1", "hi"]).said();
    let note = "note: copy/experts.pack is a directory, expected a file; the original weights are read, until you remove it \
                and `ss pack copy` packs them\n";
    assert!(answered.code == Some(0) && answered.stderr.contains(note), "{}", answered.stderr);
    for line in [&["pack", "copy"][..], &["pack", "--verify", "copy"], &["pack", "--repair", "copy"]] {
        let text = place.run(line).refused(2);
        assert_eq!(text, "copy/experts.pack is a directory, expected a pack; remove it and run `ss pack copy` again");
    }
}

#[test]
fn damage_of_the_only_copy_is_noticed_without_being_asked_for() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    if place.run(["pack", "--reclaim", "copy"]).said().code != Some(0) {
        return;
    }
    // The last code in each record's first page, at any of the layers.
    change(&dir.join("experts.pack"), |bytes| {
        let end = bytes.len();
        (end - 500 * 32_768..end).step_by(32_768).for_each(|at| bytes[at] ^= 0x10);
    });
    let text = place.run(ASK).refused(2);
    assert!(text.contains("experts.pack: expert ") && text.contains("nothing else holds it"), "{text}");
    let text = place.run(["pack", "--repair", "copy"]).refused(2);
    assert!(text.contains("experts.pack: expert ") && text.contains("fetch the model again"), "{text}");
}

#[test]
fn a_model_that_lost_its_packs_and_what_tells_of_them_is_refused() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    if place.run(["pack", "--reclaim", "copy"]).said().code != Some(0) {
        return;
    }
    for lost in ["experts.pack", "ngram.pack", "reclaimed.json"] {
        fs::remove_file(dir.join(lost)).unwrap();
    }
    let text = place.run(ASK).refused(2);
    assert!(text.contains(" holds nothing but zeros, as where `ss pack --reclaim` has given"), "{text}");
}

#[test]
fn what_cannot_be_packed_is_refused() {
    let place = Place::new();
    place.copy_of_nano();
    let text = place.run(["pack", "--verify", "copy"]).refused(2);
    assert_eq!(text, "copy is not packed; `ss pack copy` packs it");
    let text = place.run(["pack", "--reclaim", "--verify", "copy"]).refused(2);
    assert!(text.contains("--reclaim") && text.contains("--verify"), "{text}");
    let text = place.run(["pack", "--repair", "--verify", "copy"]).refused(2);
    assert!(text.contains("--repair") && text.contains("--verify"), "{text}");
    assert!(ss(&["pack", "nowhere"]).refused(2).contains("there is no model `nowhere`"));
}

/// What `ss pack` says to Ctrl-C a moment after it has begun; None where it was done by then.
#[cfg(unix)]
fn interrupted(place: &Place, dir: &std::path::Path) -> Option<String> {
    use std::process::Stdio;
    let mut command = place.command(crate::SS);
    let mut child = command
        .args(["pack", "copy"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    while !dir.join("experts.pack.part").exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    crate::signals::interrupt(&child);
    let output = child.wait_with_output().unwrap();
    match output.status.code() {
        Some(0) => None,
        code => {
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!((code, output.stdout.len()), (Some(130), 0), "{stderr}");
            Some(stderr)
        }
    }
}

#[test]
#[cfg(unix)]
fn ctrl_c_ends_packing_and_the_next_run_goes_on() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    let stopped = (0..50).find_map(|_| {
        for name in ["experts.pack", "ngram.pack"] {
            let _ = fs::remove_file(dir.join(name));
        }
        interrupted(&place, &dir)
    });
    let stopped = stopped.expect("one of fifty runs is stopped in time");
    assert!(
        stopped.starts_with("stopped after ") && stopped.contains("; the same command goes on from there"),
        "{stopped}"
    );
    assert!(!dir.join("ngram.pack").exists());
    said(&place, &["pack", "copy"]);
    assert_eq!(said(&place, &["pack", "--verify", "copy"]).stdout.lines().count(), 2);
}
