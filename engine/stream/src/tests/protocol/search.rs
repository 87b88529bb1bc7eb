//! Owns: the search through all schedules of a world: every actor that can move is let move, in every way it can.
//! Refuses: what actors do.
//! Invariants: a state is gone through once, told by a hash of 64 bits; a violation that is looked for ends the search, with the moves
//! that led to it, and any other ends its schedule.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// What a move may decide freely: each decision is taken in every way, one after the other.
#[derive(Clone, Default)]
pub struct Choices(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    /// Of each decision: what is taken now, and how many ways there are.
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    fn script<R>(&self, with: impl FnOnce(&mut Script) -> R) -> R {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One of `0..ways`.
    pub fn choose(&self, ways: usize) -> usize {
        self.script(|script| {
            if script.at == script.taken.len() {
                script.taken.push((0, ways));
            }
            script.at += 1;
            script.taken[script.at - 1].0
        })
    }

    /// Forgets what was decided.
    fn begin(&self) {
        self.script(|script| *script = Script::default());
    }

    /// Goes to the next way of deciding, if there is one.
    fn next(&self) -> bool {
        self.script(|script| {
            script.at = 0;
            while let Some((taken, ways)) = script.taken.pop() {
                if taken + 1 < ways {
                    script.taken.push((taken + 1, ways));
                    return true;
                }
            }
            false
        })
    }
}

/// Actors that share a state.
pub trait World: Clone {
    /// Who moves.
    type Actor: Copy + std::fmt::Debug;
    /// What must never be.
    type Violation: Copy + PartialEq;
    /// Who can move.
    fn able(&self) -> Vec<Self::Actor>;
    /// Lets one of them move.
    fn step(&mut self, actor: Self::Actor) -> Result<(), Self::Violation>;
    /// Looks at a state in which nobody can move.
    fn end(&self) -> Result<(), Self::Violation>;
    /// Tells states apart. Those that differ in names only may be renamed, and are one then.
    fn key(&mut self) -> u64;
}

/// A violation, and the moves that led to it.
pub struct Found<V> {
    pub violation: V,
    pub trail: String,
}

/// A search.
pub struct Search<W: World> {
    choices: Choices,
    /// What is looked for, if not every violation.
    only: Option<W::Violation>,
    seen: HashSet<u64>,
    trail: Vec<(W::Actor, Vec<usize>)>,
    pub moves: u64,
    pub ends: u64,
}

impl<W: World> Search<W> {
    /// Of a world whose moves decide by `choices`.
    pub fn new(choices: Choices, only: Option<W::Violation>) -> Self {
        Search { choices, only, seen: HashSet::new(), trail: Vec::new(), moves: 0, ends: 0 }
    }

    /// States that were gone through.
    pub fn states(&self) -> usize {
        self.seen.len()
    }

    /// Goes through all that can follow from a state.
    pub fn explore(&mut self, mut world: W) -> Result<(), Found<W::Violation>> {
        if !self.seen.insert(world.key()) {
            return Ok(());
        }
        let able = world.able();
        if able.is_empty() {
            self.ends += 1;
            return world.end().or_else(|violation| self.found(violation));
        }
        for actor in able {
            self.choices.begin();
            loop {
                let mut next = world.clone();
                let done = next.step(actor);
                let decided = self.choices.script(|script| script.taken.clone());
                self.trail.push((actor, decided.iter().map(|(taken, _)| *taken).collect()));
                self.moves += 1;
                match done {
                    Ok(()) => self.explore(next)?,
                    Err(violation) => self.found(violation)?,
                }
                self.trail.pop();
                self.choices.script(|script| script.taken = decided);
                if !self.choices.next() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn found(&self, violation: W::Violation) -> Result<(), Found<W::Violation>> {
        if self.only.is_some_and(|only| only != violation) {
            return Ok(());
        }
        let moves = self.trail.iter().map(|(actor, decided)| format!("{actor:?}{decided:?}"));
        Err(Found { violation, trail: moves.collect::<Vec<_>>().join(" ") })
    }
}
