"""The laws of a model that hold of any real engine, for the test modules that have one: they import all of them."""

from .test_laws import (
    sequences,
    test_batch_size_and_order_change_nothing,
    test_cursor_follows_parents_and_stays_valid,
    test_cursor_walks_along_log_probs,
    test_distributions_are_normalised,
    test_end_is_absorbing,
    test_full_support_is_what_it_says,
    test_neighbours_are_separately_scored_sequences,
    test_sample_does_not_touch_the_global_generator,
    test_sample_reports_its_scores,
    test_scores_are_gathered_log_probs,
)

__all__ = [
    "sequences",
    "test_batch_size_and_order_change_nothing",
    "test_cursor_follows_parents_and_stays_valid",
    "test_cursor_walks_along_log_probs",
    "test_distributions_are_normalised",
    "test_end_is_absorbing",
    "test_full_support_is_what_it_says",
    "test_neighbours_are_separately_scored_sequences",
    "test_sample_does_not_touch_the_global_generator",
    "test_sample_reports_its_scores",
    "test_scores_are_gathered_log_probs",
]
