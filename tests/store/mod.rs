//! The contract of a store: what the comments of `store::Store` and `store::StoreAdmin` promise, written once and run by every engine.
//!
//! A case gets an empty store and knows no engine. A promise that is not here is none; a fault found in one engine becomes a case for all.

mod agent;
pub mod ask;
mod ban;
mod block;
mod conversation;
mod cql_agent;
mod cql_bounds;
mod cql_cluster;
mod cql_cost;
mod cql_erasure;
mod cql_floor;
mod cql_history;
mod cql_inbox;
mod cql_mention;
mod cql_outbox;
mod cql_people;
mod cql_reaction;
mod cql_reads;
mod cql_send;
mod cql_unread;
mod demo_cost;
mod differential;
mod disk;
mod embedded_agent;
mod erasure;
mod expiry;
mod export;
mod field_cost;
mod flags;
mod floor;
mod history;
mod import;
mod inbox;
mod live;
mod living;
mod membership;
mod mention;
mod oracle;
mod outbox;
mod pin;
mod profile;
mod race;
mod reaction;
mod receipt;
mod removal;
mod report;
mod restriction;
mod revision;
mod send;
pub mod stage;
mod unread;

use stage::Stage;

/// The list of cases, by file. `stores!` makes a test of each for an engine.
///
/// `cases` are async; `counted` are given the stage, with its clock and its count of rows; `properties` are given a runtime, as proptest
/// itself is not async.
macro_rules! contract {
    (cases { $($file:ident { $($case:ident),+ $(,)? })+ } counted { $($counted_file:ident { $($counted:ident),+ $(,)? })+ } properties { $($property_file:ident { $($property:ident),+ $(,)? })+ }) => {
        macro_rules! stores {
            ($engine:ident) => { stores!($engine, cfg(test)); };
            ($engine:ident, $mark:meta) => {
                mod $engine {
                    use crate::store::Stage;
                    $(mod $file {
                        use super::Stage;
                        $(
                            #[tokio::test]
                            #[$mark]
                            async fn $case() {
                                let Some(stage) = Stage::$engine().await else { return };
                                crate::store::$file::$case(stage.store()).await;
                                stage.close().await;
                            }
                        )+
                    })+
                    mod properties {
                        use super::Stage;
                        $($(
                            #[test]
                            #[$mark]
                            fn $property() {
                                let runtime = tokio::runtime::Runtime::new().unwrap();
                                let Some(stage) = runtime.block_on(Stage::$engine()) else { return };
                                crate::store::$property_file::$property(&runtime, stage.store());
                                runtime.block_on(stage.close());
                            }
                        )+)+

                        #[test]
                        #[$mark]
                        fn an_engine_answers_like_the_oracle() {
                            crate::store::differential::an_engine_answers_like_the_oracle(async || Stage::$engine().await);
                        }
                    }
                    #[tokio::test]
                    #[$mark]
                    async fn a_send_is_forgotten_as_a_retry_after_a_day() {
                        let Some(stage) = Stage::$engine().await else { return };
                        crate::store::send::a_send_is_forgotten_as_a_retry_after_a_day(&stage).await;
                        stage.close().await;
                    }

                    #[tokio::test]
                    #[$mark]
                    async fn a_count_behind_rows_that_do_not_count_becomes_exact() {
                        let Some(stage) = Stage::$engine().await else { return };
                        crate::store::unread::a_count_behind_rows_that_do_not_count_becomes_exact(&stage).await;
                        stage.close().await;
                    }

                    #[tokio::test]
                    #[$mark]
                    async fn mentions_behind_those_of_blocked_senders_become_exact() {
                        let Some(stage) = Stage::$engine().await else { return };
                        crate::store::mention::mentions_behind_those_of_blocked_senders_become_exact(&stage).await;
                        stage.close().await;
                    }

                    #[tokio::test]
                    #[$mark]
                    async fn counts_become_exact_in_a_busy_group_whose_messages_are_counted() {
                        let Some(stage) = Stage::$engine().await else { return };
                        crate::store::mention::counts_become_exact_in_a_busy_group_whose_messages_are_counted(&stage).await;
                        stage.close().await;
                    }

                    mod counted {
                        use super::Stage;
                        $($(
                            #[tokio::test]
                            #[$mark]
                            async fn $counted() {
                                let Some(stage) = Stage::$engine().await else { return };
                                crate::store::$counted_file::$counted(&stage).await;
                                stage.close().await;
                            }
                        )+)+
                    }
                }
            };
        }
    };
}

contract! {
    cases {
        conversation {
            a_new_conversation_is_there_for_its_participants,
            a_stranger_has_no_seat,
            seats_come_in_the_order_of_their_keys,
            making_it_again_changes_nothing,
            one_of_many_concurrent_creations_succeeds,
            a_pair_that_is_taken_stays_as_it_is,
            a_direct_conversation_with_oneself_has_one_participant,
            names_that_concatenate_alike_are_different_pairs,
            participants_are_in_the_order_of_their_names_bytes,
            participants_by_name_come_in_the_order_of_their_keys,
            more_than_the_fan_out_make_a_conversation_large,
            notes_are_found_again,
            of_all_who_keep_a_note_once_everyone_gets_the_same,
            concurrent_callers_get_the_same_direct_ids,
            the_times_of_the_newest_import_and_restoration_are_read_back,
            conversations_are_counted_where_a_user_is_in_them_now,
            an_empty_store_answers_everything,
        }
        agent {
            an_agent_takes_part_and_has_no_inbox,
            marks_and_flags_of_an_agent_change_nothing,
            mentions_of_an_agent_are_not_counted,
            an_agent_is_listed_in_no_large_conversation,
            an_import_brings_an_agent_without_positions,
        }
        erasure {
            conversations_of_a_user_are_found_after_leaving,
            a_user_who_leaves_without_a_message_moves_no_inbox,
            a_user_is_erased_from_messages_and_nothing_else_changes,
            a_user_is_erased_from_a_group,
            a_direct_conversation_stays_with_the_other_user,
            a_profile_and_blocks_are_erased,
            a_job_is_replaced_as_it_was_seen,
            one_of_several_servers_takes_a_job,
            the_end_of_an_erasure_is_an_event,
        }
        floor {
            settings_of_a_history_are_changed_with_the_membership,
            a_bound_of_one_user_changes_that_users_inbox_alone,
            bounds_of_an_import_are_read_back,
            a_rising_floor_is_an_event_of_the_outbox,
            messages_after_a_position_are_counted,
        }
        removal {
            removed_messages_are_gone_with_all_that_belongs_to_them,
            a_removal_goes_on_in_steps_from_the_oldest_on,
            a_late_write_brings_nothing_back,
            only_whole_buckets_go_where_they_are_narrow,
            due_removals_are_listed_by_hour,
            a_message_that_opens_a_bucket_lists_its_conversation,
            an_expiry_is_an_event_of_the_outbox,
        }
        live {
            a_live_message_is_begun_once_and_read_back,
            a_writer_claims_the_next_number_of_the_list_that_it_saw,
            one_of_many_concurrent_writers_claims_a_number,
            rows_of_text_are_read_by_their_ends,
            no_row_of_text_is_rewritten,
            the_longest_row_is_read_back,
            status_and_steps_of_the_later_write_stay,
            a_stop_and_a_discard_stand_with_the_live_message,
            a_write_to_a_live_message_that_nobody_began_shows_nowhere,
            live_messages_are_listed_by_minute,
            due_live_messages_are_listed_by_minute,
        }
        history {
            appended_messages_are_read_back_whole,
            history_is_read_newest_first,
            ids_of_one_tick_are_in_the_order_of_signed_bytes,
            a_page_of_none_is_empty,
            histories_of_neighbours_do_not_mix,
            the_message_at_a_place_is_the_newest_at_or_before_it,
            messages_come_in_the_order_of_their_keys,
            the_last_message_and_the_count_follow_each_send,
            the_newest_id_is_the_greatest_kept,
        }
        revision {
            an_edit_replaces_the_content_and_nothing_else,
            a_deletion_wins_over_every_edit,
            a_change_of_nothing_is_none,
            changes_are_logged_in_order_and_found_behind_a_place,
            an_edit_of_the_last_message_and_every_deletion_change_the_inbox,
            a_deleted_message_is_not_unread,
            a_large_conversation_logs_changes_for_itself_alone,
        }
        reaction {
            a_reaction_is_on_until_it_is_off,
            reactions_come_by_emoji_and_their_users_by_name,
            a_message_says_whether_there_are_any,
            a_reaction_is_logged_and_shows_in_no_inbox,
            a_deleted_or_missing_message_takes_no_reaction,
            the_same_reaction_again_changes_nothing,
            reactions_come_in_the_order_of_their_messages,
            kinds_that_a_user_took_back_are_counted_up_to_a_limit,
            more_users_than_are_counted_make_it_capped,
        }
        mention {
            mentions_of_a_user_and_of_everyone_are_counted,
            mentions_behind_thousands_of_unread_messages_are_exact,
            an_edit_replaces_mentions_and_a_deletion_removes_them,
            mentions_of_ignored_senders_are_not_counted,
            mentions_are_counted_in_large_conversations,
            a_user_who_joins_later_finds_earlier_mentions,
            an_import_brings_mentions_whatever_the_order,
            a_level_is_set_and_cleared_beside_other_flags,
        }
        report {
            a_report_is_read_back_whole,
            reports_are_listed_by_time_over_many_weeks,
            reports_of_a_day_are_counted,
            the_later_resolution_of_a_report_wins,
            a_report_is_replaced_and_deleted,
            an_old_report_has_expired,
            a_report_is_an_event_of_the_outbox,
            an_import_brings_reports_and_changes_none,
        }
        pin {
            a_message_is_pinned_until_it_is_unpinned,
            a_deletion_unpins,
            a_pin_is_logged_and_shows_in_no_inbox,
            an_edit_and_a_reaction_leave_the_pin,
            an_import_brings_pins_and_changes_none,
        }
        send {
            a_send_raises_the_conversation_for_everyone,
            the_audience_is_who_is_in_it_now,
            sending_reads_ones_own,
            a_batch_is_kept_whole,
            the_largest_message_fits_into_one_write,
            an_append_to_nowhere_is_refused,
            an_earlier_send_is_found_by_its_key,
            a_second_message_under_a_key_is_not_kept,
            the_same_messages_again_change_nothing,
            appends_to_many_conversations_at_once_lose_nothing,
        }
        inbox {
            entries_of_one_moment_are_in_descending_order_of_ids,
            after_thousands_of_sends_each_conversation_stands_once,
            large_conversations_stand_at_their_place,
            unasked_large_conversations_hide_none_that_was_answered,
            a_large_conversations_sends_show_in_rows_and_changes,
            rows_come_in_the_order_of_their_keys,
            an_empty_conversation_stands_at_its_making,
            changes_are_ascending_and_complete,
            changes_above_the_limit_are_none,
            a_stranger_has_no_row,
        }
        unread {
            messages_of_others_after_the_place_are_unread,
            ones_own_system_and_deleted_messages_are_not_unread,
            a_count_of_exactly_the_cap_is_not_capped,
            counts_follow_a_marker_message_by_message,
            the_greatest_cap_is_counted_exactly,
            the_cap_ends_the_count,
            answers_come_in_the_order_of_their_questions,
            a_marker_is_a_maximum_in_any_order_of_arrival,
            a_later_epoch_wins,
            receipts_never_go_back,
            a_marker_is_its_users_alone,
            a_system_message_moves_no_marker,
        }
        flags {
            flags_that_are_not_given_stay,
            users_who_want_all_are_listed_by_name,
            setting_equal_flags_is_no_change,
            an_archive_is_ended_where_it_is_that_one,
            flags_set_at_once_all_stay,
            flags_are_their_users_alone,
        }
        membership {
            a_user_who_joins_sees_the_history_and_has_nothing_unread,
            a_user_who_leaves_has_no_entry_and_no_changes,
            a_user_who_rejoins_has_nothing_unread,
            a_change_decided_on_an_older_membership_is_not_persisted,
            the_same_change_once_more_changes_nothing,
            changes_of_membership_stand_in_the_log,
            another_name_is_kept_with_its_message,
            the_33rd_who_joins_makes_it_large_for_good,
            a_group_is_never_without_an_owner,
            one_of_two_concurrent_membership_changes_is_persisted,
            a_send_at_the_moment_of_joining_misses_nobody,
        }
        receipt {
            a_delivery_is_a_maximum_in_any_order_of_arrival,
            a_delivery_changes_no_inbox,
            receivers_were_there_and_still_are,
            an_act_of_a_service_is_marked_until_the_user_acts,
        }
        profile {
            omitted_profile_fields_stay_unchanged,
            a_profile_field_set_to_null_is_removed,
            parts_told_at_once_all_stay,
            when_a_user_was_seen_is_a_maximum,
            a_profile_of_a_conversation_is_logged_and_shows_in_small_inboxes,
            an_app_key_is_claimed_once,
            imported_app_keys_are_claimed_and_refused_where_they_are_taken,
        }
        restriction {
            the_last_suspension_or_restoration_wins,
            a_revocation_is_a_maximum_of_a_user_and_of_everyone,
            a_restricted_user_is_in_exports,
            an_import_brings_restrictions,
            a_service_sets_metadata_and_clears_it,
        }
        block {
            blocks_are_read_by_name_and_are_their_users_alone,
            the_last_change_of_a_block_wins_in_any_order_of_arrival,
            the_end_of_a_block_is_read_until_it_expires,
            messages_of_ignored_senders_are_not_unread,
            an_import_brings_blocks_and_changes_none,
        }
        ban {
            a_banned_participant_is_listed_until_the_ban_is_lifted,
            bans_are_pages_by_name_without_those_that_have_ended,
            a_silence_is_logged_and_shows_in_no_inbox,
            a_silence_stays_with_a_successor_and_in_a_large_conversation,
            participants_are_paged_by_the_beginning_of_their_names,
            an_import_brings_bans_and_silences,
            one_of_a_ban_and_a_joining_at_once_is_decided_first,
            a_slow_mode_is_logged_and_shows_in_no_inbox,
        }
        import {
            importing_twice_is_importing_once,
            an_import_does_not_change_existing_rows,
            messages_may_come_in_any_order,
            participants_may_come_after_the_messages,
            rows_without_their_conversation_are_not_kept,
            the_activity_that_was_given_wins_over_older_messages,
            without_one_the_last_message_is_the_activity,
            a_pair_that_is_taken_refuses_another,
            an_imported_pair_is_found_and_made_no_second_time,
            a_lone_participant_is_with_oneself_if_the_id_says_so,
            markers_and_flags_are_kept,
            a_mark_of_unread_puts_the_marker_before_its_message,
            an_imported_participant_who_left_has_no_inbox_entry,
            the_33rd_participant_makes_it_large,
            a_deleted_message_is_counted_but_has_no_content,
            the_sends_of_the_last_day_are_recognised,
            the_send_of_a_changed_message_is_recognised,
            profiles_are_kept,
            each_row_has_its_own_fate,
            a_reaction_is_imported_once_and_waits_for_its_message,
            a_reaction_that_was_taken_back_stays_so,
        }
        export {
            everything_is_read_once_whatever_the_pieces,
            damaged_messages_are_read_with_the_others,
            participants_are_read_as_they_were_given,
            an_export_of_one_store_imports_into_an_equal_one,
            reactions_that_are_on_are_read_in_pieces,
        }
        outbox {
            a_store_without_an_outbox_has_no_rows,
            one_of_several_servers_advances_a_reader,
            dead_letters_are_listed_by_age_and_deleted,
            every_write_with_events_has_a_row,
            a_repeated_write_adds_no_event,
            rows_are_read_in_pages_from_any_position,
            the_time_of_the_switch_is_read_back,
            conversations_are_found_whoever_takes_part,
        }
        race {
            marks_and_sends_at_once_lose_nothing,
            a_reader_sees_each_send_as_a_whole,
            acknowledged_writes_are_in_every_later_read,
            growing_large_between_sends_loses_nothing,
        }
    }
    counted {
        living {
            ended_pins_cost_a_list_nothing,
            reactions_that_were_taken_back_cost_a_page_nothing,
            participants_who_left_are_passed_over_once,
            an_inbox_reads_no_conversation_that_its_user_left,
            former_participants_cost_a_change_and_a_send_nothing,
            lifted_bans_cost_a_list_nothing,
            a_count_above_one_of_many_floors_reads_few_messages,
        }
        live {
            a_live_message_is_forgotten_a_day_after_its_last_write,
            a_poll_of_a_live_message_reads_new_rows_alone,
        }
    }
    properties {
        history { pages_tile_the_history, a_page_is_the_slice_of_its_list }
        inbox { pages_tile_the_inbox, an_inbox_page_is_the_slice_of_its_list }
        conversation { a_page_of_participants_is_the_slice_of_its_list }
        receipt { a_page_of_receivers_is_the_slice_of_its_list }
        import { the_order_of_an_import_does_not_matter }
    }
}

stores!(naive);
stores!(embedded);
stores!(cassandra);
