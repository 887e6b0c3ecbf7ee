//! What a strategy costs in parts of the best of those that the planner is measured by.

use super::spread::round;
use super::steps::Outcome;
use gvmm::rebind::Action;

/// Whether the planner is measured by a strategy: in both ratios or in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rival {
    No,
    Yes,
    /// XLA's rule with joint copies, as gvmm has it.
    Joint,
    /// XLA's rule that copies slot by slot, as XLA does.
    Apart,
}

/// Costs that lie no farther apart than the graph alone does are the same. A plan that serves all slots as a pure strategy
/// does is the same program run twice: the lower of both costs counts.
pub(super) fn with_ratios(mut outcomes: Vec<Outcome>, noise_us: f64) -> Vec<Outcome> {
    let [joint, apart] = [Rival::Joint, Rival::Apart].map(|rule| {
        let all = outcomes.iter().map(|outcome| (outcome.rival, &outcome.served, outcome.cost_us));
        pure(all, rule)
    });
    for outcome in &mut outcomes {
        let is_alike = !outcome.recorded && outcome.rival != Rival::Apart;
        let served = Some(&outcome.served).filter(|_| is_alike);
        outcome.ratio = ratio(outcome.cost_us, served, &joint, noise_us);
        outcome.ratio_slot_by_slot = ratio(outcome.cost_us, served, &apart, noise_us);
    }
    outcomes
}

/// The pure strategies, with this form of XLA's rule: how each serves the slots, and what it costs. Slot by slot is nobody
/// else's program, however it serves them.
fn pure<'a>(
    all: impl Iterator<Item = (Rival, &'a Vec<Action>, f64)>,
    rule: Rival,
) -> Vec<(Vec<Action>, f64)> {
    let served =
        |rival, served: &Vec<Action>| if rival == Rival::Apart { Vec::new() } else { served.clone() };
    let rivals = all.filter(|(rival, ..)| *rival == Rival::Yes || *rival == rule);
    rivals.map(|(rival, by, cost)| (served(rival, by), cost)).collect()
}

/// What a plan costs in parts of the best of `pure` strategies.
fn ratio(cost_us: f64, served: Option<&Vec<Action>>, pure: &[(Vec<Action>, f64)], noise_us: f64) -> f64 {
    let least = pure.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min);
    let twins = pure.iter().filter(|(other, _)| !other.is_empty() && Some(other) == served);
    let cost = twins.map(|(_, cost)| *cost).fold(cost_us, f64::min);
    let same = (cost - least).abs() <= noise_us;
    if same { 1.0 } else { round(cost / least.max(noise_us).max(1e-3)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_no_difference_and_a_plan_is_measured_wherever_it_runs() {
        let all = |action| vec![action; 2];
        let pure = [(all(Action::MAP), 90.0), (all(Action::COPY), 60.0), (all(Action::PATCH), 40.0)];
        let own = vec![Action::COPY, Action::PATCH];
        assert!((ratio(44.0, Some(&own), &pure, 0.5) - 1.1).abs() < 1e-9);
        assert!((ratio(44.0, Some(&own), &pure, 4.0) - 1.0).abs() < 1e-9);
        // Copying all took 60 once and 80 once.
        assert!((ratio(80.0, Some(&all(Action::COPY)), &pure, 0.5) - 1.5).abs() < 1e-9);
        assert!((ratio(80.0, None, &pure, 0.5) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn xla_s_rule_is_there_once_and_slot_by_slot_it_is_no_other_s_program() {
        let copied = vec![Action::COPY; 2];
        let each = [(Rival::Yes, 40.0), (Rival::Joint, 20.0), (Rival::Apart, 30.0), (Rival::No, 10.0)];
        let of = |rule| pure(each.into_iter().map(|(rival, us)| (rival, &copied, us)), rule);
        assert_eq!(of(Rival::Joint), [(copied.clone(), 40.0), (copied.clone(), 20.0)]);
        assert_eq!(of(Rival::Apart), [(copied.clone(), 40.0), (Vec::new(), 30.0)]);
    }
}
