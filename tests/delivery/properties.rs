//! The properties: what holds in every run, and that a wrong order of steps would be seen.

use super::scenario::{Trouble, run};
use super::world::Mistakes;
use crate::support::size::sized;

/// Seeds of each property, as usual and in the gate. More are tried with `DELIVERY_SEEDS`.
const SEEDS: [u64; 2] = [3, 12];

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("DELIVERY_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let [usual, gate] = SEEDS;
    0..count.unwrap_or(sized(usual, gate))
}

/// Nothing that was acknowledged is missed by a stream that is open in the end.
fn nothing_is_missed(trouble: Trouble) {
    for seed in seeds() {
        let outcome = run(seed, trouble, Mistakes::default());
        assert!(outcome.missed.is_empty(), "seed {seed}: {outcome:?}");
        assert!(outcome.acknowledged > 50, "seed {seed}: {outcome:?}");
        assert!(outcome.streams > 5, "seed {seed}: {outcome:?}");
    }
}

/// Whether some seed shows that something was missed.
fn is_seen(trouble: Trouble, mistakes: Mistakes) -> bool {
    (0..200).any(|seed| !run(seed, trouble, mistakes).missed.is_empty())
}

#[test]
fn nothing_is_missed_where_users_come_and_go() {
    nothing_is_missed(Trouble::default());
}

#[test]
fn nothing_is_missed_where_statements_fail_or_are_done_later() {
    nothing_is_missed(Trouble {
        faults: Some(15),
        dead_users: true,
        ..Trouble::default()
    });
}

#[test]
fn nothing_is_missed_where_servers_die_and_stall() {
    nothing_is_missed(Trouble {
        kills: true,
        stalls: true,
        ..Trouble::default()
    });
}

#[test]
fn nothing_is_missed_where_servers_are_ended_while_they_serve() {
    nothing_is_missed(Trouble {
        wrongful_ends: true,
        stalls: true,
        ..Trouble::default()
    });
}

#[test]
fn nothing_is_missed_where_lanes_are_dead() {
    nothing_is_missed(Trouble {
        dead_lanes: true,
        ..Trouble::default()
    });
}

#[test]
fn nothing_is_missed_where_a_conversation_grows_large() {
    nothing_is_missed(Trouble {
        grows: true,
        kills: true,
        ..Trouble::default()
    });
}

#[test]
fn nothing_is_missed_where_a_participant_joins_meanwhile() {
    nothing_is_missed(Trouble {
        joins: true,
        faults: Some(15),
        kills: true,
        ..Trouble::default()
    });
}

#[test]
fn nothing_is_missed_where_clocks_are_wrong_and_set() {
    nothing_is_missed(Trouble {
        steps: true,
        stalls: true,
        ..Trouble::default()
    });
}

#[test]
fn nothing_is_missed_where_clocks_of_nodes_are_set_wrong() {
    nothing_is_missed(Trouble {
        wrong_nodes: true,
        ..Trouble::default()
    });
}

#[test]
fn nothing_is_missed_whatever_happens() {
    nothing_is_missed(Trouble::all());
}

#[test]
fn a_run_is_the_same_each_time() {
    let trouble = Trouble::all();
    let runs = [7, 7].map(|seed| run(seed, trouble, Mistakes::default()));
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn a_stream_that_reads_before_it_registers_is_seen_to_miss_events() {
    let mistakes = Mistakes {
        reads_first: true,
        ..Mistakes::default()
    };
    assert!(is_seen(Trouble::default(), mistakes));
}

#[test]
fn a_writer_that_delivers_before_it_keeps_is_seen_to_lose_events() {
    let mistakes = Mistakes {
        delivers_first: true,
        ..Mistakes::default()
    };
    assert!(is_seen(Trouble::default(), mistakes));
}

#[test]
fn cursors_beyond_the_watermark_are_seen_to_lose_events() {
    let mistakes = Mistakes {
        ignores_the_watermark: true,
        ..Mistakes::default()
    };
    let trouble = Trouble {
        stalls: true,
        dead_lanes: true,
        ..Trouble::default()
    };
    assert!(is_seen(trouble, mistakes));
}

#[test]
fn faults_of_nodes_that_no_server_is_told_of_are_seen_to_lose_events() {
    let mistakes = Mistakes {
        trusts_the_nodes: true,
        ..Mistakes::default()
    };
    let trouble = Trouble {
        wrong_nodes: true,
        ..Trouble::default()
    };
    assert!(is_seen(trouble, mistakes));
}

#[test]
fn growth_that_nobody_was_told_of_is_seen_to_lose_events() {
    let mistakes = Mistakes {
        trusts_the_growth: true,
        ..Mistakes::default()
    };
    let trouble = Trouble {
        kills: true,
        grows: true,
        ..Trouble::default()
    };
    assert!(is_seen(trouble, mistakes));
}

#[test]
fn late_events_that_are_not_logged_again_are_seen_to_be_missed() {
    let mistakes = Mistakes {
        forgets_late_ones: true,
        ..Mistakes::default()
    };
    let trouble = Trouble {
        faults: Some(15),
        dead_users: true,
        stalls: true,
        ..Trouble::default()
    };
    assert!(is_seen(trouble, mistakes));
}
