//! Which of several upstreams takes a request. Pure: what is known of each goes in, a choice comes out.
//!
//! A conversation goes back to where it was, because that upstream has read it already. Else the one with the least to
//! do is taken; one that would have to load the model first counts as having one request more.

/// What is known of an upstream at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) up: bool,
    /// It is to get nothing new.
    pub(super) draining: bool,
    /// It was tried for this very request, and could not be reached.
    pub(super) avoided: bool,
    /// Whether it has the model; none: it has not told yet.
    pub(super) has_model: Option<bool>,
    /// Whether the model is loaded there.
    pub(super) loaded: bool,
    pub(super) in_flight: usize,
    /// It has as many requests as it may.
    pub(super) full: bool,
}

/// Why an upstream was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The conversation was there before.
    Affine,
    /// There is no conversation yet, or nobody knows where it was.
    New,
    /// The conversation was elsewhere, where it cannot be now.
    Moved,
}

impl Why {
    pub const ALL: [Self; 3] = [Self::Affine, Self::New, Self::Moved];

    pub fn name(self) -> &'static str {
        match self {
            Self::Affine => "affine",
            Self::New => "new",
            Self::Moved => "moved",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Take(usize, Why),
    /// All that could be taken are full, or the one that is worth waiting for is.
    Wait,
    /// There is none left.
    Nobody,
}

/// Chooses. `affine` is where the conversation was; `patient` means that it is still worth waiting for. Of equals the
/// one at `turn`, or the next after it, is taken, so that none is always first.
pub(super) fn choose(candidates: &[Candidate], affine: Option<usize>, patient: bool, turn: usize) -> Choice {
    let open = |candidate: &Candidate| !candidate.draining && !candidate.avoided;
    let has = |candidate: &Candidate| candidate.has_model != Some(false);
    // Whoever has the model; else anybody who is there, who will say that they have not; else those who seem to be away,
    // because nobody else is left to say so.
    let ranks: [&dyn Fn(&Candidate) -> bool; 3] =
        [&|one| open(one) && one.up && has(one), &|one| open(one) && one.up, &|one| open(one)];
    let Some(usable) = ranks.into_iter().find(|usable| candidates.iter().any(usable)) else { return Choice::Nobody };
    let home = affine.filter(|number| candidates.get(*number).is_some_and(usable));
    if let Some(number) = home {
        if !candidates[number].full {
            return Choice::Take(number, Why::Affine);
        }
        if patient {
            return Choice::Wait;
        }
    }
    let count = candidates.len();
    let free = (0..count).map(|step| (turn + step) % count).filter(|number| {
        let candidate = &candidates[*number];
        usable(candidate) && !candidate.full
    });
    let least = free.min_by_key(|number| candidates[*number].in_flight + usize::from(!candidates[*number].loaded));
    match least {
        Some(number) => Choice::Take(number, if affine.is_some() { Why::Moved } else { Why::New }),
        None => Choice::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Candidate = Candidate {
        up: true,
        draining: false,
        avoided: false,
        has_model: Some(true),
        loaded: true,
        in_flight: 0,
        full: false,
    };

    #[test]
    fn a_conversation_goes_back_to_where_it_was_even_if_others_have_less_to_do() {
        let all = [IDLE, Candidate { in_flight: 9, ..IDLE }];
        assert_eq!(choose(&all, Some(1), true, 0), Choice::Take(1, Why::Affine));
        assert_eq!(choose(&all, None, true, 1), Choice::Take(0, Why::New));
    }

    #[test]
    fn it_waits_for_its_place_while_that_is_worth_it_and_moves_when_it_is_not() {
        let all = [IDLE, Candidate { full: true, ..IDLE }];
        assert_eq!(choose(&all, Some(1), true, 0), Choice::Wait);
        assert_eq!(choose(&all, Some(1), false, 0), Choice::Take(0, Why::Moved));
    }

    #[test]
    fn whoever_is_away_draining_avoided_or_without_the_model_is_passed_over() {
        for passed in [
            Candidate { up: false, ..IDLE },
            Candidate { draining: true, ..IDLE },
            Candidate { avoided: true, ..IDLE },
            Candidate { has_model: Some(false), ..IDLE },
        ] {
            assert_eq!(
                choose(&[passed, Candidate { in_flight: 5, ..IDLE }], Some(0), true, 0),
                Choice::Take(1, Why::Moved)
            );
        }
    }

    #[test]
    fn the_least_loaded_is_taken_and_loading_a_model_counts_as_a_request() {
        let cold = Candidate { loaded: false, ..IDLE };
        assert_eq!(choose(&[cold, IDLE], None, true, 0), Choice::Take(1, Why::New));
        assert_eq!(choose(&[cold, Candidate { in_flight: 2, ..IDLE }], None, true, 0), Choice::Take(0, Why::New));
        // Of equals each has its turn.
        assert_eq!(choose(&[IDLE, IDLE, IDLE], None, true, 4), Choice::Take(1, Why::New));
    }

    #[test]
    fn if_nobody_has_the_model_or_nobody_is_there_somebody_says_so() {
        let without = Candidate { has_model: Some(false), ..IDLE };
        let away = Candidate { up: false, ..IDLE };
        assert_eq!(choose(&[away, without], None, true, 0), Choice::Take(1, Why::New));
        assert_eq!(choose(&[away, away], Some(1), true, 0), Choice::Take(1, Why::Affine));
        let draining = Candidate { draining: true, ..IDLE };
        assert_eq!(choose(&[draining, draining], None, true, 0), Choice::Nobody);
    }

    #[test]
    fn when_all_are_full_it_waits() {
        let full = Candidate { full: true, ..IDLE };
        assert_eq!(choose(&[full, full], None, true, 0), Choice::Wait);
    }
}
