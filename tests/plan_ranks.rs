//! Ranks are processes: what one has seen of its slots is its own affair, so all use the plan of one.

mod rebind_support;

use gvmm::rebind::profile::Profile;
use gvmm::rebind::{Binding, Options, PlanOptions, Slot};
use gvmm::units::ByteSize;
use rebind_support::{Given, Home, World, actions, begin};
use std::env::{current_exe, var};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const RANKS: u32 = 8;
const SLOTS: usize = 24;

/// Steps in which rank `rank` moves its first slots: more of them on a higher rank, and some only now and then.
fn homes(rank: u32, n: usize, all: &[[Home; 2]]) -> Vec<&Home> {
    let moves = |i: usize| match i {
        0..8 => true,
        _ if i < 8 + 2 * rank as usize => n.is_multiple_of(1 + i % 3),
        _ => false,
    };
    all.iter().enumerate().map(|(i, pair)| &pair[if moves(i) { n % 2 } else { 0 }]).collect()
}

/// What a rank says in the end: its own plan's digest, the common one's, and its actions.
fn rank(rank: u32, folder: &Path) -> String {
    let world = World::new();
    let slots = vec![Slot::new(ByteSize(4096)); SLOTS];
    let all: Vec<[Home; 2]> = (0..SLOTS).map(|_| [world.home(2 << 20), world.home(2 << 20)]).collect();
    let options = PlanOptions { profile: Profile::builtin("h200"), ..PlanOptions::default() };
    let binding = Binding::planned(&world.device, slots, Options::default(), options).expect("a binding");
    let run = |n: usize| {
        begin(&binding, world.stream, &Given::of(&homes(rank, n, &all))).expect("begin");
        binding.end().expect("end");
    };
    (0..5).for_each(run);
    let own = binding.plan_digest().expect("a plan");
    let file = folder.join("plan");
    if rank == 0 {
        fs::write(&file, binding.export_plan().expect("a plan")).expect("a file");
    } else {
        // One is told twice.
        for _ in 0..if rank == 3 { 2 } else { 1 } {
            binding.import_plan(&fs::read(&file).expect("rank 0 was here")).expect("the same slots");
        }
    }
    (5..9).for_each(run);
    world.synchronize();
    let digest = binding.plan_digest().expect("a plan");
    binding.check_plan(digest).expect("it is the plan");
    format!("{own} {digest} {:?}", actions(&binding, SLOTS))
}

/// One rank in this process, which the test below has started for it.
#[test]
#[ignore = "run by the other, in processes of their own"]
fn a_rank() {
    let number = var("GVMM_TEST_RANK").expect("the parent names it").parse().expect("a number");
    let folder = PathBuf::from(var("GVMM_TEST_FOLDER").expect("the parent has made it"));
    fs::write(folder.join(format!("rank{number}")), rank(number, &folder)).expect("a file");
}

fn spawn(number: u32, folder: &Path) -> Child {
    let mut command = Command::new(current_exe().expect("this program"));
    command
        .args(["a_rank", "--exact", "--ignored"])
        .env("GVMM_TEST_RANK", number.to_string())
        .env("GVMM_TEST_FOLDER", folder);
    command.stdout(Stdio::null()).spawn().expect("a process")
}

#[test]
fn eight_ranks_that_have_seen_different_steps_use_one_plan() {
    let folder = std::env::temp_dir().join(format!("gvmm-ranks-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    assert!(spawn(0, &folder).wait().expect("rank 0").success());
    let others: Vec<Child> = (1..RANKS).map(|number| spawn(number, &folder)).collect();
    others.into_iter().for_each(|mut rank| assert!(rank.wait().expect("a rank").success()));
    let said = |number: u32| -> Vec<String> {
        let text = fs::read_to_string(folder.join(format!("rank{number}"))).expect("it said something");
        text.splitn(3, ' ').map(str::to_owned).collect()
    };
    let first = said(0);
    let mut own = vec![first[0].clone()];
    for number in 1..RANKS {
        let said = said(number);
        assert_eq!(said[1], first[1], "rank {number} has another plan");
        own.push(said[0].clone());
    }
    // Left to themselves, they would have differed.
    own.sort();
    own.dedup();
    assert!(own.len() > 1, "{own:?}");
    fs::remove_dir_all(&folder).expect("it was made");
}
