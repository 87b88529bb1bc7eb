//! Owns: what a bench says: a row for each pool and test, as a table and as JSON, and what it refuses.

use serde_json::Value;

use crate::ss;

const SHORT: [&str; 9] = ["bench", "-p", "8", "-n", "4", "-r", "2", "--slots", "smallest,all"];

#[test]
fn a_bench_has_a_row_for_each_pool_and_test() {
    let text = ss(&SHORT).answer();
    let lines: Vec<&str> = text.lines().collect();
    let [head, "", columns, rows @ ..] = &lines[..] else { panic!("{text}") };
    for part in ["flash-next-nano on ", "reference backend, fast arithmetic, 512 experts", "deviation of 2 runs"] {
        assert!(head.contains(part), "{head}");
    }
    assert!(columns.trim_start().starts_with("slots  test") && columns.contains("vs first"), "{columns}");
    let starts = ["18  pp8 ", "18  tg4 ", "512  pp8 ", "512  tg4 "];
    assert_eq!(rows.len(), starts.len(), "{text}");
    for (row, start) in rows.iter().zip(starts) {
        assert!(row.trim_start().starts_with(start) && row.contains(" ± "), "{row}");
        assert!(start.starts_with("18") == row.contains(" 1.000 "), "{row}");
    }
}

#[test]
fn the_figures_are_there_as_json_and_the_table_beside_them() {
    let said = ss(&[&SHORT[..], &["--json"]].concat()).said();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("pp8") && said.stderr.contains("tg4"), "{}", said.stderr);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&report["all_slots"], &report["arithmetic"]), (&512.into(), &"fast".into()));
    assert_eq!(report["device"]["kind"], "reference");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(row["runs"].as_array().unwrap().len(), 2);
        for figure in ["tokens_per_second", "dispatches_per_token", "submissions_per_token", "readbacks_per_token"] {
            assert!(row[figure].as_f64() > Some(0.0), "{figure}: {row}");
        }
        let small = row["slots"] == 18;
        assert_eq!(
            row["hit_rate"].as_f64() < Some(1.0),
            small,
            "after one run that is not counted all is resident: {row}"
        );
        // Where all is resident, a record that was expected in vain may still be on its way.
        assert!(row["bytes_read_per_token"].as_f64() > Some(1000.0) || !small, "{row}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_or_cut_with_a_note() {
    for (flags, expected) in [
        (&["-p", "0", "-n", "0"][..], "nothing to measure"),
        (&["--depth", "4096"], "the window of this model has 4096 tokens"),
        (&["--slots", "floor,17"], "needs at least 18"),
        (&["--slots", "floor;all"], "is not a pool size"),
        (&["-r", "0"], "0 is not in 1..=1000"),
        (&["-p", "-5"], "'-5'"),
    ] {
        let text = ss(&[&["bench"], flags].concat()).refused(2);
        assert!(text.contains(expected), "{flags:?}: {text}");
    }
    let said = ss(&["bench", "-p", "0", "-n", "9000,1", "--depth", "4095", "-r", "1"]).said();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("note: tg9000 @ 4095 becomes tg1 @ 4095"), "{}", said.stderr);
    assert_eq!(said.stdout.lines().filter(|line| line.contains("tg1 @ 4095")).count(), 1, "{}", said.stdout);
}
