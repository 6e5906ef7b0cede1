"""The loop of the learners: compile what they ask for, tell them how it went, until the budget is spent."""
