//! Owns: the proof by exhaustion, at small sizes, that no schedule of host, device and lanes lets work read a slot that is
//! being written or blocks for good, and that mistakes of each kind are found (engine.md 5.3 to 5.6).
//! Refuses: threads and devices; all that decides is real, all that works is simulated.
//! Invariants: every order of moves, every choice, forecast, failure and victim of the sizes named is gone through.

mod search;
mod world;

use search::{Choices, Found, Search};
use world::{Bug, Setup, Violation, World, Writer};

const SMALL: Setup = Setup {
    writer: Writer::Direct,
    bug: None,
    experts: 3,
    choices: 1,
    slots: 2,
    reserve: 1,
    tokens: 2,
    failures: 1,
    lanes: 1,
    every_order: false,
};

/// Two choices, so that some can have a slot while others are missing.
const WIDE: Setup = Setup { choices: 2, slots: 4, ..SMALL };

/// Goes through all schedules, or until a violation is found.
fn explore(setup: Setup, only: Option<Violation>) -> Result<(), Found<Violation>> {
    let choices = Choices::default();
    let mut search = Search::new(choices.clone(), only);
    let started = std::time::Instant::now();
    let explored = search.explore(World::new(setup, choices));
    let (states, moves, ends) = (search.states(), search.moves, search.ends);
    println!("{states} states, {moves} moves, {ends} ends, {:?}: {setup:?}", started.elapsed());
    explored
}

fn nothing_is_found(setup: Setup) {
    if let Err(Found { violation, trail }) = explore(setup, None) {
        panic!("{violation:?} in {setup:?}: {trail}");
    }
}

fn nothing_is_found_by_either_writer(setup: Setup) {
    nothing_is_found(Setup { writer: Writer::Ordered, ..setup });
    nothing_is_found(Setup { writer: Writer::Direct, ..setup });
}

fn is_found(bug: Bug, writer: Writer, expected: Violation) {
    let failures = u8::from(bug == Bug::LeakOnFailure);
    for every_order in [false, true] {
        let found = explore(Setup { writer, bug: Some(bug), every_order, failures, ..WIDE }, Some(expected));
        assert!(found.is_err(), "{bug:?} goes unnoticed, {writer:?}");
    }
}

#[test]
fn no_schedule_goes_wrong_in_the_smallest_pool() {
    nothing_is_found_by_either_writer(Setup { tokens: 3, ..SMALL });
    nothing_is_found_by_either_writer(Setup { slots: 3, ..SMALL });
}

#[test]
fn moves_that_are_put_in_one_place_only_hide_nothing() {
    nothing_is_found_by_either_writer(Setup { every_order: true, failures: 0, ..SMALL });
}

#[test]
fn no_schedule_goes_wrong_with_several_choices() {
    nothing_is_found_by_either_writer(WIDE);
    nothing_is_found_by_either_writer(Setup { slots: 3, failures: 0, ..WIDE });
}

#[test]
fn no_schedule_goes_wrong_with_several_reads_ahead() {
    nothing_is_found_by_either_writer(Setup { reserve: 2, lanes: 2, slots: 3, failures: 0, ..SMALL });
    nothing_is_found_by_either_writer(Setup { reserve: 2, lanes: 2, failures: 0, ..WIDE });
}

#[test]
fn an_entry_before_its_record_is_found() {
    is_found(Bug::EntryBeforeRecord, Writer::Ordered, Violation::WrongRecord);
    is_found(Bug::EntryBeforeRecord, Writer::Direct, Violation::WrongRecord);
}

#[test]
fn slots_that_early_halves_name_and_nobody_holds_are_found_where_readers_write_them() {
    is_found(Bug::EarlyHalvesNotHeld, Writer::Direct, Violation::WrittenWhileRead);
    // A copy waits for its turn behind the halves.
    nothing_is_found(Setup { bug: Some(Bug::EarlyHalvesNotHeld), writer: Writer::Ordered, failures: 0, ..WIDE });
}

#[test]
fn slots_that_a_router_found_and_nobody_holds_for_its_experts_are_found() {
    is_found(Bug::FoundNotHeld, Writer::Ordered, Violation::WrongRecord);
    is_found(Bug::FoundNotHeld, Writer::Direct, Violation::WrittenWhileRead);
}

#[test]
fn a_row_of_the_table_that_a_later_router_of_a_submission_lacks_is_found() {
    // The second layer must have given a slot up for itself, which takes a third token to be seen.
    for writer in [Writer::Ordered, Writer::Direct] {
        let setup = Setup { writer, bug: Some(Bug::FirstRowOnly), tokens: 3, failures: 0, ..SMALL };
        assert!(explore(setup, Some(Violation::WrongRecord)).is_err(), "goes unnoticed, {writer:?}");
    }
}

#[test]
fn a_table_that_comes_behind_the_work_is_found() {
    is_found(Bug::LateTable, Writer::Ordered, Violation::WrongRecord);
    is_found(Bug::LateTable, Writer::Direct, Violation::WrittenWhileRead);
}

#[test]
fn a_slot_that_is_given_back_while_it_is_read_is_found() {
    is_found(Bug::StaleGivenBack, Writer::Ordered, Violation::TwoReaders);
    is_found(Bug::StaleGivenBack, Writer::Direct, Violation::TwoReaders);
}

#[test]
fn waiting_for_a_read_that_may_not_begin_is_found() {
    is_found(Bug::GuardWhileJoining, Writer::Ordered, Violation::Deadlock);
    is_found(Bug::GuardWhileJoining, Writer::Direct, Violation::Deadlock);
}

#[test]
fn a_copy_behind_the_work_that_uses_it_is_found() {
    is_found(Bug::LateCopy, Writer::Ordered, Violation::WrongRecord);
}

#[test]
fn a_slot_that_a_failed_read_loses_is_found() {
    is_found(Bug::LeakOnFailure, Writer::Ordered, Violation::Leak);
    is_found(Bug::LeakOnFailure, Writer::Direct, Violation::Leak);
}
