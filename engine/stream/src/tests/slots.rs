//! Owns: the slot table against a plain model of it, over many random operations.

use std::collections::{HashMap, HashSet};

use super::support::Random;
use crate::{Clock, Error, ExpertId, SlotTable};

const LAYERS: u32 = 3;
const EXPERTS: u32 = 16;

fn table(slots: u32) -> SlotTable {
    SlotTable::new(LAYERS, EXPERTS, slots, Box::new(Clock::new(slots as usize)))
}

/// What the table should be: who lies where, and how often each slot is held.
#[derive(Default)]
struct Model {
    resident: HashMap<ExpertId, u32>,
    held: Vec<u32>,
}

impl Model {
    fn is_held(&self, slot: u32) -> bool {
        self.held.contains(&slot)
    }

    fn agrees(&self, table: &SlotTable) -> bool {
        let residents: HashMap<ExpertId, u32> = table.residents().collect();
        let distinct: HashSet<u32> = self.held.iter().copied().collect();
        let looked_up = (0..LAYERS).flat_map(|layer| (0..EXPERTS).map(move |expert| ExpertId { layer, expert }));
        residents == self.resident
            && looked_up.into_iter().all(|id| table.slot(id) == self.resident.get(&id).copied())
            && table.unpinned() == table.len() - distinct.len()
    }
}

#[derive(Default, Debug)]
struct Seen {
    hits: u32,
    evictions: u32,
    abandoned: u32,
    busy: u32,
}

/// Claims at random, then publishes, abandons or is refused; the model checks every promise on the way.
fn claim(table: &mut SlotTable, model: &mut Model, random: &mut Random, seen: &mut Seen) {
    let layer = random.below(LAYERS.into()) as u32;
    let count = 1 + random.below(8) as usize;
    let experts = random.distinct(count, EXPERTS);
    let before: HashMap<ExpertId, u32> = model.resident.clone();
    let claim = match table.claim(layer, &experts) {
        Ok(claim) => claim,
        Err(Error::PoolBusy { wanted, available, .. }) => {
            seen.busy += 1;
            assert!(wanted > available, "refused although {available} slots would do for {wanted}");
            return;
        }
        Err(other) => panic!("{other}"),
    };
    let distinct: HashSet<u32> = claim.slots.iter().copied().collect();
    assert_eq!(distinct.len(), experts.len(), "two experts never share a slot");
    for (&slot, &expert) in claim.slots.iter().zip(&experts) {
        let id = ExpertId { layer, expert };
        let miss = claim.misses.iter().find(|miss| miss.id == id);
        assert_eq!(miss.map(|miss| miss.slot), (!before.contains_key(&id)).then_some(slot));
        match before.get(&id) {
            Some(&own) => assert_eq!(own, slot, "a resident expert keeps its slot"),
            None => assert!(!model.is_held(slot), "a pinned slot was given up"),
        }
        seen.hits += u32::from(miss.is_none());
    }
    for miss in &claim.misses {
        let owner = before.iter().find(|(_, slot)| **slot == miss.slot).map(|(id, _)| *id);
        assert_eq!(owner.is_some(), miss.evicted);
        assert_eq!(table.slot(miss.id), None, "not resident before it is read");
        if let Some(owner) = owner {
            model.resident.remove(&owner);
            seen.evictions += 1;
        }
    }
    if random.below(10) == 0 {
        seen.abandoned += 1;
        table.abandon(&claim);
    } else {
        table.publish(&claim);
        model.resident.extend(claim.misses.iter().map(|miss| (miss.id, miss.slot)));
        model.held.extend(&claim.slots);
    }
}

#[test]
fn the_table_agrees_with_a_plain_model_over_100_000_random_operations() {
    for (slots, operations) in [(12, 60_000), (5, 20_000), (48, 20_000)] {
        let (mut table, mut model, mut seen) = (table(slots), Model::default(), Seen::default());
        let mut random = Random(u64::from(slots));
        for _ in 0..operations {
            if random.below(3) == 0 {
                table.release(&model.held);
                model.held.clear();
            } else {
                claim(&mut table, &mut model, &mut random, &mut seen);
            }
            assert!(model.agrees(&table), "table and model disagree");
        }
        assert!(seen.hits > 0 && seen.abandoned > 0, "{seen:?}");
        assert_eq!(seen.evictions > 0, slots < 48, "{seen:?}: 48 slots hold everything");
        assert_eq!(seen.busy > 0, slots < 48, "{seen:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_no_trace() -> Result<(), Error> {
    let mut table = table(6);
    let first = table.claim(0, &[1, 2, 3, 4])?;
    table.publish(&first);
    let before: Vec<_> = table.residents().collect();
    assert!(matches!(table.claim(0, &[1, 8, 9, 10]), Err(Error::PoolBusy { wanted: 3, available: 2, slots: 6 })));
    assert_eq!(table.residents().collect::<Vec<_>>(), before);
    assert_eq!(table.unpinned(), 2);
    table.release(&first.slots);
    let second = table.claim(0, &[1, 8, 9, 10])?;
    assert_eq!(second.slots[0], first.slots[0]);
    Ok(())
}

#[test]
fn experts_that_do_not_exist_or_come_twice_are_refused_by_name() {
    let mut table = table(6);
    for (layer, experts, named) in [
        (LAYERS, &[0][..], "layer 3 of 3"),
        (0, &[0, EXPERTS], "expert 16 of 16"),
        (1, &[4, 2, 4], "expert 4 of layer 1 twice"),
    ] {
        let refused = table.claim(layer, experts).map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|text| text.contains(named)), "{refused:?}");
    }
    assert_eq!(table.unpinned(), 6);
    assert!(table.layer(LAYERS).is_empty() && table.layer(LAYERS - 1).len() == EXPERTS as usize);
}

#[test]
fn a_slot_that_is_held_twice_needs_two_releases() -> Result<(), Error> {
    let mut table = table(2);
    let first = table.claim(0, &[1, 2])?;
    table.publish(&first);
    let again = table.claim(0, &[1])?;
    table.publish(&again);
    table.release(&first.slots);
    assert_eq!(table.unpinned(), 1);
    assert!(matches!(table.claim(0, &[3, 4]), Err(Error::PoolBusy { .. })));
    table.release(&again.slots);
    table.release(&again.slots);
    assert_eq!(table.unpinned(), 2, "and a third release is harmless");
    Ok(())
}
