//! A generated token is few dispatches: at most 12 in a layer of Gated DeltaNet, 15 in one of sparse attention, 640 in all
//! at the released list of layers (engine.md section 4).
//!
//! How many an operation takes does not depend on its sizes, but for tables larger than a binding, which go in ranges of
//! their rows: embedding and head are counted at the released size.

use std::path::Path;

use ss_backend::op::{Embed, Head};
use ss_backend::{Arithmetic, Form, Linear, Matrix, Recorder, Rows, Scope, Site, Stage};
use ss_checkpoint::{Geometry, LayerKind, imitation};
use ss_model::{Pass, Want};
use ss_tests::rig::{Rig, RigOptions, adapter};
use ss_tests::stepwise::Dispatches;

/// Most dispatches of a layer of this kind.
fn most(kind: LayerKind) -> u64 {
    match kind {
        LayerKind::Gdn => 12,
        LayerKind::Qsa => 15,
    }
}

/// Most dispatches of a token at released geometry.
const MOST_OF_TOKEN: u64 = 640;

fn released() -> Geometry {
    Geometry::from_config(&imitation::released_config(), Path::new("released")).unwrap()
}

/// The dispatches of one resident token, operation by operation, and as the device counts a whole list.
fn resident_token(options: &RigOptions) -> (Rig, Vec<(Site, u64)>, u64) {
    let golden = &options.device.goldens()[0];
    let (counted, prompt) = (Dispatches::default(), golden.prompt(300));
    let token = |rig: &mut Rig| {
        let mut state = rig.state();
        // Past the sparse threshold, and inside a block; the second token finds the experts of the first.
        rig.forward(&mut state, &Pass::prompt(&prompt[..101], Want::Last));
        let mut before = state.fork();
        rig.forward(&mut before, &Pass::generated(&prompt[101..102], Want::Last));
        counted.take();
        let (dispatches, seen) = (rig.backend().counters().dispatches, rig.watch.seen());
        rig.forward(&mut state, &Pass::generated(&prompt[101..102], Want::Last));
        assert_eq!(rig.watch.seen().since(seen).submissions, 1, "the token was resident");
        rig.backend().counters().dispatches - dispatches
    };
    let whole = token(&mut Rig::new(&golden.model(), options));
    let mut rig = Rig::new(&golden.model(), &RigOptions { dispatches: Some(counted.clone()), ..options.clone() });
    token(&mut rig);
    (rig, counted.take(), whole)
}

/// Dispatches of embedding and head with tables of these rows and columns, in the format that the model has them in.
fn tables(rig: &Rig, counted: &Dispatches, rows: u32, cols: u32) -> [u64; 2] {
    let alloc = |bytes: u64| rig.backend().alloc("table", bytes).unwrap();
    let table = |like: &Linear| {
        let matrix = Matrix { rows, cols, format: like.matrix.format };
        let scales = || matrix.format.is_affine().then(|| alloc(matrix.scale_bytes()));
        Linear { matrix, codes: alloc(matrix.code_bytes()), scales: scales(), biases: scales() }
    };
    let row = Rows { count: 1, form: Form::Generated };
    let mut rec = Recorder::new(Arithmetic::Exact);
    let (table, hidden) = (table(&rig.model.weights().head), alloc(4 * u64::from(cols)));
    rec.at(Scope::Whole, Stage::Embed).embed(Embed {
        rows: row,
        ids: alloc(4),
        table: table.clone(),
        copies: 1,
        out: hidden.clone(),
    });
    let logits = alloc(4 * u64::from(rows));
    rec.at(Scope::Whole, Stage::Head).head(Head { rows: row, x: hidden, weight: table, logits });
    counted.take();
    rig.backend().submit(rec.all()).unwrap();
    match &counted.take()[..] {
        [(_, embed), (_, head)] => [*embed, *head],
        other => panic!("two operations were counted as {other:?}"),
    }
}

#[test]
fn a_token_is_few_dispatches_on_the_adapter() {
    let options = RigOptions { device: adapter(), ..RigOptions::default() };
    let (rig, steps, whole) = resident_token(&options);
    assert_eq!(steps.iter().map(|(_, count)| count).sum::<u64>(), whole, "one by one, or as one list");
    let of = |wanted: &dyn Fn(Site) -> bool| -> u64 {
        steps.iter().filter(|(site, _)| wanted(*site)).map(|(_, count)| count).sum()
    };
    let geometry = rig.model.geometry();
    let mut worst = [0; 2];
    for (layer, &kind) in geometry.layers.iter().enumerate() {
        let stages: Vec<_> = steps.iter().filter(|(site, _)| site.scope == Scope::Layer(layer as u32)).collect();
        let count = of(&|site| site.scope == Scope::Layer(layer as u32) && site.stage != Stage::Ple);
        assert!(stages.iter().any(|(site, count)| site.stage == Stage::Moe && *count > 0), "layer {layer} ran");
        assert!(count <= most(kind), "layer {layer}, {kind:?}: {count} dispatches: {stages:?}");
        let worst = &mut worst[usize::from(kind == LayerKind::Qsa)];
        *worst = count.max(*worst);
    }
    let [gdn, qsa] = worst;
    assert!(gdn > 0 && qsa > 0, "both kinds were counted");

    let released = released();
    let counted = Dispatches::default();
    let rig = Rig::new(rig.model.checkpoint().dir(), &RigOptions { dispatches: Some(counted.clone()), ..options });
    let [embed, head] = tables(&rig, &counted, released.vocab, released.hidden);
    let (ple, mixer) = (of(&|site| site.stage == Stage::Ple), of(&|site| site.stage == Stage::Mixer));
    assert!(ple > 0 && mixer > 0 && embed > 0 && head > 0, "the rest was counted");
    let layers = [LayerKind::Gdn, LayerKind::Qsa].map(|kind| released.count(kind) as u64);
    let injections = released.ple.len() as u64;
    assert!(layers.iter().all(|&count| count > 0) && injections > 0);
    let all = gdn * layers[0] + qsa * layers[1] + ple * injections + mixer + embed + head;
    println!(
        "dispatches: Gated DeltaNet {gdn} x {}, sparse attention {qsa} x {}, injection {ple} x {injections}, mixer {mixer}, \
         embedding {embed}, head {head}: {all} a token",
        layers[0], layers[1]
    );
    assert!(all <= MOST_OF_TOKEN, "{all} dispatches a token at released geometry");
}
