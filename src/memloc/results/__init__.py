"""Results: of one run, of many runs, and what they say in numbers and sentences."""
