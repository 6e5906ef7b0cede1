"""Training: the loop that compiles what a learner asks for and tells it the results, until the budget is spent."""
