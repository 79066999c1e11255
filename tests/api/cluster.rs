//! The same cases, on Cassandra: this program once more, told where its worlds lie.

use crate::support::cases::{assert_hold, cases_of};
use crate::support::cassandra::shared;
use crate::support::ground::CLUSTER;

/// Each case opens a store of its own, of which a small node bears only a few at once.
const AT_ONCE: usize = 4;
/// Cases that hold in one process only: a resumed stream repeats nothing (on a cluster it may repeat events younger than the window),
/// a send runs between the steps of a removal, and one of several equal streams executes before the others time out. `tests/servers`
/// has the cases for a cluster. Two cases move the clock, one counts just after an import, and one runs the others again.
const ELSEWHERE: &[&str] = &[
    "api::agent::every_case_holds_for_an_agent",
    "api::cluster::",
    "api::events::a_resumed_stream_begins_with_its_cursor_and_the_present_markers",
    "api::events::cuts_while_all_kinds_of_things_happen_lose_nothing",
    "api::floor::a_replay_reads_none_of_the_expired_messages_however_many_there_are",
    "api::group_events::nothing_is_said_by_one_who_was_removed",
    "api::large_events::a_payload_over_64_kib_is_kept_in_no_notice_and_no_memo",
    "api::moderation::a_silence_holds_for_writes_that_waited_behind_it",
    "api::moderation::services_read_bans_and_receive_updates",
    "api::posting_role::a_role_holds_for_writes_that_waited_behind_it",
    "api::pace::a_stream_of_one_who_is_too_fast_comes_more_slowly_and_whole",
    "api::pace::equal_subscriptions_pay_once_for_what_they_share",
    "api::pace::one_who_cannot_pay_takes_what_others_execute_and_keeps_nobody_waiting",
    "api::reaction::a_reaction_is_told_once_live_and_resumed_and_in_no_inbox",
    "api::shared::equal_subscriptions_get_the_same_bytes_wherever_they_began",
    "api::shared::a_removed_user_gets_no_shared_payload",
    "api::restriction::a_suspension_without_an_end_holds_after_forty_days_and_a_restart",
    "api::services::every_case_holds_in_the_name_of_a_user",
    "api::rates::streams_that_come_back_at_once_take_turns_and_all_get_there",
    "api::subscription::a_cursor_is_good_after_a_restart",
    "api::subscription::a_stream_resumed_from_any_cursor_has_no_gap_and_no_repeat",
    "api::subscription::the_inbox_stream_tells_of_new_conversations_large_ones_and_marks_of_other_devices",
    "api::subscription::cuts_while_many_send_lose_nothing",
    "api::unread::a_count_behind_a_thousand_deleted_messages_is_exact_at_the_second_look",
];

#[tokio::test]
async fn every_case_holds_on_cassandra() {
    let Some(shared) = shared().await else { return };
    let cases = cases_of("api::", ELSEWHERE);
    assert_hold(&cases, (CLUSTER, shared.authority()), AT_ONCE).await;
}
