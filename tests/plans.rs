//! Properties of plans: every message named once, nothing of the current turn lost, no result without its call.

use loadline::context::plan::{
    Edit, Kind, Plan, USER_MESSAGES_KEPT, current_exchange, current_turn, users_that_fit, users_that_must_stay,
    whole_from,
};
use loadline::context::{Front, Rollover};
use proptest::prelude::*;

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::System), Just(Kind::User), Just(Kind::Assistant), Just(Kind::ToolResult), Just(Kind::Other)]
}

/// Histories as agents make them: whole turns, each with its calls and their results.
fn turns() -> impl Strategy<Value = Vec<Kind>> {
    let turn = (0_usize..3).prop_map(|calls| {
        let mut turn = vec![Kind::User];
        turn.extend([Kind::Assistant, Kind::ToolResult].repeat(calls));
        turn.push(Kind::Assistant);
        turn
    });
    (any::<bool>(), prop::collection::vec(turn, 1..20), 0_usize..3).prop_map(|(system, turns, open)| {
        let mut kinds = if system { vec![Kind::System] } else { Vec::new() };
        kinds.extend(turns.concat());
        kinds.push(Kind::User);
        kinds.extend([Kind::Assistant, Kind::ToolResult].repeat(open));
        kinds
    })
}

fn front(users_kept: usize) -> Front {
    let rollover = Rollover { snapshot: "snapshot-1".into(), note: "note".into(), last: 1 };
    Front { rollover: Some(rollover), users_kept, limit: 1, ..Front::default() }
}

proptest! {
    #[test]
    fn a_plan_names_every_message_exactly_once_in_order(kinds in prop::collection::vec(kind(), 0..40), covered in 0_usize..50, users in 0_usize..12) {
        let plan = Plan::fronted(&kinds, covered, &front(users), None);
        let mut next = 0;
        let mut notes = 0;
        for edit in &plan.edits {
            let range = match edit {
                Edit::Keep(range) | Edit::Replace(range, _) => range.clone(),
                Edit::Rewrite(index, _) => *index..index + 1,
            };
            prop_assert_eq!(range.start, next);
            next = range.end;
            notes += usize::from(matches!(edit, Edit::Replace(_, Some(_))));
        }
        prop_assert_eq!(next, kinds.len());
        prop_assert_eq!(notes, 1);
    }

    #[test]
    fn the_current_turn_and_the_system_prompt_always_stay(kinds in turns(), users in 0_usize..12) {
        let turn = current_turn(&kinds);
        let plan = Plan::fronted(&kinds, turn, &front(users), None);
        let kept: Vec<usize> = plan.kept().collect();
        for (index, kind) in kinds.iter().enumerate() {
            if index >= turn || *kind == Kind::System {
                prop_assert!(kept.contains(&index));
            }
        }
    }

    #[test]
    fn a_tool_call_never_leaves_its_result(kinds in turns(), users in 0_usize..12) {
        let plan = Plan::fronted(&kinds, current_turn(&kinds), &front(users), None);
        let kept: Vec<usize> = plan.kept().collect();
        for &index in &kept {
            if kinds[index] == Kind::ToolResult {
                prop_assert!(kept.contains(&(index - 1)), "the call before {} is gone", index);
            }
        }
    }

    #[test]
    fn what_fits_is_within_the_budget_and_never_more_than_ten(kinds in turns(), size in 1_u32..200, limit in 1_u32..4000, fixed in 0_u32..400) {
        let sizes = vec![size; kinds.len()];
        let cut = current_turn(&kinds);
        let users = users_that_fit(&kinds, &sizes, cut, fixed, limit);
        prop_assert!(users < USER_MESSAGES_KEPT);
        let plan = Plan::fronted(&kinds, current_turn(&kinds), &front(users), None);
        let total = u64::from(fixed) + plan.kept().map(|index| u64::from(sizes[index])).sum::<u64>();
        // With no earlier message at all the pinned part may be too large; that is the refusal's business.
        prop_assert!(users == 0 || total <= u64::from(limit), "{} over {}", total, limit);
    }

    #[test]
    fn a_cut_inside_the_turn_keeps_the_users_message_and_the_open_exchange(kinds in turns(), users in 0_usize..12) {
        let cut = current_exchange(&kinds);
        let users = users.max(users_that_must_stay(&kinds, cut));
        let plan = Plan::fronted(&kinds, cut, &front(users), None);
        let kept: Vec<usize> = plan.kept().collect();
        prop_assert!(kept.contains(&current_turn(&kinds)), "the user's message is gone");
        prop_assert!((cut..kinds.len()).all(|index| kept.contains(&index)));
        for &index in &kept {
            if kinds[index] == Kind::ToolResult {
                prop_assert!(kept.contains(&(index - 1)), "the call before {} is gone", index);
            }
        }
    }

    #[test]
    fn no_cut_parts_a_result_from_its_call_whatever_comes_between(kinds in turns(), at in any::<prop::sample::Index>()) {
        // The user speaks up between a call and its result.
        let mut kinds = kinds;
        if let Some(result) = kinds.iter().rposition(|kind| *kind == Kind::ToolResult) {
            kinds.insert(result, Kind::User);
        }
        let cut = whole_from(&kinds, at.index(kinds.len()));
        let first = kinds[cut..].iter().find(|kind| matches!(kind, Kind::Assistant | Kind::ToolResult));
        prop_assert_ne!(first, Some(&Kind::ToolResult));
    }

    #[test]
    fn the_identity_changes_nothing(count in 0_usize..50) {
        let plan = Plan::identity(count);
        prop_assert!(plan.is_identity());
        prop_assert!(plan.kept().eq(0..count));
    }
}
