//! The list of cases: the macro that makes a test of each, from one list.

/// A module of tests, one for each case of the suite: `conformance!(memory, open_memory)`, where `open_memory` is an
/// `async fn() -> Subject` that opens a fresh, empty store.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $open:path) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance! { @cases $open;
                read {
                    r01_empty_store_is_empty_both_ways
                    r02_all_gives_all_ascending
                    r03_first_is_there_before_and_after_iterating
                    r04_after_is_exclusive_both_ways
                    r05_limit_counts_matches_both_ways
                    r06_types_are_alternatives
                    r07_tags_are_all_needed_and_items_are_alternatives
                    r08_type_and_tag_of_one_item
                    r09_types_or_tags
                    r10_tagless_event_by_type_and_all
                    r11_near_misses_and_odd_tags
                    r12_options_never_change_what_matches
                    r13_head_whatever_matched
                    r14_what_was_given_comes_back
                    r15_interleaved_reads_are_independent
                    r16_appends_during_a_read_disturb_nothing
                    r17_colliding_names_stay_apart
                    r18_many_pages
                    r19_since_gives_only_what_came_since
                }
                append {
                    a01_positions_rise
                    a02_one_commit_is_one_block_in_order
                    a03_empty_append_is_refused
                    a04_rejected_append_writes_nothing
                    a05_out_of_bounds_is_refused_with_the_limit
                    a06_duplicates_are_defined
                    a07_many_events_in_one_commit
                    a07_many_tags_in_one_commit
                    a08_events_of_one_commit_on_their_own_tags
                    a09_foreign_tokens_are_refused
                    a10_commit_id_settles_repeats
                    a11_commit_is_found_by_its_id
                    a12_token_of_a_repeat_claims_nothing_unread
                }
                condition {
                    c01_all_fails_on_any_event
                    c02_type_fails
                    c03_tag_fails
                    c04_type_and_tag_fail
                    c05_superset_of_tags_fails
                    c06_any_item_fails
                    c07_any_match_in_history_fails
                    c08_unconditional_append_is_noticed
                    c09_event_between_read_and_append
                    c10_match_through_the_other_tag_conflicts
                    c11_after_just_below_the_match
                    c12_token_of_a_wider_read_holds_a_narrower_condition
                    c13_unchanged_tells_whether_the_boundary_moved
                    p01_no_match_ever_passes
                    p02_match_below_the_place_passes
                    p03_match_at_the_place_passes
                    p04_near_misses_pass
                    p05_own_batch_does_not_count
                    p06_another_boundary_moved
                    p07_token_of_an_empty_read
                    p08_types_only_and_tags_only
                    p09_repeat_fails_by_own_events
                }
                concurrency {
                    k01_one_boundary_one_winner
                    k02_disjoint_boundaries_all_win
                    k03_type_against_tag_one_winner
                    k04_overlapping_conditions_one_winner
                    k05_two_tag_boundary
                    k06_creation_race_one_winner
                    k07_unconditional_all_succeed
                    k08_two_clause_read_skew
                    k09_random_queries_against_the_whole_history
                    k10_no_torn_commit_in_a_decision
                    k11_duplicate_delivery_is_one_commit
                    k12_conflicts_are_bounded_by_commits
                }
                subscription {
                    s01_history_then_live
                    s02_from_anywhere
                    s03_filtered
                    s04_drop_and_reconnect
                    s05_out_of_order_commits_are_never_lost
                    s06_feed_order_is_decision_order
                    s07_idle_then_burst
                    s08_two_handles_see_each_other
                }
                streams {
                    t01_missing_stream_is_version_0
                    t02_version_counts_events
                    t03_expect_none
                    t04_expect_version
                    t05_expect_token
                    t06_expect_any
                    t07_since_gives_what_came_since
                    t08_latest
                    t09_snapshot_is_used_on_load
                    t10_snapshot_of_a_rejected_append
                    t11_read_both_ways
                    t12_one_winner_per_version
                    t13_others_all_succeed
                    t14_commit_id_settles_repeats
                    t15_empty_append_is_refused
                    t16_odd_names_stay_apart
                    t17_many_pages
                    t18_stream_is_a_tag_of_the_log
                    t19_commit_is_found_by_its_id
                    t20_commit_id_lifts_no_expectation
                    t21_repeat_of_another_run_keeps_nothing_of_its_own
                }
                states {
                    u01_checkpoint_compare_and_set
                    u02_stale_checkpoint_loses
                    u03_checkpoint_race_one_winner
                    u04_names_are_checked
                    u05_state_compare_and_set
                    u06_states_stay_apart
                    u07_cell_compare_and_set
                    u08_cells_are_listed_by_number
                    u09_cell_is_deleted_by_its_revision_only
                    u10_cell_too_large_is_refused
                    u11_lease_race_one_holder
                    u12_lease_passes_on_after_silence_only
                    u13_late_waker_is_fenced
                    u14_lease_hears_a_ring
                }
            }
        }
    };
    (@cases $open:path; $($group:ident { $($case:ident)* })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::testing::conformance::$group::$case($open().await).await;
            }
        )*)*
    };
}
