"""What a policy, a tuned plugin or any option does to programs that run."""
