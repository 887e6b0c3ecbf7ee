//! Random operations against a plain model, with the invariants walked and the memory read after each; and eight
//! threads on one device.

mod common;

#[path = "model/game.rs"]
mod game;
#[path = "model/moves.rs"]
mod moves;
#[path = "model/plain.rs"]
mod plain;
#[path = "model/threads.rs"]
mod threads;

use common::drivers;
use game::Game;
use moves::{Op, op};
use proptest::prelude::*;

fn play(off: &[&str], moves: &[(Op, Option<u64>)]) {
    let mut game = Game::new(off);
    for (op, fail) in moves {
        game.play(op, *fail);
    }
    // Elsewhere a fault would end this process's use of the device.
    if !off.contains(&"device_access") && drivers::is_host() {
        game.check_denied();
    }
    game.world.end("the end");
}

fn moves() -> impl Strategy<Value = Vec<(Op, Option<u64>)>> {
    prop::collection::vec((op(), prop::option::weighted(0.15, 1..12_u64)), 1..50)
}

fn config() -> ProptestConfig {
    let cases = if drivers::is_host() { 256 } else { 64 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn with_every_capability(moves in moves()) {
        play(&[], &moves);
    }

    #[test]
    fn without_aliasing(moves in moves()) {
        play(&["aliasing"], &moves);
    }

    #[test]
    fn without_joined_access(moves in moves()) {
        play(&["joined_access", "device_access"], &moves);
    }

    #[test]
    fn with_access_for_the_whole_only(moves in moves()) {
        play(&["range_access", "aliasing"], &moves);
    }
}

/// All of it on the drivers of CUDA and HIP, whose memory is not the host's.
#[test]
fn on_the_fakes_it_is_the_same() {
    drivers::again_on_fakes();
}
