"""Answers from the draws: pairs, width law, equal cost, settings, guideline, next runs."""
